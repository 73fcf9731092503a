"""One synchronous RL step on real problems, by the fleet and by a static baseline."""
