"""The Redis store: keys, scripts and their typed callers."""
