"""The Python API of one queue: producers, consumers, buffers, request and response, heartbeats.

Start with `queue.py`: `Queue` gathers the methods of `enqueue`, `lease` and itself. HTTP, Spark, testing and the
facades may import this folder; it imports the engine, notify and the worker. Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.flow.declared import Limit as Limit
    from .buffered import BufferedQueue as BufferedQueue
    from .consumer import Consumer as Consumer
    from .heartbeat import Heartbeat as Heartbeat
    from .outcomes import ClaimedJob as ClaimedJob
    from .queue import Queue as Queue

_HOMES = {
    "BufferedQueue": "buffered",
    "Consumer": "consumer",
    "ClaimedJob": "outcomes",
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
