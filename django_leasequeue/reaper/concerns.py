"""What an operator on call should know of queues or of the database, and what to do: for the command and the admin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from ..engine import arrays
from ..engine.clock import span
from ..engine.limits import WORKER_LEASE
from ..engine.operation import Steps, operation
from ..engine.queues.stats import Counts


class Bounds(NamedTuple):
    """Seconds after which something deserves a word.

    ``waiting``: that the oldest ready job of a queue has been ready; ``lease``: that a lease has been held; ``late``:
    that a recurring task is overdue; ``transaction``: that a transaction has been open, which keeps PostgreSQL from
    cleaning up.
    """

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


def of_recurring(late: Iterable[tuple[str, float | None]], bounds: Bounds = BOUNDS) -> list[Concern]:
    """Return the recurring tasks that are late, of those with how many seconds each is."""
    names = [name for name, seconds in late if (seconds or 0) > bounds.late]
    return [Concern("error", f"Recurring tasks are late: {', '.join(names)}.")] if names else []


def of_log(in_default: int) -> list[Concern]:
    """Return what is wrong with the lease log, of which so many events are in the default partition."""
    text = f"{in_default} events of the lease log are in its default partition (system check W017)."
    return [Concern("warning", text)] if in_default else []
