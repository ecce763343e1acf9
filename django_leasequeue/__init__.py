"""A lease-based, at-least-once job queue for Django, kept in the project's own PostgreSQL.

Hosts import names from here (`Queue`, `task`, `Limit`, ...); they are loaded when first used, so that a settings
module may import this package. Contributors start with CONTRIBUTING.md, which follows an enqueue and a claim through
the folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .engine.flow.declared import Limit as Limit
    from .engine.rows import NewJob as NewJob
    from .queue.buffered import BufferedQueue as BufferedQueue
    from .queue.consumer import Consumer as Consumer
    from .queue.heartbeat import Heartbeat as Heartbeat
    from .queue.outcomes import ClaimedJob as ClaimedJob
    from .queue.queue import Queue as Queue
    from .tasks.progress import progress_view as progress_view
    from .worker.embedded import EmbeddedWorker as EmbeddedWorker
    from .worker.embedded import with_worker as with_worker

#: Where the public names live. They are imported when they are first used: importing this package imports nothing, and
#: none of them needs Django's apps to be loaded.
_HOMES = {
    "BufferedQueue": "queue.buffered",
    "ClaimedJob": "queue.outcomes",
    "Consumer": "queue.consumer",
    "EmbeddedWorker": "worker.embedded",
    "Heartbeat": "queue.heartbeat",
    "Limit": "engine.flow.declared",
    "NewJob": "engine.rows",
    "Queue": "queue.queue",
    "progress_view": "tasks.progress",
    "with_worker": "worker.embedded",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
