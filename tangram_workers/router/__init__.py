"""Which queue, and in what order: pure."""
