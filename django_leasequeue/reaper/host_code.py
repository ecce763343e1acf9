"""Calls of the host's code by a duty, which may raise anything or never return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from django.db import connections

from ..exceptions import LeaseQueueError

#: Seconds for which a duty waits at each call of ``HostCode.ask``, and after which it waits no longer.
WAIT, PATIENCE = 0.2, 8.0
#: Concurrent calls of the host's code; seconds after which an unfetched result is dropped.
MOST_CALLS, FORGOTTEN = 20, 60.0


class HostCodeError(LeaseQueueError):
    """An error of the host's code, ``SystemExit`` included."""


class NotReturned(HostCodeError):
    """The host's code has not returned yet. ``late``: the duty no longer waits for it."""

    def __init__(self, message: str, *, late: bool) -> None:
        super().__init__(message)
        self.late = late


class HostCode:
    """Calls of the host's code by key, each in its own thread, since it may never return."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _Call] = {}

    def ask(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """Return the function's value; ``HostCodeError``: it raised; ``NotReturned``: ask again with the key."""
        call = self._calls.get(key)
        if call is None:
            self._make_room()
            call = self._calls[key] = _Call(function)
        since = time.monotonic() - call.began
        if not call.returned.wait(WAIT if since < PATIENCE else 0):
            raise NotReturned(f"Its code has not returned for {since:.0f} s.", late=since >= PATIENCE)
        del self._calls[key]
        if call.error is not None:
            raise HostCodeError(f"{type(call.error).__name__}: {call.error}") from call.error
        return call.value

    def _make_room(self) -> None:
        now = time.monotonic()
        for key, call in list(self._calls.items()):
            if call.returned.is_set() and now - call.began > FORGOTTEN:
                del self._calls[key]
        if len(self._calls) >= MOST_CALLS:
            raise NotReturned(
                f"It was not called, because the code of {MOST_CALLS} others has not returned.", late=True
            )


class _Call:
    """A call, with its value or error once it has ``returned``."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.began = time.monotonic()
        self.returned = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self._function = function
        threading.Thread(target=self._run, name="leasequeue-host", daemon=True).start()

    def _run(self) -> None:
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001  (a module may raise SystemExit when it is imported)
            self.error = error
        finally:
            connections.close_all()
            self.returned.set()
