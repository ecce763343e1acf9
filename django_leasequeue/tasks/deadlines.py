"""The ``deadline`` of a task: one limit for all attempts, which every delivery of its job keeps."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async

from .. import engine
from ..conf import process
from ..engine import LeasedJob, clock
from ..enums import JobFlag
from ..twins import Body, either
from ..worker.control import JobControl, Retry
from .api import Task, task_backends
from .backoff import Backoff
from .context import may_be_replaced, queue_database
from .exceptions import UNREACHED, DeadlineExceeded
from .lookup import TaskEntry, asked_start, number

#: Names in a job's metadata: the seconds, and whether they count from the first start.
DEADLINE, _FROM_START = "deadline", "deadline_from_start"
#: Seconds that must be left for another attempt.
SHORTEST = 0.05
#: What stands in the metadata of every job with a deadline, as text.
MARK = f'"{DEADLINE}"'


class _Begun(NamedTuple):
    """A running attempt: when its deadline is over (``clock.elapsing``), and the queue's backoff."""

    over_at: float
    backoff: Any = None


#: Attempts that run in this process, by the job's key and its claim.
_begun: process.Memory[tuple[str | None, int], _Begun] = process.Memory()


def noted(task: Task[..., Any]) -> dict[str, Any]:
    """Return the metadata that tell workers of a task's deadline."""
    seconds = getattr(task, "deadline", None)
    if seconds is None:
        return {}
    # A later call gives such a job another time to start.
    return {DEADLINE: seconds, **({_FROM_START: True} if getattr(task, "on_conflict", None) == "reschedule" else {})}


def from_first_start(job: engine.NewJob) -> engine.NewJob:
    """Return the job of a workflow's step: its deadline counts from its first start, which is unknown until then."""
    meta: Any = job.meta
    return job._replace(meta=type(meta)({**meta, _FROM_START: True})) if meta and DEADLINE in meta else job


def seconds_left(job: LeasedJob) -> float | None:
    """Return the seconds from the job's claim to its deadline, ``None`` without one; 0 or less: it is over."""
    meta = job.meta if job.meta_json is not None and MARK in job.meta_json else None
    seconds = number(meta, DEADLINE) if isinstance(meta, dict) else None
    if meta is None or not seconds:
        return None
    begins = job.first_claimed_epoch
    if meta.get(_FROM_START) is not True and not _is_redriven(job):
        asked = asked_start(meta, job.created_at)
        begins = job.created_epoch if asked is None else max(job.created_epoch, asked.timestamp())
    return begins + seconds - job.claimed_epoch


def _is_redriven(job: LeasedJob) -> bool:
    """Return whether the job is a dead letter that was retried: it has failed before its first claim since then."""
    errors = job.errors if job.flags & JobFlag.FAILED else []
    return bool(errors) and datetime.fromisoformat(errors[0]["at"]).timestamp() < job.first_claimed_epoch - 0.001


def begin(entry: TaskEntry, job: LeasedJob, control: JobControl, project: str) -> Body[None]:
    """Refuse an attempt after the deadline; of another one note what its end needs to know."""
    left = seconds_left(job)
    if left is None:
        return
    # A worker may have claimed it ahead.
    left -= max(0.0, time.monotonic() - control.lease.claimed)
    if left <= 0:
        if may_be_replaced(job) and (yield either(_undoes, sync_to_async(_undoes), control)):
            return  # it has failed already: what it did is undone, however late
        raise DeadlineExceeded(f"The deadline of {job.meta[DEADLINE]:g} s was over before this attempt could start.")
    control.over_at = clock.elapsing() + left
    place = job.key, job.token
    _begun[place] = _Begun(control.over_at)
    if getattr(entry.task, "backoff", None) is None and "backoff" not in job.meta:
        with suppress(*UNREACHED):  # without it a late attempt is found when it is to start
            reading = engine.get(job.queue, project=project)
            database = queue_database(task_backends[entry.alias], job.queue)
            info: engine.QueueInfo | None = yield either(engine.run, engine.arun, reading, database)
            if info is not None:
                kind, base, most = (info.config[name] for name in ("backoff", "backoff_base_ms", "backoff_max_ms"))
                policy = 0.0 if kind == "none" else Backoff(kind, base / 1_000, most / 1_000)
                _begun[place] = _Begun(control.over_at, policy)


def _undoes(control: JobControl) -> bool:
    """Return whether a delivery undoes the steps of a job that has failed for good."""
    steps = control.to_undo(unknown=True)
    assert steps is not None
    steps.load(forgets=False)
    return steps.undoing


def queue_backoff(job: LeasedJob) -> Any:
    """Return the backoff of the queue of a job with a deadline; ``None``: the queue itself applies it."""
    begun = _begun.get((job.key, job.token))
    return None if begun is None else begun.backoff


def forget(job: LeasedJob) -> None:
    """Forget an attempt that has ended."""
    if _begun:
        _begun.pop((job.key, job.token), None)


def too_late(job: LeasedJob, retry: Retry) -> DeadlineExceeded | None:
    """Return the error that ends the job if its deadline is over, or would be at the retry."""
    begun = _begun.get((job.key, job.token)) if _begun else None
    if begun is None:
        return None
    left, delay = begun.over_at - clock.elapsing(), (retry.delay_ms or 0) / 1_000
    if left <= SHORTEST:
        return DeadlineExceeded(f"The deadline of {job.meta[DEADLINE]:g} s was over before the task ended.")
    if left - delay > SHORTEST or 0 < job.max_deliveries <= job.deliveries:
        return None
    return DeadlineExceeded(f"The next attempt would start after the deadline of {job.meta[DEADLINE]:g} s.")
