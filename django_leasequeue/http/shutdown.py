"""Knowing early that the server is told to stop: a stream has to end by itself, servers wait for it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from ..conf import process

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_stops: process.PerLoop[asyncio.Event] = process.PerLoop(asyncio.Event)
_chained = False


def stopping() -> asyncio.Event:
    """Return this loop's event that is set when the server is told to stop (SIGTERM, SIGINT, or ``stop``)."""
    _chain()
    return _stops.get()


def stop() -> None:
    """Tell every stream of this process to end. May be called from any thread and from a signal handler."""
    for loop, event in _stops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody streams there
            loop.call_soon_threadsafe(event.set)


def _chain() -> None:
    """Hear the signals before the server's own handlers, which go on as before.

    Servers stop accepting and then wait for open connections, without a word to the application before these have
    ended.
    """
    global _chained
    if _chained or threading.current_thread() is not threading.main_thread():
        return
    _chained = True
    for number in _SIGNALS:
        before = signal.getsignal(number)
        if callable(before):
            signal.signal(number, _both(before))


def _both(before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        stop()
        return before(number, frame)

    return handle
