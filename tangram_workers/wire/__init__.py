"""Bytes to domain and back: versioned, strict."""
