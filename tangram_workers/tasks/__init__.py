"""Celery entry points: decode, call the worker, encode; no logic."""
