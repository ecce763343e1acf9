"""The health of a database's queues: the reaper, workers, queues, the lease log, and what deserves attention."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from .. import engine
from ..engine import ConnectionExecutor
from ..engine.limits import WORKER_LEASE
from ..engine.pool import connect
from ..engine.upkeep import partitions
from .leader import LOCK

#: Seconds that a recurring task may be late.
TICK_LATE = 60
#: Seconds after which an open transaction deserves a word: it keeps PostgreSQL from cleaning up.
LONG_TRANSACTION = 900


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
    log: LogStatus
    problems: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            **asdict(self),
            "totals": [each._asdict() for each in self.totals],
            "queues": [each._asdict() for each in self.queues],
        }


def look(using: str, *, project: str = "", size: int = 50) -> ReaperStatus:
    """Look at one database, with short statements on a connection of its own.

    Args:
        using: alias of the database.
        project: the tenant whose queues are shown.
        size: lines of each list at most.
    """
    with connect(using) as connection:
        executor = ConnectionExecutor(connection)
        server = _Server._make(*executor.fetch("server_status", {}))
        leaders = [Leader(pid, address, since) for pid, address, since, _ in executor.fetch("reaper_leader", LOCK)]
        lines = executor.run(engine.list_queues(project=project, size=size))
        counts = executor.run(engine.counts_of([line.name for line in lines], project=project))
        workers = [WorkerLine(*row) for row in executor.fetch("worker_list", {"size": size, "lease": WORKER_LEASE})]
        recurring = [RecurringLine(*row) for row in executor.fetch("recurring_status", {"size": size})]
        log = _log(connection)
        totals = executor.run(engine.totals(size=size))
    leader = leaders[0] if leaders else None
    found = ReaperStatus(
        using,
        server.version,
        leader,
        server.oldest_transaction,
        server.application or None,
        server.job_bytes,
        totals,
        [counts[line.name] for line in lines if line.name in counts],
        workers,
        recurring,
        log,
        [],
    )
    found.problems.extend(_problems(found))
    return found


def _log(connection: partitions.Connection) -> LogStatus:
    layout = partitions.read_layout(connection)
    return LogStatus(
        layout.head,
        len(layout.partitions),
        sum(1 for partition in layout.partitions if partition.low > layout.head),
        sum(partition.bytes for partition in layout.partitions) + layout.default_bytes,
        partitions.default_rows(connection) if layout.default_used else 0,
    )


def _problems(status: ReaperStatus) -> list[str]:
    problems = []
    if status.leader is None:
        problems.append("No reaper leads: start a worker, or 'manage.py runreaper'.")
    silent = [worker.node for worker in status.workers if worker.state == "gone"]
    if silent:
        problems.append(f"Not seen for more than {WORKER_LEASE} s: {', '.join(silent)}.")
    if len(silent) == len(status.workers) and any(queue.ready for queue in status.queues):
        problems.append("Jobs are ready, and no worker has been seen: start 'manage.py runworker'.")
    late = [line.name for line in status.recurring if line.enabled and (line.late or 0) > TICK_LATE]
    if late:
        problems.append(f"Recurring tasks are late: {', '.join(late)}.")
    if status.log.in_default:
        problems.append(
            f"{status.log.in_default} events of the lease log are in its default partition (system check W017)."
        )
    if status.oldest_transaction is not None and status.oldest_transaction > LONG_TRANSACTION:
        problems.append(
            f"A transaction of {status.oldest_application or 'an unnamed client'} is open for"
            f" {status.oldest_transaction:.0f} s: PostgreSQL cannot clean up behind it."
        )
    return problems
