"""The standard duties: what brings jobs on, and what keeps the database tidy."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from .. import conf, engine
from ..engine import Operation, arrays, store
from ..engine.dead.bulkoperation import active_operations, fail_operation, run_batch
from ..engine.jobs.steps import emit_ended, forget_steps, wake_waiting
from ..engine.leases.floor import Proposals
from ..engine.queues import moving, queues, routing, stats
from ..engine.topics import log
from ..enums import FloorKind

if TYPE_CHECKING:
    from .reaper import Turn

logger = logging.getLogger("django_leasequeue.reaper")

#: Queues of one statement: bounds what one transaction changes.
GROUP = 20
#: A look from the beginning, in case that something came in behind (as with the floors).
FULL_LOOK = timedelta(minutes=1)
#: Between two looks at floors while no job is claimed.
IDLE = timedelta(seconds=1)
#: Rows of one statement that removes; rows of one that walks over a table.
BATCH, WALK = 5_000, 1_000
#: Results of the highest numbers in which the heads of queues are looked for.
NEWEST_RESULTS = 20_000
#: Seconds after which an object that no job got is removed: longer than any upload, shorter than a day.
GRACE = 6 * 3_600.0
#: Statements of one turn that look for large objects of gone jobs.
PAGES = 10
#: Objects that are removed at a time: each is a request to the storage.
REMOVED = 100
#: What passes: others keep a row locked, or it is too much at a time.
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.QueryCanceled)


# What brings jobs on


def _in_groups(turn: Turn, make: Callable[[list[int]], Operation[Any]], rows: Iterable[tuple[Any, ...]]) -> None:
    """Run an operation on the queues of rows, some at a time, each time in another order: a large one starves none."""
    ids = [queue_id for queue_id, *_ in rows]
    random.shuffle(ids)
    for start in range(0, len(ids), GROUP):
        _run(turn, make, ids[start : start + GROUP])


def _run(turn: Turn, make: Callable[[list[int]], Operation[Any]], ids: list[int]) -> None:
    """Run an operation on some queues; one that is busy stops no other."""
    try:
        turn.run(make(ids))
    except _BUSY as error:
        if len(ids) > 1:
            for queue_id in ids:
                _run(turn, make, [queue_id])
        else:
            logger.warning("Queue number %s has to wait for the next turn: %s", ids[0], error)


def sweep(turn: Turn) -> None:
    """Bring back the jobs of expired leases, in every queue that has any."""
    _in_groups(turn, engine.sweep, turn.fetch("due_leases"))


def promote(turn: Turn) -> None:
    """Make due delayed jobs ready, in every queue that has any."""
    _in_groups(turn, engine.promote, turn.fetch("due_delayed"))


def advance(turn: Turn) -> None:
    """Set free what limits and workflows held, where claimers are too busy to do it."""
    _in_groups(turn, engine.advance, turn.fetch("due_turns"))


class Expiry:
    """Removes messages, records and dead jobs past their time; remembers up to when it has removed everything.

    Else it would walk over what is dead in the index again and again while a long transaction holds vacuum back.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._full_at: datetime | None = None

    def __call__(self, turn: Turn) -> None:
        now = engine.clock.now()
        if self._full_at is None or not timedelta(0) <= now - self._full_at < FULL_LOOK:
            self._since, self._full_at = None, now
        since, self._since = self._since, None
        (_, looked_at), *due = turn.fetch("due_expired", {"since": since})
        _in_groups(turn, engine.expire, due)
        # Reached only when nothing is left.
        self._since = looked_at


class Floors:
    """Raises the floors: at every turn while jobs are claimed, once a second otherwise."""

    def __init__(self) -> None:
        self._proposals = Proposals()
        self._ready: list[tuple[int, int, int, int]] | None = None
        self._idle_since: datetime | None = None

    def __call__(self, turn: Turn) -> None:
        now = engine.clock.now()
        if self._idle_since is not None and timedelta(0) <= now - self._idle_since < IDLE:
            return
        seen = turn.run(engine.advance_floors(self._proposals))
        ready = [(each.queue_id, each.rank, each.value, each.low) for each in seen if each.kind == FloorKind.READY]
        self._idle_since = now if ready == self._ready else None
        self._ready = ready


