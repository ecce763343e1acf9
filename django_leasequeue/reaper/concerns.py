"""What an operator on call should know of a database: how its queues do, what deserves attention, what to do then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import DateTimeField, F, FloatField, Func, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from .. import engine
from ..engine import ConnectionExecutor, arrays, clock, partitions
from ..engine.clock import span
from ..engine.flow.figures import MAX_LIMITS, allows, list_limits
from ..engine.limits import WORKER_LEASE
from ..engine.operation import Steps, operation
from ..engine.pool import connect
from ..engine.queues.stats import Counts, counts_by_id
from ..models import RecurringTask, Worker
from .leader import LOCK

#: Queues that are looked at for what deserves attention.
MOST = 10_000
#: Queues of one statement.
PAGE = 500


class Bounds(NamedTuple):
    """Seconds after which a ready job, a lease, a late recurring task or an open transaction deserves a word."""

    waiting: int = 1_800
    lease: int = 6 * 3_600
    late: int = 60
    transaction: int = 900


BOUNDS = Bounds()


class Concern(NamedTuple):
    """A warning: ``level`` is ``warning`` or ``error``; ``queue_id`` and ``seq`` say what to look at."""

    level: str
    text: str
    queue_id: int | None = None
    queue: str = ""
    seq: int | None = None


class Health(NamedTuple):
    """What may be wrong with a queue: ``waiting`` sessions listen, its oldest ready job is ``ready`` seconds old."""

    queue_id: int
    workers: int
    waiting: int
    overdue: datetime | None
    overdue_seq: int | None
    old: datetime | None
    old_seq: int | None
    old_node: str | None
    floor_since: datetime | None
    ready: float | None


@operation
def read_health(queue_ids: Sequence[int], bounds: Bounds = BOUNDS) -> Steps[dict[int, Health]]:
    """Read what may be wrong with queues, by id."""
    ids = arrays.integers(queue_ids)
    rows = yield "queue_health", {"queues": ids, "silent": WORKER_LEASE, "old": bounds.lease}
    ready = {queue_id: age for queue_id, age, *_ in (yield "queue_ages", {"queues": ids})}
    return {row[0]: Health._make((*row, ready.get(row[0]))) for row in rows}


def of_server(
    leads: bool, age: float | None, pid: int | None, application: str | None, bounds: Bounds = BOUNDS
) -> list[Concern]:
    """Return what is wrong with the reaper or the database, whose oldest transaction is ``age`` seconds old."""
    found = []
    if not leads:
        text = "No reaper leads: nothing sweeps, samples or carries out operations."
        found.append(Concern("error", f"{text} Start a worker or 'manage.py runreaper'."))
    if age is not None and age > bounds.transaction:
        text = (
            f"A transaction of {application or 'an unnamed client'} (pid {pid}) is open for {span(age)}: PostgreSQL"
            f" cannot clean up behind it, and floors wait for it. End it, or SELECT pg_terminate_backend({pid})."
        )
        found.append(Concern("warning", text))
    return found


def of_queue(counts: Counts, health: Health | None, now: datetime, bounds: Bounds = BOUNDS) -> list[Concern]:
    """Return what is wrong with a queue."""
    name = f"{counts.project}/{counts.queue}" if counts.project else counts.queue
    found: list[Concern] = []

    def say(level: str, text: str, seq: int | None = None) -> None:
        found.append(Concern(level, text, counts.queue_id, counts.queue, seq))

    if counts.paused_at is not None:
        say("warning", f"{name} is paused since {span(now - counts.paused_at)}: nothing is claimed from it.")
    if health is None:
        return found
    if counts.type == "queue" and counts.ready and not (health.workers or health.waiting or counts.in_flight):
        start = f"Start 'manage.py runworker --queues {counts.queue}'."
        say("error", f"No worker listens to {name}, and jobs are ready. {start}")
    elif health.ready is not None and health.ready > bounds.waiting and counts.paused_at is None:
        say(
            "error",
            f"Jobs of {name} have been ready for {span(health.ready)}: its workers do not keep up. Start more of them,"
            " or look at what they run.",
        )
    if health.overdue is not None:
        over = f"A lease of {name} is over since {span(now - health.overdue)} and was not swept"
        say("error", f"{over}: is a reaper running?", health.overdue_seq)
    if health.old is not None:
        old = f"A lease of {name} is {span(now - health.old)} old, held by {health.old_node}"
        say("warning", f"{old}: is the job stuck?", health.old_seq)
    if health.floor_since is not None:
        say(
            "warning",
            f"A floor of {name} could not move since {span(now - health.floor_since)}: a long transaction holds it, and"
            " claims walk over dead entries.",
        )
    return found


def of_workers(silent: Iterable[tuple[str, float]]) -> list[Concern]:
    """Return the workers that are gone without a goodbye, of those with how many seconds ago each was seen."""
    gone = [(node, seconds) for node, seconds in silent if seconds > WORKER_LEASE]
    return [Concern("warning", f"Worker {node} was not seen for {span(seconds)}.") for node, seconds in gone[:20]]


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
        ((version, oldest, pid, application, job_bytes, _),) = executor.fetch("server_status", {})
        leaders = [Leader(pid, address, since) for pid, address, since, _ in executor.fetch("reaper_leader", LOCK)]
        lines = executor.run(engine.list_queues(project=project, size=size))
        counts = executor.run(engine.counts_of([line.name for line in lines], project=project))
        workers = [_worker_line(worker) for worker in seen(Worker.objects.using(using))[:size]]
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
            *of_server(bool(leaders), oldest, pid, application or None, bounds),
            *of_workers((worker.node, worker.seen) for worker in workers),
        ]
        if late := [line.name for line in tasks if line.enabled and (line.late or 0) > bounds.late]:
            problems.append(Concern("error", f"Recurring tasks are late: {', '.join(late)}."))
        if log.in_default:
            text = f"{log.in_default} events of the lease log are in its default partition (system check W017)."
            problems.append(Concern("warning", text))
        problems += _of_queues(executor, bounds)
    return ReaperStatus(
        using,
        version,
        leaders[0] if leaders else None,
        oldest,
        application or None,
        job_bytes,
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
