"""A whole fleet on one machine: embedded Redis and workers under one supervisor."""
