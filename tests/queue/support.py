"""Queues of the preset ``jobqueue``, and looking at their jobs."""

from typing import Any

from django_leasequeue import Queue


def jobqueue(name: str = "images", **options: Any) -> Queue:
    return Queue(name, preset="jobqueue", node=options.pop("node", "worker-1"), **options)


def states(queue: Queue, key: str = "id") -> str | None:
    status = queue.get_status(key)
    return None if status is None else status.state
