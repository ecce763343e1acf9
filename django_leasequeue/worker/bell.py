"""The cheapest way to wake one waiting thread."""

from __future__ import annotations

import threading
from contextlib import suppress


class Bell:
    """A binary semaphore: rings before or during a wait end it; several rings count as one.

    Lighter than ``threading.Event`` (one lock instead of three objects), for one waiting thread.
    """

    __slots__ = ("_lock", "sleeping")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        #: For the owner's use: whether it is worth to ring.
        self.sleeping = False

    def ring(self) -> None:
        """End the current or the next wait, from any thread."""
        with suppress(RuntimeError):  # it rings already
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it rings, at most ``timeout`` seconds; return whether it did."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
