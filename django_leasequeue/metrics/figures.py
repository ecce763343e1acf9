"""The figures of a database for monitoring, read by short, bounded statements."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .. import conf, engine
from ..conf.process import Shared, when_forgetting
from ..engine import Counts, arrays
from ..engine.epoch import above_horizon
from ..engine.limits import WORKER_LEASE
from ..engine.operation import Statements, operation, steady
from ..engine.queues.stats import counts_by_id
from ..reaper.leader import Leader

#: Upper ends of the histograms, in milliseconds.
BOUNDS = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
#: Jobs of a queue and a state that are counted exactly; beyond it the newest sample counts.
COUNTED = 1_000
#: Suspended jobs of a kind, and jobs of paused tasks, that are counted.
SUSPENDED = 10_000
#: Workers, and consumers of the lease log, that are read.
WORKERS, CONSUMERS = 1_000, 100


class Histogram(NamedTuple):
    """Times of many jobs: counts by the ranges between ``BOUNDS``, and the sum in ms."""

    places: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total_ms: int = 0

    def add(self, place: int, count: int, milliseconds: int) -> Histogram:
        """Return the histogram with ``count`` more in one range."""
        places = tuple(count if at == place else 0 for at in range(len(self.places)))
        return self.together(Histogram(places, milliseconds))

    def together(self, other: Histogram) -> Histogram:
        places = map(sum, zip(self.places, other.places, strict=True))
        return Histogram(tuple(places), self.total_ms + other.total_ms)


class LogCounts(NamedTuple):
    """The events of the lease log since a full hour: (queue id, event) -> jobs, and times by queue id.

    ``snapshot`` is the epoch and the counted transactions (``pg_snapshot``): the next count adds the others.
    """

    since: datetime
    snapshot: str
    events: Mapping[tuple[int, str], int]
    waits: Mapping[int, Histogram]
    runs: Mapping[int, Histogram]


class Ages(NamedTuple):
    """Ages in seconds of the oldest ready job, the oldest overdue lease, the last raise of floors; mended floors."""

    ready: float | None = None
    overdue: float | None = None
    floor: float | None = None
    mended: int = 0


class Rest(NamedTuple):
    """The sums of the newest samples of all further queues."""

    queues: int
    ready: int
    delayed: int
    in_flight: int
    dead: int
    records: int
    dead_lettered: int


class Lag(NamedTuple):
    """The lag of a registered consumer of the lease log, a lake."""

    consumer: str
    #: Of the whole cluster.
    transactions: int
    seconds: float
    #: Whether retention has stopped waiting for it.
    given_up: bool


class SuspendedJobs(NamedTuple):
    """Suspended jobs of a project and ``kind`` (asleep, or waiting for an event): their number, age of the oldest."""

    project: str
    kind: str
    jobs: int
    oldest: float


class Paused(NamedTuple):
    """The paused tasks of a project, and their jobs that workers gave back."""

    project: str
    tasks: int
    jobs: int


class DatabaseFigures(NamedTuple):
    """The figures of a database at one moment."""

    queues: Sequence[Counts]
    ages: Mapping[int, Ages]
    rest: Rest
    log: LogCounts
    #: By project and state; ``gone``: its row has expired.
    workers: Mapping[tuple[str, str], int]
    leader: Leader | None
    horizon: float
    #: Rows of the lease log that readers cannot reach until an epoch begins.
    above: int
    lags: Sequence[Lag]
    suspended: Sequence[SuspendedJobs]
    paused: Sequence[Paused]


@operation
def look(before: LogCounts | None, most_queues: int) -> Statements[DatabaseFigures]:
    """Read the figures of the oldest ``most_queues`` queues, of the others together, of the log since ``before``."""
    found = yield "queue_page", {"after": 0, "size": most_queues}
    ids = [queue_id for queue_id, *_ in found]
    counts = (yield from counts_by_id(ids, cap=COUNTED)) if ids else {}
    rows = (yield "queue_ages", {"queues": arrays.integers(ids)}) if ids else []
    ages = {queue_id: Ages(*figures) for queue_id, *figures in rows}
    ((*rest,),) = yield "queue_rest", {"after": ids[-1] if len(ids) == most_queues else 2**62}
    workers = yield "worker_states", {"size": WORKERS, "lease": WORKER_LEASE}
    leader = Leader.of((yield "reaper_look", {}))
    ((_, horizon, *_),) = yield "server_status", {}
    above = yield from above_horizon()
    log, lags = yield from steady(_read_log(before), bitmaps=True)
    return DatabaseFigures(
        [counts[queue_id] for queue_id in ids if queue_id in counts],
        ages,
        Rest(*rest),
        log,
        {(project, state): count for project, state, count in workers},
        leader,
        max(horizon or 0.0, 0.0),
        above or 0,
        lags,
        [SuspendedJobs._make(row) for row in (yield "suspended", {"size": SUSPENDED})],
        [Paused._make(row) for row in (yield "paused", {"size": SUSPENDED})],
    )


@operation
def _read_log(before: LogCounts | None) -> Statements[tuple[LogCounts, list[Lag]]]:
    """Count the log's events beyond an earlier count, and the unread ones of its consumers."""
    since, snapshot = (None, None) if before is None else (before.since, before.snapshot)
    bounds = arrays.integers(bound + 1 for bound in BOUNDS)
    rows = yield "log_counts", {"since": since, "snapshot": snapshot, "bounds": bounds}
    lags = yield "lake_lag", {"size": CONSUMERS}
    since, snapshot, goes_on, *_ = rows[0]
    base = before if goes_on else None
    events = Counter(base.events if base else {})
    times = {"wait": dict(base.waits if base else {}), "run": dict(base.runs if base else {})}
    # ``what``: an event, "wait" or "run"; ``None`` without events.
    for *_, queue_id, what, place, jobs, milliseconds in rows:
        if what in times:
            times[what][queue_id] = times[what].get(queue_id, Histogram()).add(place, jobs, milliseconds)
        elif what is not None:
            events[queue_id, what] += jobs
    log = LogCounts(since, snapshot, events, times["wait"], times["run"])
    return log, [Lag._make(row) for row in lags]


class LastLook:
    """The last look at one database. Used from any thread and event loop."""

    def __init__(self) -> None:
        self._look: DatabaseFigures | None = None
        self._at = float("-inf")
        #: The counts of the lease log to go on from.
        self.log: LogCounts | None = None

    def recall(self) -> DatabaseFigures | None:
        """Return the last look, unless it is older than ``LEASEQUEUE["METRICS"]["CACHE_SECONDS"]``."""
        fresh = time.monotonic() - self._at < conf.settings.METRICS.CACHE_SECONDS
        return self._look if fresh else None

    def keep(self, found: DatabaseFigures) -> DatabaseFigures:
        last, now = self.log, found.log
        # Of two concurrent counts keep the higher one: a counter never falls within an hour.
        if last is not None and last.since == now.since and sum(last.events.values()) > sum(now.events.values()):
            found = found._replace(log=last)
        self._look, self.log, self._at = found, found.log, time.monotonic()
        return found


_looks: Shared[str, LastLook] = Shared()
when_forgetting(_looks.clear)


def last_look(using: str) -> LastLook:
    """Return what this process knows of a database."""
    return _looks.get(using, lambda _: LastLook())


def look_at(using: str) -> DatabaseFigures:
    """Return a look at a database that is no older than ``CACHE_SECONDS``, on Django's connection of this thread."""
    memory = last_look(using)
    return memory.recall() or memory.keep(engine.run(look(memory.log, conf.settings.METRICS.MAX_QUEUES), using=using))
