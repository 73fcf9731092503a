"""Decisions about durations and units: pure functions that production and simulation share."""
