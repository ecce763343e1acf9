"""Names of channels."""

from __future__ import annotations

import os
import secrets

#: Where the engine announces ready jobs; the payload is ``q<queue id>``.
JOBS = "leasequeue"

_reply_channels: dict[int, str] = {}


def reply_channel() -> str:
    """Return this process's own channel for answers (``NewJob.reply_to``): one name for all its callers, unguessable.

    A forked child gets a name of its own.
    """
    pid = os.getpid()
    if pid not in _reply_channels:
        _reply_channels.clear()
        _reply_channels[pid] = f"leasequeue_reply_{pid}_{secrets.token_hex(8)}"
    return _reply_channels[pid]
