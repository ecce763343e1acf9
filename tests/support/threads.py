"""Threads of a test, whose Django connections end with them."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from django.db import connections

T = TypeVar("T")


class ThreadResult:
    def __init__(self, function: Callable[[], Any]) -> None:
        self._result: Future[Any] = Future()
        self._thread = threading.Thread(target=self._run, args=(function,))

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            self._result.set_result(function())
        except BaseException as error:  # noqa: BLE001  (raised again in value)
            self._result.set_exception(error)
        finally:
            connections.close_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def value(self, seconds: float = 300) -> Any:
        self._thread.join(seconds)
        return self._result.result(0)

    def __exit__(self, *exc: object) -> None:
        self._thread.join(300)


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function that uses Django's connections, beside the event loop."""

    def run() -> T:
        try:
            return function()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)
