"""The Python door: queues, buffers, request and response, heartbeats, consumers.

Its names are loaded when they are first used: whoever needs one module of it loads that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.flow.declared import Limit as Limit
    from .buffered import BufferedQueue as BufferedQueue
    from .consumer import Consumer as Consumer
    from .heartbeat import Heartbeat as Heartbeat
    from .job import ClaimedJob as ClaimedJob
    from .queue import Queue as Queue

_HOMES = {
    "BufferedQueue": "buffered",
    "Consumer": "consumer",
    "ClaimedJob": "job",
    "Heartbeat": "heartbeat",
    "Limit": ".engine.flow.declared",
    "Queue": "queue",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
