"""The message queue: the only floor, with `tasks`, that knows Celery and kombu."""