def mend_floors(turn: Turn) -> None:
    """Lower the floors that stand above something that waits: by the rules there are none."""
    for floor in turn.run(engine.mend_floors()):
        logger.warning(
            "A floor of queue %r (%s, rank %s) stood above a waiting row, at %s above %s: lowered. Did the server's"
            " clock go back, or another server take over?",
            floor.queue,
            FloorKind(floor.kind).label,
            floor.rank,
            floor.value,
            floor.low,
        )


def operations(turn: Turn) -> bool:
    """Give each active bulk operation batches, in turn, as long as it may go on; return whether there is more to do."""
    waiting = turn.run(active_operations())
    while waiting and not turn.over:
        waiting = [number for number in waiting if _batch(turn, number)]
    return bool(waiting)


def _batch(turn: Turn, number: int) -> bool:
    """Do a batch; one that the database refuses ends its operation, and stops no other."""
    try:
        return turn.run(run_batch(number))
    except _BUSY as error:
        logger.warning("Bulk operation %s has to wait for the next turn: %s", number, error)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        logger.exception("Bulk operation %s cannot go on", number, extra={"operation": number})
        turn.run(fail_operation(number, f"The database refused a batch: {error}"))
    return False


class MissedEvents:
    """Looks at what waits, a batch a turn: an emit in a transaction with an old snapshot does not see a new wait."""

    def __init__(self) -> None:
        self._after = ("", "", 0)

    def __call__(self, turn: Turn) -> None:
        event, project, seq = self._after
        rows = turn.fetch("step_waiting", {"event": event, "project": project, "seq": seq, "size": WALK})
        if rows:
            turn.run(wake_waiting([seq for *_, seq in rows]))
        self._after = rows[-1] if len(rows) == WALK else ("", "", 0)


def awaited_results(turn: Turn) -> None:
    """Wake the jobs that wait for others that have ended."""
    after: tuple[str, str] | None = ("", "")
    while after is not None:
        after = turn.run(emit_ended(after, WALK))


# What keeps the database tidy


def expire_results(turn: Turn) -> None:
    """Remove results whose retention is over, and their jobs."""
    while turn.run(engine.expire_results()) == 1_000:
        pass


def expire_workflows(turn: Turn) -> None:
    """Forget workflows that ended long ago."""
    turn.run(engine.expire_workflows())


def forget_events(turn: Turn) -> None:
    """Remove the events whose time is over."""
    while turn.fetch("event_forget", {"size": WALK})[0][0] == WALK:
        pass


def expire_samples(turn: Turn) -> None:
    """Remove samples past their retention."""
    params = {"days": conf.settings.STAT_RETENTION_DAYS, "size": BATCH}
    while len(turn.fetch("stat_expire", params)) == BATCH:
        pass


def expire_workers(turn: Turn) -> None:
    """Remove the rows of workers that died."""
    params = {"days": conf.settings.WORKER_RETENTION_DAYS, "size": BATCH}
    if gone := turn.fetch("worker_expire", params):
        logger.info("Workers that were not seen any more: %s", ", ".join(node for (node,) in gone))


def tidy(turn: Turn) -> None:
    """Remove floors that higher ones have followed, and ranks that are there twice."""
    floors = ranks = BATCH
    while BATCH in (floors, ranks):
        ((floors, ranks),) = turn.fetch("floor_tidy", {"size": BATCH})


def note_heads(turn: Turn) -> None:
    """Note the highest number of queues that keep results; with the results it would be forgotten."""
    turn.fetch("heads", {"look": NEWEST_RESULTS})


