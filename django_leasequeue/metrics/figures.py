"""The figures of a database for monitoring, and the one look that reads them: short, bounded statements."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .. import conf, engine
from ..conf.process import Shared, when_forgetting
from ..engine import Counts, arrays
from ..engine.limits import WORKER_LEASE
from ..engine.operation import Steps, operation, steady
from ..engine.queues.stats import counts_by_id
from ..reaper.leader import LOCK

#: Upper ends of the histograms, in milliseconds.
BOUNDS = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
#: Jobs of a queue and a state that are counted for one look; beyond it the newest sample tells.
COUNTED = 1_000
#: Suspended jobs of a kind that are counted.
SUSPENDED = 10_000
#: Workers that are looked at.
WORKERS = 1_000
#: Consumers of the lease log that are looked at.
CONSUMERS = 100


class Histogram(NamedTuple):
    """Times of many jobs: how many lie in each of the ranges that ``BOUNDS`` separates, and their sum in ms."""

    places: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total_ms: int = 0

    def add(self, place: int, count: int, milliseconds: int) -> Histogram:
        """Return the histogram with so many more in one of its ranges."""
        places = tuple(count if at == place else 0 for at in range(len(self.places)))
        return self.together(Histogram(places, milliseconds))

    def together(self, other: Histogram) -> Histogram:
        places = map(sum, zip(self.places, other.places, strict=True))
        return Histogram(tuple(places), self.total_ms + other.total_ms)


class LogCounts(NamedTuple):
    """The events of the lease log since a full hour: (queue id, event) -> jobs, and times by queue id.

    ``snapshot`` names the transactions that were counted (``pg_snapshot``): the next count takes the others.
    """

    since: datetime
    snapshot: str
    events: Mapping[tuple[int, str], int]
    waits: Mapping[int, Histogram]
    runs: Mapping[int, Histogram]


class Ages(NamedTuple):
    """Seconds of the oldest ready job, of the oldest overdue lease, since floors were raised; how many were mended."""

    ready: float | None = None
    overdue: float | None = None
    floor: float | None = None
    mended: int = 0


class Rest(NamedTuple):
    """The sums of the newest samples of the queues that are not shown one by one."""

    queues: int
    ready: int
    delayed: int
    in_flight: int
    dead: int
    records: int
    dead_lettered: int


class Lag(NamedTuple):
    """How far a registered consumer of the lease log, a lake, is behind."""

    consumer: str
    #: Of the whole cluster.
    transactions: int
    seconds: float
    #: Whether retention waits for it no longer.
    given_up: bool


class SuspendedJobs(NamedTuple):
    """The jobs that sleep, or that wait for an event (``kind``): how many, and seconds of the oldest."""

    kind: str
    jobs: int
    oldest: float | None


class DatabaseLook(NamedTuple):
    """One look at a database."""

    queues: Sequence[Counts]
    ages: Mapping[int, Ages]
    rest: Rest
    log: LogCounts
    #: By state; ``gone``: the lease of its row is over.
    workers: Mapping[str, int]
    leader: bool
    horizon: float
    lags: Sequence[Lag]
    suspended: Sequence[SuspendedJobs]


@operation
def look(before: LogCounts | None, most_queues: int) -> Steps[DatabaseLook]:
    """Read the figures of the oldest ``most_queues`` queues, of the others together, of the log since ``before``."""
    found = yield "queue_page", {"after": 0, "size": most_queues}
    ids = [queue_id for queue_id, *_ in found]
    counts = (yield from counts_by_id(ids, cap=COUNTED).steps()) if ids else {}
    rows = (yield "queue_ages", {"queues": arrays.integers(ids)}) if ids else []
    ages = {queue_id: Ages(*figures) for queue_id, *figures in rows}
    ((*rest,),) = yield "queue_rest", {"after": ids[-1] if len(ids) == most_queues else 2**62}
    workers = yield "worker_states", {"size": WORKERS, "lease": WORKER_LEASE}
    leaders = yield "reaper_leader", LOCK
    ((_, horizon, *_),) = yield "server_status", {}
    log, lags = yield from steady(_look_at_log(before), bitmaps=True).steps()
    return DatabaseLook(
        [counts[queue_id] for queue_id in ids if queue_id in counts],
        ages,
        Rest(*rest),
        log,
        dict(workers),
        bool(leaders),
        max(horizon or 0.0, 0.0),
        lags,
        [SuspendedJobs._make(row) for row in (yield "suspended", {"size": SUSPENDED})],
    )


@operation
def _look_at_log(before: LogCounts | None) -> Steps[tuple[LogCounts, list[Lag]]]:
    """Count what the log has beyond an earlier count, and what its consumers have not read."""
    since, snapshot = (None, None) if before is None else (before.since, before.snapshot)
    bounds = arrays.integers(bound + 1 for bound in BOUNDS)
    rows = yield "log_counts", {"since": since, "snapshot": snapshot, "bounds": bounds}
    lags = yield "lake_lag", {"size": CONSUMERS}
    since, snapshot, goes_on, *_ = rows[0]
    base = before if goes_on else None
    events = Counter(base.events if base else {})
    times = {"wait": dict(base.waits if base else {}), "run": dict(base.runs if base else {})}
    # An event, "wait" or "run"; ``None`` where nothing happened.
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
        self._look: DatabaseLook | None = None
        self._at = float("-inf")
        #: The counts of the lease log to go on from.
        self.log: LogCounts | None = None

    def recall(self) -> DatabaseLook | None:
        """Return the last look, unless it is older than ``LEASEQUEUE["METRICS"]["CACHE_SECONDS"]``."""
        fresh = time.monotonic() - self._at < conf.settings.METRICS.CACHE_SECONDS
        return self._look if fresh else None

    def keep(self, found: DatabaseLook) -> DatabaseLook:
        last, now = self.log, found.log
        # Of two that were taken at once one counted less: a counter never goes down within an hour.
        if last is not None and last.since == now.since and sum(last.events.values()) > sum(now.events.values()):
            found = found._replace(log=last)
        self._look, self.log, self._at = found, found.log, time.monotonic()
        return found


_looks: Shared[str, LastLook] = Shared()
when_forgetting(_looks.clear)


def last_look(using: str) -> LastLook:
    """Return what this process knows of a database."""
    return _looks.get(using, lambda _: LastLook())


def look_at(using: str) -> DatabaseLook:
    """Return a look at a database that is no older than ``CACHE_SECONDS``, on Django's connection of this thread."""
    memory = last_look(using)
    return memory.recall() or memory.keep(engine.run(look(memory.log, conf.settings.METRICS.MAX_QUEUES), using=using))
