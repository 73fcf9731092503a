"""Benchmarks of the broker, both sides in turn on one machine."""
