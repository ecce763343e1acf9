"""The standard duties: those that make jobs ready, and those that tidy the database."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import psycopg

from .. import conf, engine
from ..engine import Operation, arrays, epoch, store
from ..engine.dead.bulkoperation import active_operations, fail_operation, run_batch
from ..engine.jobs.steps import emit_ended, forget_steps, wake_waiting
from ..engine.leases.floor import Proposals
from ..engine.queues import moving, queues, routing, stats
from ..engine.topics import log
from ..enums import FloorKind
from .duty import DutyRun, by_owner

logger = logging.getLogger("django_leasequeue.reaper")

#: Queues of one statement: bounds the transaction.
GROUP = 20
#: Seconds between scans from the beginning: a row may have been added behind the last one.
FULL_SCAN = 60.0
#: Seconds between raises of floors while no job is claimed.
IDLE = 1.0
#: Rows of one statement that deletes; rows of one page of a scan.
BATCH, WALK = 5_000, 1_000
#: The number of newest results that are searched for the heads of queues.
NEWEST_RESULTS = 20_000
#: Seconds after which an object without a job is removed: longer than any upload, shorter than a day.
GRACE = 6 * 3_600.0
#: Statements of one run that search large objects of removed jobs.
PAGES = 10
#: Objects that one run removes: each is a request to the storage.
REMOVED = 100
#: Errors that pass: a row is locked, or the statement takes too long.
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled)


# Duties that make jobs ready


def _in_groups(duty_run: DutyRun, make: Callable[[list[int]], Operation[Any]], rows: Iterable[tuple[Any, ...]]) -> None:
    """Run an operation on the queues of rows in groups, in random order so that a large queue starves no other."""
    ids = [queue_id for queue_id, *_ in rows]
    random.shuffle(ids)
    for start in range(0, len(ids), GROUP):
        _run(duty_run, make, ids[start : start + GROUP])


def _run(duty_run: DutyRun, make: Callable[[list[int]], Operation[Any]], ids: list[int]) -> None:
    """Run an operation on some queues; a busy one stops no other."""
    try:
        duty_run.run(make(ids))
    except _BUSY as error:
        if len(ids) > 1:
            for queue_id in ids:
                _run(duty_run, make, [queue_id])
        else:
            logger.warning("Queue number %s waits for the next run of the duty: %s", ids[0], error)


def sweep(duty_run: DutyRun) -> None:
    """Make the jobs of expired leases ready, in every queue."""
    _in_groups(duty_run, engine.sweep, duty_run.fetch("due_leases"))


def promote(duty_run: DutyRun) -> None:
    """Make due delayed jobs ready, in every queue."""
    _in_groups(duty_run, engine.promote, duty_run.fetch("due_delayed"))


def advance(duty_run: DutyRun) -> None:
    """Admit jobs that limits and workflows held, where claimers are too busy to do it."""
    _in_groups(duty_run, engine.advance, duty_run.fetch("due_turns"))


class Expiry:
    """Removes messages, records and dead jobs past their time; remembers up to when everything is removed.

    Else it would read the same dead index entries again while a long transaction holds vacuum back.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._full_at: float | None = None

    def __call__(self, duty_run: DutyRun) -> None:
        now = engine.clock.elapsing()
        if self._full_at is None or not 0 <= now - self._full_at < FULL_SCAN:
            self._since, self._full_at = None, now
        since, self._since = self._since, None
        (_, scanned_at), *due = duty_run.fetch("due_expired", {"since": since})
        _in_groups(duty_run, engine.expire, due)
        # Reached only without an error.
        self._since = scanned_at


class Floors:
    """Raises the floors: in every run while jobs are claimed, once a second otherwise."""

    def __init__(self) -> None:
        self._proposals = Proposals()
        self._ready: list[tuple[int, int, int, int]] | None = None
        self._idle_since: float | None = None

    def __call__(self, duty_run: DutyRun) -> None:
        now = engine.clock.elapsing()
        if self._idle_since is not None and 0 <= now - self._idle_since < IDLE:
            return
        if self._ready is None:  # the first look only proposes
            duty_run.run(engine.advance_floors(self._proposals))
        seen = duty_run.run(engine.advance_floors(self._proposals))
        ready = [(each.queue_id, each.rank, each.value, each.low) for each in seen if each.kind == FloorKind.READY]
        self._idle_since = now if ready == self._ready else None
        self._ready = ready


