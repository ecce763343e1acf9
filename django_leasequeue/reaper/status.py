"""The status of a database: its queues, workers, recurring tasks, limits, lease log, and problems; that of its lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from .. import engine
from ..engine import ConnectionExecutor, partitions
from ..engine.epoch import above_horizon
from ..engine.flow.figures import MAX_LIMITS, allows, list_limits
from ..engine.jobs.pausing import list_paused
from ..engine.pool import connect
from ..models import LakeConsumer, LakeFigure, LakeSlice, Worker
from ..sql.log_notes import waiting_text
from ..words import TXID_BITS
from .concerns import (
    BOUNDS,
    Bounds,
    Concern,
    of_paused,
    of_queues,
    of_server,
    of_workers,
    recurring,
    recurring_problems,
    seen,
)
from .leader import Leader

#: Queues that are searched for problems.
MOST = 10_000


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """The row of a worker, written ``seen`` seconds ago."""

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
    service: str
    last_error: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit that jobs wait for, counted up to 1,000; ``taken``: slots of ready and running jobs."""

    name: str
    allows: str
    keys: int
    waiting: int
    taken: int


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
    """The status of one moment. ``problems`` are sentences; ``queues`` are the first by name."""

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
        return {
            **asdict(self),
            "leader": self.leader and self.leader._asdict(),
            "totals": [each._asdict() for each in self.totals],
            "queues": [each._asdict() for each in self.queues],
        }


def read_status(using: str, *, project: str = "", size: int = 50, bounds: Bounds = BOUNDS) -> ReaperStatus:
    """Read the status of a database, at most ``size`` lines of each list; problems are those of all projects."""
    with connect(using) as connection:
        executor = ConnectionExecutor(connection)
        ((version, oldest, pid, application, job_bytes, _above),) = executor.fetch("server_status", {})
        leader = Leader.of(executor.fetch("reaper_look", {}))
        above = executor.run(above_horizon())
        lines = executor.run(engine.list_queues(project=project, size=size))
        counts = executor.run(engine.counts_of([line.name for line in lines], project=project))
        workers = list(seen(Worker.objects.using(using))[:size])
        tasks = [RecurringLine(*row) for row in recurring(using).values_list(*RecurringLine.__annotations__)[:size]]
        limits = executor.run(list_limits(project=project, size=min(size, MAX_LIMITS)))
        waited_for = [limit for limit in limits if limit.waiting]
        layout = partitions.read_layout(connection)
        log = LogStatus(
            layout.head,
            len(layout.partitions),
            sum(1 for partition in layout.partitions if partition.low > layout.head),
            sum(partition.bytes for partition in layout.partitions) + layout.default_bytes,
            partitions.default_rows(connection) if layout.default_used else 0,
        )
        totals = executor.run(engine.totals(size=size))
        problems = [
            *of_server(leader, oldest, pid, application or None, above, bounds),
            *of_workers(workers),
            *of_paused(executor.run(list_paused(size=size))),
        ]
        problems += [Concern("error", text) for text in recurring_problems(using, bounds)]
        if log.in_default:
            text = _("{number} events of the lease log are in its default partition (system check W017).")
            problems.append(Concern("warning", text.format(number=log.in_default)))
        of_all = executor.run(of_queues(bounds, MOST))
        problems += of_all
    return ReaperStatus(
        using,
        version,
        leader,
        oldest,
        application or None,
        job_bytes,
        totals,
        [counts[line.name] for line in lines if line.name in counts],
        [_worker_line(worker) for worker in workers],
        tasks,
        [LimitLine(line.name, allows(line.values), line.keys, line.waiting, line.taken) for line in waited_for],
        log,
        [problem.text for problem in sorted(problems, key=lambda problem: problem.level != "error")],
    )


def _worker_line(worker: Worker) -> WorkerLine:
    state, running = ("gone", 0) if worker.gone else (worker.state, len(worker.running))
    counts = (worker.completed, worker.failed, worker.retried, worker.lost)
    return WorkerLine(worker.node, state, worker.queues, worker.concurrency, running, *counts, worker.silent)


def _txid_text(txid: int) -> str:
    epoch, number = txid >> TXID_BITS, txid & (1 << TXID_BITS) - 1
    return f"transaction {number}" + (f" of epoch {epoch}" if epoch else "")


def lake_status(using: str = "default") -> Iterator[str]:
    """Yield the lake's status as lines; a slow writer anywhere in the cluster delays readers by the horizon's age."""
    with connect(using) as connection:
        executor = ConnectionExecutor(connection)
        ((horizon, seconds, application),) = executor.fetch("lake/horizon_age", {})
        above = executor.run(above_horizon())
    if above is not None:
        yield f"WAITING: {waiting_text(above)}"
    yield f"horizon: {_txid_text(horizon)}, {seconds:.1f} s old" + (f" ({application})" if seconds else "")
    now = timezone.now()
    for consumer in LakeConsumer.objects.using(using).order_by("name"):
        state = "GIVEN UP by retention" if consumer.overtaken_at else "at"
        # The count of an earlier epoch is unknown.
        behind = max(0, horizon - 1 - max(consumer.txid, horizon >> TXID_BITS << TXID_BITS))
        seen = f"seen {(now - consumer.seen_at).total_seconds():.0f} s ago"
        yield f"consumer {consumer.name}: {state} {_txid_text(consumer.txid)}, {behind} behind, {seen}"
    slices = LakeSlice.objects.using(using).values("state").annotate(n=Count("pk"), rows=Sum("rows"))
    for row in slices.order_by("state"):
        yield f"archive: {row['n']} slices {row['state']}, {row['rows'] or 0} events"
    newest = LakeFigure.objects.using(using).order_by("-computed_at").first()
    if newest is not None:
        yield f"figures: computed {(now - newest.computed_at).total_seconds():.0f} s ago"
