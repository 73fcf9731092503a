"""Scenarios that are measured, each with its baseline."""
