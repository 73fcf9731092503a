"""Shared state of the fleet in Redis, behind typed calls."""
