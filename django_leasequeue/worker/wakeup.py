"""The cheapest way to wake one waiting thread."""

from __future__ import annotations

import threading
from contextlib import suppress


class WakeUp:
    """A binary semaphore: a ``wake`` before or during a wait ends it; several count as one.

    Lighter than ``threading.Event`` (one lock instead of three objects), for one waiting thread.
    """

    __slots__ = ("_lock", "sleeping")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        #: For the owner's use: whether a ``wake`` is worth its cost.
        self.sleeping = False

    def wake(self) -> None:
        """End the current or the next wait, from any thread."""
        with suppress(RuntimeError):  # it was woken already
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until somebody wakes it, at most ``timeout`` seconds; return whether somebody did."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
