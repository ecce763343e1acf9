"""Checks of the tables against the lease log, and of the storage of large payloads against the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django.core.files.storage import storages
from django.db import connections

from .. import conf
from ..exceptions import LargeStorageError
from . import arrays, clock, codec, store
from .limits import check_count
from .operation import Statements, operation
from .pool import connect
from .runner import ConnectionExecutor

MEANINGS: dict[str, str] = {
    "lease_without_event": "the job is leased, and the log says nothing of it",
    "lease_without_job": "the log says that the job is leased, and it stands nowhere",
    "lost_job": "the log says that the job waits, and it stands nowhere",
    "ended_job": "the log says that the job has ended, and it still stands somewhere",
    "other_place": "the log and the tables say different places",
    "other_holder": "the log and the claim say different holders, deliveries or deadlines",
    "empty_claim": "a claim without jobs",
    "other_length": "the claim has not as many deliveries as jobs",
    "twice_in_claim": "the claim lists a job twice",
    "other_name": "the claim says that all its jobs have one name, and this one has another",
    "below_floor": "jobs wait below the floor: they are not seen",
    "no_rank": "jobs wait with a rank that the queue does not know: they are not seen",
    "no_queue": "the job's queue is gone",
    "no_place": "the job has no state: no worker will ever claim it",
    "two_places": "the job stands in two places at once",
    "place_without_job": "a place holds a number, and there is no such job",
    "other_queue": "the job's place is of another queue than the job",
    "wrong_type": "a record in a queue, or a job in a log",
    "lost_slot": "the job has a slot of its limit, and is neither ready nor leased",
    "no_member": "the job is marked as one of a limit or a workflow, and none knows it: no limit holds it",
    "no_slot": "the job is ready or leased under a limit of concurrency, and has no slot",
    "too_many_slots": "more jobs of a key have slots than its limit allows: it was lowered, or a slot was given twice",
    "waits_for_nothing": "the job is held, and nothing of its limit or workflow keeps it",
    "held_by_nobody": "the job is held, and no limit or workflow knows it",
    "sequence_behind": "a sequence stands behind numbers that are in use (rows were copied without it): manage.py"
    " leasequeue_restored, --mend, or the statement below sets it forward",
    "other_copy": "what the job's place repeats of the job is not what the job says",
}


class Difference(NamedTuple):
    """One difference between the log and the tables, or within the tables."""

    difference: str
    #: 0 where it is of no job.
    seq: int
    queue_id: int
    queue: str | None
    project: str | None
    #: What the log, the claim, the floor or the job says.
    expected: dict[str, Any]
    #: What its place says.
    found: dict[str, Any]

    @property
    def meaning(self) -> str:
        return MEANINGS[self.difference]


class Verification(NamedTuple):
    """The outcome: ``total`` differences, the first of them, and the range examined."""

    at: datetime
    total: int
    differences: list[Difference]
    jobs_with_events: int
    leases: int
    #: Leases older than the oldest event that was read (retention, or ``since``): nothing is known of their holders.
    unknown: int


@operation
def verify(size: int = 1_000, *, since: datetime | None = None) -> Statements[Verification]:
    """Rebuild the state and holder of every job from the lease log, and compare them with the tables.

    Run it in a transaction of isolation level REPEATABLE READ (``snapshot``), else what happens between its statements
    looks like differences. It reads the log and the tables of jobs as a whole, a few times, and holds back vacuum while
    it runs: an operator's tool, not a monitor's. What does not fit work_mem is hashed on the server's disk.
    """
    size = check_count(size, "size", 100_000, 1)
    ((at, *_),) = yield "verify_snapshot", {}
    (first, *others) = yield "verify_events", {"size": size, "since": since}
    _, total, jobs_with_events, leases, unknown = first
    rows = [*others]
    for name in ("verify_claims", "verify_flow", "verify_floors", "verify_jobs"):
        found = yield name, {"size": size}  # each row begins with how many there are in all
        total += found[0][0] if found else 0
        rows += [row[1:] for row in found]
    behind = yield "sequences_behind", {}
    total += len(behind)
    for sequence, highest, last in behind:
        mend = f"SELECT setval('{sequence}', greatest({highest}, nextval('{sequence}')))"
        expected = {"sequence": sequence, "at_least": highest, "mend": mend}
        rows.append(("sequence_behind", 0, 0, codec.dumps(expected), codec.dumps({"last": last})))
    names = yield "queue_names", {"queues": arrays.integers({queue_id for _, _, queue_id, *_ in rows})}
    known = {queue_id: (name, project) for queue_id, project, name, _ in names}
    differences = [
        Difference(what, seq, queue_id, *known.get(queue_id, (None, None)), codec.loads(expected), codec.loads(told))
        for what, seq, queue_id, expected, told in rows
    ]
    return Verification(at, total, differences, jobs_with_events, int(leases), int(unknown))


@contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[ConnectionExecutor]:
    """Give an executor whose statements all see one instant (REPEATABLE READ, read only)."""
    before = connection.isolation_level, connection.read_only
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    try:
        with connection.transaction():
            yield ConnectionExecutor(connection)
    finally:
        connection.isolation_level, connection.read_only = before


#: Objects that are compared with the tables, and removed, at a time.
STRAYS = 5_000


def find_strays() -> Iterator[list[str]]:
    """Yield the names of objects that no row of any PostgreSQL database of this site names, some at a time.

    A failover, a restore or a truncated table has left them behind. Days are looked at that have been over for a day.
    """
    alias = conf.settings.LARGE.STORAGE
    for day in _days(alias):
        names = _list(alias, day)[1]
        for start in range(0, len(names), STRAYS):
            strays = [f"{day}/{name}" for name in names[start : start + STRAYS]]
            for database in connections:
                if strays and connections[database].vendor == "postgresql":
                    strays = _unnamed_in(database, alias, strays)
            if strays:
                yield strays


def remove_strays(names: Sequence[str]) -> int:
    """Remove objects from the storage; return how many are not there any more."""
    alias = conf.settings.LARGE.STORAGE
    return len(store.remove([(number, alias, name) for number, name in enumerate(names)]))


def _days(alias: str) -> Iterator[str]:
    until = clock.now().date() - timedelta(days=1)
    paths = [store.ROOT]
    for _ in ("year", "month", "day"):
        paths = [f"{path}/{name}" for path in paths for name in sorted(_list(alias, path)[0]) if name.isdecimal()]
    for path in paths:
        year, month, day = map(int, path.split("/")[-3:])
        if date(year, month, day) < until:
            yield path


def _list(alias: str, path: str) -> tuple[list[str], list[str]]:
    try:
        return storages[alias].listdir(path)
    except FileNotFoundError:
        return [], []
    except NotImplementedError as error:
        raise LargeStorageError(
            f"The storage {alias!r} cannot list its objects: look there yourself.", error
        ) from error
    except Exception as error:
        raise store.away_error(alias, "list its objects", error) from error


def _unnamed_in(database: str, alias: str, names: Sequence[str]) -> list[str]:
    try:
        with connect(database) as connection:
            asked = {"storage": alias, "names": arrays.texts(names)}
            return [name for (name,) in ConnectionExecutor(connection).fetch("verify_large", asked)]
    except psycopg.errors.UndefinedTable:  # this app has no tables there
        return list(names)
