"""Waiting without polling: one LISTEN connection a process and database, fanned out to threads and to asyncio."""

from __future__ import annotations

from .alarms import AsyncWaiter
from .listener import Listener, Subscription, Watch
from .registry import close_listeners, get_listener
from .session import JOBS, reply_channel

__all__ = [
    "JOBS",
    "AsyncWaiter",
    "Listener",
    "Subscription",
    "Watch",
    "close_listeners",
    "get_listener",
    "reply_channel",
]
