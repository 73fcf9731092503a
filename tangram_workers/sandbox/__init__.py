"""Where untrusted programs run: drivers behind one protocol."""
