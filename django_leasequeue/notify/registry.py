"""The process's listeners, one per database alias."""

from __future__ import annotations

import os
import threading

from .. import conf
from .listener import Listener

_listeners: dict[str, Listener] = {}
_lock = threading.Lock()


def get_listener(using: str | None = None) -> Listener:
    """Return this process's listener of an alias (default: ``LEASEQUEUE["DATABASE"]``). It connects when it is used."""
    alias = using or conf.settings.DATABASE
    with _lock:
        if alias not in _listeners:
            _listeners[alias] = Listener(alias)
        return _listeners[alias]


def close_listeners() -> None:
    """Close every listener of this process and wait for their threads (at shutdown, and between tests)."""
    with _lock:
        found = list(_listeners.values())
        _listeners.clear()
    for listener in found:
        listener.close()


def _forget() -> None:
    """In a forked child: the connections and threads are the parent's."""
    global _lock
    _lock = threading.Lock()
    _listeners.clear()


os.register_at_fork(after_in_child=_forget)
