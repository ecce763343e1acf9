"""Names of channels."""

from __future__ import annotations

import os
import secrets

from ..conf import process

#: The channel on which the engine announces ready jobs (``q<queue id>``), new queues (``n``), and that leases of a
#: queue were taken from workers (``l<queue id>``).
JOBS = "leasequeue"

_names: process.Shared[str, str] = process.Shared()


def reply_channel() -> str:
    """Return this process's own channel for answers (``NewJob.reply_to``): one name for all its callers, unguessable.

    A forked child gets a name of its own.
    """
    return _names.get("reply", lambda _: f"leasequeue_reply_{os.getpid()}_{secrets.token_hex(8)}")