def mend_floors(duty_run: DutyRun) -> None:
    """Lower floors above a waiting job, of which there should be none."""
    for floor in duty_run.run(engine.mend_floors()):
        logger.warning(
            "Lowered a floor of queue %r (%s, rank %s), which stood above a waiting row, at %s above %s. Did the"
            " server's clock go back, or another server take over?",
            floor.queue,
            FloorKind(floor.kind).label,
            floor.rank,
            floor.value,
            floor.low,
        )


def operations(duty_run: DutyRun) -> bool:
    """Run batches of the active bulk operations in rotation until the time is over; return whether more wait."""
    waiting = duty_run.run(active_operations())
    while waiting and not duty_run.over:
        waiting = [number for number in waiting if _batch(duty_run, number)]
    return bool(waiting)


def _batch(duty_run: DutyRun, number: int) -> bool:
    """Run a batch; one that the database refuses ends its operation, and no other."""
    try:
        return duty_run.run(run_batch(number))
    except _BUSY as error:
        logger.warning("Bulk operation %s waits for the next run of the duty: %s", number, error)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        logger.exception("Bulk operation %s has failed", number, extra={"operation": number})
        duty_run.run(fail_operation(number, f"The database refused a batch: {error}"))
    return False


class MissedEvents:
    """Wakes waits whose event was emitted, a batch a run: an emit with an old snapshot does not see a new wait."""

    def __init__(self) -> None:
        self._after = ("", "", 0)

    def __call__(self, duty_run: DutyRun) -> None:
        event, project, seq = self._after
        rows = duty_run.fetch("step_waiting", {"event": event, "project": project, "seq": seq, "size": WALK})
        if rows:
            duty_run.run(wake_waiting([seq for *_, seq in rows]))
        self._after = rows[-1] if len(rows) == WALK else ("", "", 0)


def awaited_results(duty_run: DutyRun) -> None:
    """Wake jobs that wait for other jobs, if those have ended."""
    after: tuple[str, str] | None = ("", "")
    while after is not None:
        after = duty_run.run(emit_ended(after, WALK))


# Duties that tidy the database


def expire_results(duty_run: DutyRun) -> None:
    """Remove results past their retention, and their jobs."""
    while duty_run.run(engine.expire_results()) == 1_000:
        pass


def expire_workflows(duty_run: DutyRun) -> None:
    """Remove workflows past their retention."""
    duty_run.run(engine.expire_workflows())


def forget_events(duty_run: DutyRun) -> None:
    """Remove events past their retention."""
    while duty_run.fetch("event_forget", {"size": WALK})[0][0] == WALK:
        pass


def expire_samples(duty_run: DutyRun) -> None:
    """Remove samples past their retention."""
    params = {"days": conf.settings.STAT_RETENTION_DAYS, "size": BATCH}
    while len(duty_run.fetch("stat_expire", params)) == BATCH:
        pass


def expire_workers(duty_run: DutyRun) -> None:
    """Remove the rows of workers that died."""
    params = {"days": conf.settings.WORKER_RETENTION_DAYS, "size": BATCH}
    if gone := duty_run.fetch("worker_expire", params):
        logger.info("Removed workers that were no longer seen: %s", ", ".join(node for (node,) in gone))


def tidy(duty_run: DutyRun) -> None:
    """Remove floors below a higher one, and duplicate ranks."""
    floors = ranks = BATCH
    while BATCH in (floors, ranks):
        ((floors, ranks),) = duty_run.fetch("floor_tidy", {"size": BATCH})


def note_heads(duty_run: DutyRun) -> None:
    """Note the highest number of queues that keep results, before those are removed."""
    duty_run.fetch("heads", {"look": NEWEST_RESULTS})


