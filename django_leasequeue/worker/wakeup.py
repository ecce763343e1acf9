"""The cheapest way to wake one waiting thread."""

from __future__ import annotations

import threading


class WakeUp:
    """A binary semaphore: a ``wake`` before or during a wait ends it; several count as one.

    Lighter than ``threading.Event`` (one lock instead of three objects), for one waiting thread.
    """

    __slots__ = ("_lock", "sleeping")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        #: Set by the owner while a ``wake`` is worth its cost; the first one takes it back.
        self.sleeping = False

    def wake(self) -> None:
        """End the current or the next wait, from any thread."""
        self.sleeping = False
        try:  # noqa: SIM105  (suppress takes four times as long, and jobs wait for it)
            self._lock.release()
        except RuntimeError:  # it was woken already
            pass

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until somebody wakes it, at most ``timeout`` seconds; return whether somebody did."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
