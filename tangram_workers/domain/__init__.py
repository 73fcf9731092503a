"""The nouns of the fleet: pure data, no I/O, no clock, no randomness."""
