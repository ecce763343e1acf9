"""Signals of the life of a job. Receivers are called robustly: one that raises is logged and changes nothing.

Each carries ``queue`` (name or id), ``project``, ``seq``, ``key`` and ``name``, and the arguments named beside it. The
sender of ``started``, ``completed``, ``failing`` and ``failed`` is the task, where the job is one; else it is ``None``.
Inside a transaction they are sent at its commit; after ``set_autocommit(False)``, when autocommit is on again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal

from .conf.loglines import contained, exc_info

if TYPE_CHECKING:
    from .engine.rows import LeasedJob

logger = logging.getLogger("django_leasequeue")

#: A job was added. Adds ``status``.
enqueued = Signal()
#: A handler starts. Adds ``job``, ``node``.
started = Signal()
#: A job is done. Adds ``job``, ``result``.
completed = Signal()
#: An attempt failed, and a retry follows. Adds ``job``, ``failure``, ``available_at``.
failing = Signal()
#: A job failed for good. Adds ``job``, ``failure``.
failed = Signal()
#: A lease expired: the job is ready again (or dead). Adds ``node``, ``deliveries``, ``state``. Sent once an expiry.
stalled = Signal()
#: A job was cancelled before it started.
cancelled = Signal()
#: A job used up its deliveries. Adds ``deliveries``.
dead_lettered = Signal()

ENGINE_SIGNALS = {"enqueued": enqueued, "stalled": stalled, "cancelled": cancelled, "dead_lettered": dead_lettered}


def about(job: LeasedJob, project: str) -> dict[str, Any]:
    """Return the common arguments of a job's signals."""
    return {"queue": job.queue, "project": project, "seq": job.seq, "key": job.key, "name": job.name}


def send(signal: Signal, sender: Any = None, **info: Any) -> None:
    """Send ``signal`` robustly; log errors of receivers."""
    with contained(logger, "A receiver of a job signal raised"):  # Django lets through what is no Exception
        for receiver, answer in signal.send_robust(sender=sender, **info):
            if isinstance(answer, Exception):
                logger.error("A receiver of a job signal raised: %r", receiver, exc_info=exc_info(answer))


def dispatch(pending: list[tuple[str, dict[str, Any]]], using: str | None) -> None:
    """Send the signals of an operation: at once, or when the transaction on alias ``using`` commits."""

    def deliver() -> None:
        for name, info in pending:
            send(ENGINE_SIGNALS[name], **info)

    connection = None if using is None else transaction.get_connection(using)
    if connection is not None and connection.in_atomic_block:
        transaction.on_commit(deliver, using=using)
    elif connection is not None and not connection.autocommit:
        # Django refuses `on_commit` here. This runs when autocommit is on again, unless the transaction rolls back.
        connection.run_on_commit.append((set(), deliver, True))
    else:
        deliver()
