"""Threads of a test."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connection


class ThreadResult:
    """Runs a function in a thread with Django connections of its own."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._box: list[Any] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._box.append(self._function())
        except BaseException as error:  # noqa: BLE001  (raised again in value)
            self._box.append(error)
        finally:
            connection.close()

    def __enter__(self) -> ThreadResult:
        self._thread.start()
        return self

    def value(self, seconds: float = 300) -> Any:
        self._thread.join(seconds)
        assert self._box, "it hangs"
        if isinstance(self._box[0], BaseException):
            raise self._box[0]
        return self._box[0]

    def __exit__(self, *exc: object) -> None:
        self._thread.join(300)
