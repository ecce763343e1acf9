"""Waiting without polling: one LISTEN connection a process and database, fanned out to threads and to asyncio.

The worker, the queue API and the HTTP APIs wait with it; it imports the engine's connections only. Start at
`listener.py`, the thread that listens; its callers wait on `alarms` and `replies`.
"""

from __future__ import annotations

from .alarms import waking
from .listener import Listener, Subscription, Watch, close_listeners, get_listener
from .session import JOBS, reply_channel

__all__ = ["JOBS", "Listener", "Subscription", "Watch", "close_listeners", "get_listener", "reply_channel", "waking"]
