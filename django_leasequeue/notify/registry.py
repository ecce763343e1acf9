"""The process's listeners, one per database alias."""

from __future__ import annotations

from .. import conf
from ..conf import process
from .listener import Listener

_listeners: process.Shared[str, Listener] = process.Shared()


def get_listener(using: str | None = None) -> Listener:
    """Return this process's listener of an alias (default: ``LEASEQUEUE["DATABASE"]``). It connects when it is used."""
    return _listeners.get(using or conf.settings.DATABASE, Listener)


def close_listeners() -> None:
    """Close every listener of this process and wait for their threads (at shutdown, and between tests)."""
    for listener in _listeners.clear():
        listener.close()
