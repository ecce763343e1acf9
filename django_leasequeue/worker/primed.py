"""A statement that is built before its thread sleeps, and sent by the thread that hears why it should wake up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..notify.alarms import Alarm


class NotAnnounced(Exception):
    """The statement was not sent: time was over, or (``woken``) the thread was woken otherwise, or too early."""

    def __init__(self, woken: bool) -> None:
        super().__init__(woken)
        self.woken = woken


class Primed:
    """Holds a statement back until ``send``, for so many seconds at most.

    What a thread would do between waking up and sending takes 0.2 to 0.3 ms in an idle process, whose caches others
    have used. So the listener's thread sends, and the owner wakes up while PostgreSQL works.
    """

    def __init__(self, alarm: Alarm, seconds: float) -> None:
        self._alarm, self._seconds = alarm, seconds
        self._lock = threading.Lock()
        self._send: Callable[[], None] | None = None
        self._error: Exception | None = None
        #: When it was sent (monotonic).
        self.at = 0.0

    def hold(self, send: Callable[[], None]) -> None:
        """Sleep until another thread has called ``send``; ``NotAnnounced`` if none has."""
        self._send = send
        woken = self._alarm.wait(self._seconds)
        with self._lock:
            if self._send is not None:
                self._send = None
                raise NotAnnounced(woken)
        if self._error is not None:
            raise self._error

    def send(self) -> None:
        """Send it now, from any thread, if it is held; does not block."""
        with self._lock:
            send, self._send = self._send, None
            if send is None:
                return
            self.at = time.monotonic()
            try:
                send()
            except Exception as error:  # noqa: BLE001  (the owner raises it, whose statement it is)
                self._error = error
