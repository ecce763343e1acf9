"""Moving the jobs of a jqueue state file into a queue, each exactly once.

1. The file is marked, by a conditional write: from then on jqueue refuses it, and its jobs do not change any more.
2. One transaction adds the jobs and a line of the audit with the number of the hand-over.
3. The file is marked as done.

Who is killed in between begins again: a file that is marked is not marked anew, and a hand-over that the audit knows
adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4
from zlib import crc32

from django.db import connections, transaction

from ..engine import NewJob, audit, clock
from ..engine.limits import MAX_KEY_BYTES, check_text
from ..engine.operation import Steps, operation
from ..exceptions import InvalidOption, PayloadTooLarge, StorageError
from ..models import OperatorAction
from ..queue.base import run, storage_errors
from ..queue.enqueue import MAX_MANY
from ..queue.queue import Queue
from .jqueue_direct import kept_priorities
from .jqueue_files import File, FileState, Mark, read_state
from .jqueue_values import Job, JobStatus, options_of, payload_limit, tag_of

ACTION = "import"
#: The space of the advisory locks of hand-overs.
LOCKS = 1_280_657_733
#: How often other processes may write the file before the mark is given up.
TRIES = 20
#: A worker that did not tell of its job for so long is gone.
STALE = timedelta(minutes=5)


class Moved(NamedTuple):
    """The outcome of an import."""

    #: Jobs that the file holds, without dead ones.
    jobs: int
    #: How many of them were added by this call, and how many were there already.
    added: int
    known: int
    #: How many were in progress, and how many dead ones were left.
    in_progress: int
    dead: int
    #: Whether an earlier call had moved all.
    before: bool


def look(file: File, queue: Queue, *, in_progress: bool = False) -> Moved:
    """Return what an import would do, and change nothing; arguments and errors as ``move``."""
    content, _ = file.read()
    state = read_state(content)
    jobs = _live(state)
    if state.mark is not None:
        _same(state.mark, queue)
    else:
        _check(jobs, queue, in_progress)
    return _moved(state, len(jobs), 0, before=state.done)


def move(file: File, queue: Queue, *, in_progress: bool = False) -> Moved:
    """Move the jobs of a file into a queue."""
    for _ in range(TRIES):
        content, version = file.read()
        state = read_state(content)
        if state.mark is not None:
            _same(state.mark, queue)
            mark = state.mark
            break
        _check(_live(state), queue, in_progress)
        mark = Mark(str(uuid4()), _database(queue), queue.project, queue.name)
        if file.write(state.marked(mark), version):
            break
    else:
        raise StorageError(f"Others write the file all the time ({TRIES} tries): stop them and begin again.")
    if state.done:
        return _moved(state, 0, 0, before=True)
    added, known = _add(_live(state), queue, mark)
    _finish(file, mark)
    return _moved(state, added, known)


def _add(jobs: Sequence[Job], queue: Queue, mark: Mark) -> tuple[int, int]:
    """Add the jobs of a hand-over unless that was done; return how many were added and how many were there."""
    with storage_errors(), transaction.atomic(using=queue.using):
        if not run(_lock(mark), queue.using):
            raise StorageError("Another call moves the jobs of this file at this moment: wait for its end.")
        lines = OperatorAction.objects.using(queue.using)
        if lines.filter(action=ACTION, project=queue.project, queue=queue.name, detail__hand_over=mark.id).exists():
            return 0, len(jobs)
        receipts = []
        for start in range(0, len(jobs), MAX_MANY):
            batch = jobs[start : start + MAX_MANY]
            receipts += queue.enqueue_many(
                NewJob(body=job.payload, key=job.id, priority=job.priority, **options_of(job.entrypoint))
                for job in batch
            )
        added = [receipt.seq for receipt in receipts if receipt.status == "queued"]
        counts = {"added": len(added), "known": len(jobs) - len(added)}
        about: dict[str, Any] = {**audit.shell()._asdict(), "project": queue.project, "queue": queue.name}
        audit.write(ACTION, **about, seqs=added, counts=counts, detail={"hand_over": mark.id}, using=queue.using)
        return counts["added"], counts["known"]


@operation
def _lock(mark: Mark) -> Steps[bool]:
    """Take the lock of a hand-over until the end of the transaction; return whether it was free."""
    number = crc32(mark.id.encode()) - 2**31
    ((free, _),) = yield "try_transaction_lock", {"space": LOCKS, "number": number, "lock_timeout": 0}
    return bool(free)


def _finish(file: File, mark: Mark) -> None:
    for _ in range(TRIES):
        content, version = file.read()
        state = read_state(content)
        if state.done or file.write(state.marked(mark, done=True), version):
            return
    raise StorageError("The jobs were moved, but the file could not be marked as done: run the command again.")


def _check(jobs: Sequence[Job], queue: Queue, in_progress: bool) -> None:
    """Refuse what could not be kept as it is, before anything is changed."""
    limit = payload_limit()
    kept = run(kept_priorities(queue), queue.using)
    for job in jobs:
        check_text(job.id, "the id of a job", MAX_KEY_BYTES)
        tag_of(job.entrypoint)
        if job.priority not in kept:
            raise InvalidOption(
                f"The queue would not keep the priority {job.priority} of job {job.id}: priorities must be from"
                f" {kept[0]} to {kept[-1]}, the queue's priority_order 'asc'. Change it in the file."
            )
        if len(job.payload) > limit:
            raise PayloadTooLarge(
                f"The payload of job {job.id} has more than {limit} bytes. Raise LEASEQUEUE['MAX_PAYLOAD_BYTES']."
            )
    now = clock.now()
    held = [job for job in jobs if job.heartbeat_at is not None and now - job.heartbeat_at < STALE]
    held = [job for job in held if job.status is JobStatus.IN_PROGRESS]
    if held and not in_progress:
        raise InvalidOption(
            f"{len(held)} jobs are in progress: workers told of them within the last five minutes. Stop the workers and"
            " let them finish, or give --in-progress: these jobs are then run once more."
        )


def _same(mark: Mark, queue: Queue) -> None:
    here = (_database(queue), queue.project, queue.name)
    if mark[1:] != here:
        raise InvalidOption(
            f"The jobs of this file go to the queue {mark.queue!r} of project {mark.project!r} in the database"
            f" {mark.database!r} since an earlier call: name that one."
        )


def _database(queue: Queue) -> str:
    return str(connections[queue.using].settings_dict["NAME"])


def _live(state: FileState) -> list[Job]:
    return [job for job in state.jobs if job.status is not JobStatus.DEAD]


def _moved(state: FileState, added: int, known: int, *, before: bool = False) -> Moved:
    jobs = _live(state)
    running = sum(job.status is JobStatus.IN_PROGRESS for job in jobs)
    return Moved(len(jobs), added, known, running, len(state.jobs) - len(jobs), before)