def note_timeline(turn: Turn) -> None:
    """Note what a standby that takes over cannot have lost: where readers go on whose place it does not know."""
    turn.run(log.note_timeline())


def end_moves(turn: Turn) -> None:
    """Note which moved queues have no job left where they were."""
    if turn.alias != conf.settings.DATABASE or not routing.spread():
        return
    for each in moving.drained(turn.fetch("routes", {"size": routing.MAX_ROUTES})):
        if turn.fetch("route_drained", {"project": each.project, "name": each.name, "after": moving.SETTLED}):
            logger.info("Queue %s has left the database %s: no job is there any more", each.name, each.source)


class Census:
    """Two duties with one memory: one samples all queues, and finds jobs without a queue; the other removes those.

    Both go on where they were when their turn was over.
    """

    def __init__(self) -> None:
        self._orphans: set[int] = set()
        #: The queue whose jobs are looked for, and up to which number that is done.
        self._searched: tuple[int, int | None] = (0, None)
        self._estimates: stats.Estimates | None = None
        self._after: int | None = 0

    def sample(self, turn: Turn) -> bool:
        if self._estimates is None:
            self._estimates = turn.run(stats.estimate())
            self._orphans.update(self._estimates.orphans)
            self._after = 0
        while self._after is not None:
            if turn.over:
                return True
            self._after = turn.run(stats.sample_page(self._estimates, self._after))
        self._estimates = None
        return False

    def clear_up(self, turn: Turn) -> None:
        if not self._orphans:
            turn.fetch("orphan_rows")
            self._orphans.update(queue_id for (queue_id,) in turn.fetch("orphan_queues", {"size": 100}))
        while self._orphans:
            queue_id = min(self._orphans)
            while turn.run(queues.remove_orphans(queue_id)):
                pass
            after = self._searched[1] if self._searched[0] == queue_id else 0
            while after is not None:
                after = turn.run(queues.remove_orphan_jobs(queue_id, after))
                self._searched = (queue_id, after)
            self._searched = (0, None)
            self._orphans.discard(queue_id)
            logger.info("Removed the jobs of queue number %s, which is gone", queue_id)


class UniqueKeys:
    """Walks the table of unique keys from its beginning to its end, in several turns if it is large."""

    def __init__(self) -> None:
        self._queue, self._key = 0, ""

    def __call__(self, turn: Turn) -> None:
        while rows := turn.fetch("unique_expire", {"queue": self._queue, "key": self._key, "size": WALK}):
            self._queue, self._key, _ = rows[0]
        self._queue, self._key = 0, ""


class JobSteps:
    """Walks the table of steps in the same way."""

    def __init__(self) -> None:
        self._after: int | None = 0

    def __call__(self, turn: Turn) -> None:
        while self._after is not None:
            self._after = turn.run(forget_steps(self._after, WALK))
        self._after = 0


class LargeObjects:
    """Walks over all large objects, some thousands a turn, and begins anew at the end.

    An object is marked first, by a statement that no job can overlook; then it is removed from its storage; then it is
    forgotten. A reaper that dies in between leaves it marked, and the next one goes on. Nothing of a storage is listed.
    """

    def __init__(self) -> None:
        #: The last ids of the walk over all objects, and of that over those that could not be removed.
        self._after = self._behind = 0

    def __call__(self, turn: Turn) -> bool:
        for _ in range(PAGES):
            ((looked_at, last),) = turn.fetch("large_left", {"after": self._after, "size": WALK})
            self._after = last if looked_at == WALK else 0
            if looked_at < WALK:
                break
        rows = turn.fetch("large_unused", {"grace": GRACE, "after": self._behind, "size": REMOVED})
        gone = store.remove(rows)
        if gone:
            turn.fetch("large_forget", {"ids": arrays.integers(gone)})
        self._behind = max(number for number, *_ in rows) if len(gone) < len(rows) else 0
        return len(gone) == len(rows) >= REMOVED
