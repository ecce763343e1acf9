"""Signals of the life of a job. Receivers are called robustly: one that raises is logged and changes nothing.

Each carries ``queue`` (name or id), ``project``, ``seq``, ``key`` and ``name``; what it adds is said beside it. Inside
a transaction they are sent when it commits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal

if TYPE_CHECKING:
    from .engine.rows import LeasedJob

logger = logging.getLogger("django_leasequeue")

#: A job was added. Adds ``status``.
enqueued = Signal()
#: A handler starts. Adds ``job``, ``node``.
started = Signal()
#: A job is done. Adds ``job``, ``result``.
completed = Signal()
#: An attempt failed and the job will be tried again. Adds ``job``, ``failure``, ``available_at``.
failing = Signal()
#: A job failed for good. Adds ``job``, ``failure``.
failed = Signal()
#: A lease expired: the job is ready again (or dead). Adds ``node``, ``deliveries``, ``state``. Sent once an expiry.
stalled = Signal()
#: A job was taken out before it started.
cancelled = Signal()
#: A job used up its deliveries. Adds ``deliveries``.
dead_lettered = Signal()

ENGINE_SIGNALS = {"enqueued": enqueued, "stalled": stalled, "cancelled": cancelled, "dead_lettered": dead_lettered}


def about(job: LeasedJob, project: str) -> dict[str, Any]:
    """Return what each signal says of a job."""
    return {"queue": job.queue, "project": project, "seq": job.seq, "key": job.key, "name": job.name}


def send(signal: Signal, **info: Any) -> None:
    """Send ``signal`` robustly; log what a receiver raised."""
    for receiver, answer in signal.send_robust(sender=None, **info):
        if isinstance(answer, Exception):
            logger.error("A receiver of a job signal raised: %r", receiver, exc_info=answer)


def dispatch(pending: list[tuple[str, dict[str, Any]]], using: str | None) -> None:
    """Send what an operation announced: at once, or when the transaction on alias ``using`` commits."""

    def deliver() -> None:
        for name, info in pending:
            send(ENGINE_SIGNALS[name], **info)

    if using is not None and transaction.get_connection(using).in_atomic_block:
        transaction.on_commit(deliver, using=using)
    else:
        deliver()
