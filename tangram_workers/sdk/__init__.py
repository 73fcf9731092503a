"""The Python SDK: what trainers import."""
