"""Waiting for what other threads and processes do: by looking, with an end."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], what: str = "it", seconds: float = 120) -> T:
    """Wait until ``check`` returns something true; return that."""
    ends = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < ends, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.01)
    return found


async def aeventually(check: Callable[[], T], what: str = "it", seconds: float = 120) -> T:
    ends = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < ends, f"{what} did not happen in {seconds:g} s"
        await asyncio.sleep(0.01)
    return found