def note_timeline(duty_run: DutyRun) -> None:
    """Note what a standby that takes over surely has; begin an epoch if the database was restored."""
    if duty_run.run(log.note_timeline()):
        with by_owner("begins an epoch after a restore"):
            epoch.begin(duty_run.connection, duty_run.fence)


def end_moves(duty_run: DutyRun) -> None:
    """Note the moved queues without a job in their old database."""
    if duty_run.alias != conf.settings.DATABASE or not routing.spread():
        return
    for each in moving.end_moves(duty_run.fetch):
        logger.info("Queue %s has left the database %s: no job remains there", each.name, each.source)


#: Looks for jobs of deleted queues, in one of which small rows of deleted queues are removed, too.
ROWS_EVERY = 60


class Census:
    """Two duties with shared state: one samples all queues and finds jobs without one, the other removes those."""

    def __init__(self) -> None:
        self._orphans: set[int] = set()
        self._looks = 0
        #: The queue whose jobs are searched, and the last searched number.
        self._searched: tuple[int, int | None] = (0, None)
        self._estimates: stats.Estimates | None = None
        self._after: int | None = 0

    def sample(self, duty_run: DutyRun) -> bool:
        if self._estimates is None:
            self._estimates = duty_run.run(stats.estimate())
            self._orphans.update(self._estimates.orphans)
            self._after = 0
        while self._after is not None:
            if duty_run.over:
                return True
            self._after = duty_run.run(stats.sample_page(self._estimates, self._after))
        self._estimates = None
        return False

    def clear_up(self, duty_run: DutyRun) -> None:
        # A deletion that was broken off holds slots of limits until its jobs are gone; small rows do no harm.
        rows_too = self._looks % ROWS_EVERY == 0
        self._looks += 1
        if not self._orphans:
            self._orphans.update(queue_id for (queue_id,) in duty_run.fetch("orphan_queues", {"size": 100}))
        while self._orphans:
            rows_too = True
            queue_id = min(self._orphans)
            while duty_run.run(queues.remove_orphans(queue_id)):
                pass
            after = self._searched[1] if self._searched[0] == queue_id else 0
            while after is not None:
                after = duty_run.run(queues.remove_orphan_jobs(queue_id, after))
                self._searched = (queue_id, after)
            self._searched = (0, None)
            self._orphans.discard(queue_id)
            logger.info("Removed the jobs of the deleted queue number %s", queue_id)
        if rows_too:
            duty_run.fetch("orphan_rows")


class UniqueKeys:
    """Scans the table of unique keys, in several runs if it is large."""

    def __init__(self) -> None:
        self._queue, self._key = 0, ""

    def __call__(self, duty_run: DutyRun) -> None:
        while rows := duty_run.fetch("unique_expire", {"queue": self._queue, "key": self._key, "size": WALK}):
            self._queue, self._key, _ = rows[0]
        self._queue, self._key = 0, ""


class JobSteps:
    """Scans the table of steps, in several runs if it is large."""

    def __init__(self) -> None:
        self._after: int | None = 0

    def __call__(self, duty_run: DutyRun) -> None:
        while self._after is not None:
            self._after = duty_run.run(forget_steps(self._after, WALK))
        self._after = 0


class LargeObjects:
    """Scans all large objects, some thousands a run, and starts again at the end.

    An unused object is marked first, so that no job can take it; then it is removed from its storage; then its row is
    deleted. After a crash in between, the next reaper finds the mark. The storage is never listed.
    """

    def __init__(self) -> None:
        #: The last id of the scan, and of the objects that could not be removed.
        self._after = self._behind = 0

    def __call__(self, duty_run: DutyRun) -> bool:
        for _ in range(PAGES):
            ((looked_at, last),) = duty_run.fetch("large_left", {"after": self._after, "size": WALK})
            self._after = last if looked_at == WALK else 0
            if looked_at < WALK:
                break
        rows = duty_run.fetch("large_unused", {"grace": GRACE, "after": self._behind, "size": REMOVED})
        gone = store.remove(rows)
        if gone:
            duty_run.fetch("large_forget", {"ids": arrays.integers(gone)})
        self._behind = max(number for number, *_ in rows) if len(gone) < len(rows) else 0
        return len(gone) == len(rows) >= REMOVED
