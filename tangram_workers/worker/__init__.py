"""The worker: takes actions, runs them, answers."""
