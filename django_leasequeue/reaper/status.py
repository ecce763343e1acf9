"""The health of a database's queues: the reaper, workers, queues, the lease log, and what deserves attention."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import DateTimeField, F, FloatField, Func, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from .. import engine
from ..engine import ConnectionExecutor, clock, partitions
from ..engine.flow.figures import MAX_LIMITS, allows, list_limits
from ..engine.limits import WORKER_LEASE
from ..engine.pool import connect
from ..engine.queues.stats import counts_by_id
from ..models import RecurringTask, Worker
from .concerns import BOUNDS, Bounds, Concern, of_log, of_queue, of_recurring, of_server, of_workers, read_health
from .leader import LOCK

#: Queues that are looked at for what deserves attention.
MOST = 10_000
#: Queues of one statement.
PAGE = 500


@dataclass(frozen=True, slots=True)
class Leader:
    """The reaper that leads: its server process, its address, since when it is connected."""

    pid: int
    address: str
    since: datetime


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker as it said of itself last, ``seen`` seconds ago."""

    node: str
    state: str
    queues: list[str]
    concurrency: int
    running: int
    completed: int
    failed: int
    retried: int
    lost: int
    seen: float


@dataclass(frozen=True, slots=True)
class RecurringLine:
    """A recurring task; ``late`` is how many seconds its next tick is overdue (below 0: not yet)."""

    name: str
    schedule: str
    timezone: str
    enabled: bool
    last_tick_at: datetime | None
    next_tick_at: datetime | None
    late: float | None


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit that jobs wait for, counted up to 1,000; ``taken``: slots of ready and running jobs."""

    name: str
    allows: str
    keys: int
    waiting: int
    taken: int


class _Server(NamedTuple):
    """A row of ``server_status``: the server, its oldest transaction (seconds, process id, application), the jobs."""

    version: str
    oldest_transaction: float | None
    pid: int | None
    application: str | None
    job_bytes: int
    jobs: int


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The lease log: its last number, its partitions, its size, events in the default partition (up to a million)."""

    head: int
    partitions: int
    free: int
    bytes: int
    in_default: int


@dataclass(frozen=True, slots=True)
class ReaperStatus:
    """One look. ``problems`` says in words what deserves attention; ``queues`` are the first by name."""

    database: str
    server: str
    leader: Leader | None
    oldest_transaction: float | None
    oldest_application: str | None
    job_bytes: int
    totals: list[engine.Totals]
    queues: list[engine.Counts]
    workers: list[WorkerLine]
    recurring: list[RecurringLine]
    limits: list[LimitLine]
    log: LogStatus
    problems: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            **asdict(self),
            "totals": [each._asdict() for each in self.totals],
            "queues": [each._asdict() for each in self.queues],
        }


def seconds_since(field: str) -> Func:
    """Return an expression: the seconds since the time in a field, by the engine's clock."""
    now = Coalesce(Value(clock.current(), DateTimeField()), Func(function="clock_timestamp"))
    return Func(
        now,
        F(field),
        template="extract(epoch FROM %(expressions)s)::float8",
        arg_joiner=" - ",
        output_field=FloatField(),
    )


def seen(workers: QuerySet[Worker]) -> QuerySet[Worker]:
    """Return workers, the last seen first, with ``silent`` (seconds since then) and ``gone`` (longer than a lease)."""
    found = workers.annotate(silent=seconds_since("seen_at"))  # type: ignore[no-redef]  # as the model declares it
    return found.annotate(gone=Q(silent__gt=WORKER_LEASE)).order_by("-seen_at")  # type: ignore[no-redef]


def recurring(using: str) -> QuerySet[RecurringTask]:
    """Return the recurring tasks, the next due first, with ``late``: seconds overdue (below 0: not yet)."""
    found = RecurringTask.objects.using(using).annotate(late=seconds_since("next_tick_at"))  # type: ignore[no-redef]
    return found.order_by(F("next_tick_at").asc(nulls_last=True), "name")


def look(using: str, *, project: str = "", size: int = 50, bounds: Bounds = BOUNDS) -> ReaperStatus:
    """Look at one database, with short statements on a connection of its own; each list has at most ``size`` lines.

    The queues of ``project`` are listed; of others too it is said what deserves attention.
    """
    with connect(using) as connection:
        executor = ConnectionExecutor(connection)
        server = _Server._make(*executor.fetch("server_status", {}))
        leaders = [Leader(pid, address, since) for pid, address, since, _ in executor.fetch("reaper_leader", LOCK)]
        lines = executor.run(engine.list_queues(project=project, size=size))
        counts = executor.run(engine.counts_of([line.name for line in lines], project=project))
        workers = [_worker_line(worker) for worker in seen(Worker.objects.using(using))[:size]]
        tasks = [RecurringLine(*row) for row in recurring(using).values_list(*RecurringLine.__annotations__)[:size]]
        limits = executor.run(list_limits(project=project, size=min(size, MAX_LIMITS)))
        waited_for = [limit for limit in limits if limit.waiting]
        log = _log(connection)
        totals = executor.run(engine.totals(size=size))
        problems = [
            *of_server(bool(leaders), server.oldest_transaction, server.pid, server.application or None, bounds),
            *of_workers((worker.node, worker.seen) for worker in workers),
            *of_recurring(((line.name, line.late) for line in tasks if line.enabled), bounds),
            *of_log(log.in_default),
            *_of_queues(executor, bounds),
        ]
    return ReaperStatus(
        using,
        server.version,
        leaders[0] if leaders else None,
        server.oldest_transaction,
        server.application or None,
        server.job_bytes,
        totals,
        [counts[line.name] for line in lines if line.name in counts],
        workers,
        tasks,
        [LimitLine(line.name, allows(line.values), line.keys, line.waiting, line.taken) for line in waited_for],
        log,
        [problem.text for problem in sorted(problems, key=lambda problem: problem.level != "error")],
    )


def _worker_line(worker: Worker) -> WorkerLine:
    state, running = ("gone", 0) if worker.gone else (worker.state, len(worker.running))
    counts = (worker.completed, worker.failed, worker.retried, worker.lost)
    return WorkerLine(worker.node, state, worker.queues, worker.concurrency, running, *counts, worker.silent)


def _log(connection: partitions.Connection) -> LogStatus:
    layout = partitions.read_layout(connection)
    return LogStatus(
        layout.head,
        len(layout.partitions),
        sum(1 for partition in layout.partitions if partition.low > layout.head),
        sum(partition.bytes for partition in layout.partitions) + layout.default_bytes,
        partitions.default_rows(connection) if layout.default_used else 0,
    )


def _of_queues(executor: ConnectionExecutor, bounds: Bounds) -> list[Concern]:
    found: list[Concern] = []
    ids = [0]
    for _ in range(0, MOST, PAGE):
        ids = [queue_id for (queue_id,) in executor.fetch("queue_page", {"after": ids[-1], "size": PAGE})]
        if not ids:
            break
        health = executor.run(read_health(ids, bounds))
        for queue_id, each in executor.run(counts_by_id(ids, cap=1)).items():
            found += of_queue(each, health.get(queue_id), clock.now(), bounds)
    return found
