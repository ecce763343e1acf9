"""A made-up history of jobs, written into the lease log: what the lake is demonstrated and measured with.

A week of three queues that workers serve in a simulation: the day's rhythm, one busy hour in which a backlog builds up
and drains, a node that falls ill half way (slow, failing, losing leases), jobs that fail on every node until they are
dead. Every job ends. By default workers take one job at a time: each row of the log is of one job, the dearest to
read. With ``together`` jobs come, are claimed and end so many at a time, as where calls and claims are of batches.
The jobs themselves are not in the job table: only their events are.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, partitions, pool
from django_leasequeue.enums import EventKind
from django_leasequeue.sql import statement

PROJECT = "leasequeue-history"
QUEUES = {"mail": ("mail.send", 1.0), "images": ("images.resize", 2.5), "reports": ("reports.build", 6.0)}
NODES = tuple(f"worker-{number}" for number in range(1, 9))
SICK, BUSY_HOUR = "worker-3", 98
#: Mean run time, seconds, and the part of the busy hour in which its jobs come.
RUN, BURST = 8.0, 0.25
DAYS = 7
LEASE, TRIES = 30.0, 5
#: Share of jobs that no node can do.
POISON = 0.002
POISON_ERROR = ("PIL.UnidentifiedImageError", "f-cannot-identify-image")
SICK_ERROR = ("OSError", "f-no-space-left-on-device")
#: Events of one transaction.
BATCH = 200_000
_NULL = "\\N"


class Event(NamedTuple):
    """One event of the history; times are seconds from its beginning."""

    at: float
    job: int
    kind: EventKind
    node: str | None
    attempt: int
    claim: int
    deadline: float | None
    waited: float | None = None
    ran: float | None = None
    detail: str | None = None


@dataclass
class Job:
    """A job of the simulation."""

    number: int
    queue: str
    enqueued: float
    poisoned: bool
    attempt: int = 0


@dataclass
class Simulation:
    """Workers that serve a week of jobs, first come first served.

    Args:
        jobs: how many.
        seed: of the random numbers.
    """

    jobs: int
    seed: int = 7
    claims: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.seconds = DAYS * 86_400.0
        mean = sum(weight for _, weight in QUEUES.values()) / len(QUEUES)
        # Half of the slots are busy on average, or fewer where one a node is more than that.
        self._slots = max(1, round(2 * self.jobs * RUN / self.seconds / len(NODES)))
        self._scale = min(0.5 * self._slots * len(NODES) * self.seconds / max(self.jobs, 1), RUN) / mean
        self._capacity = self._slots * len(NODES) * 3_600 / (self._scale * mean)

    def arrivals(self) -> Iterator[float]:
        """Yield the times of arrival: hours by their weight, evenly at random within an hour."""
        weights = [1 + 0.6 * math.sin((hour % 24 - 8) / 24 * 2 * math.pi) for hour in range(DAYS * 24)]
        # More than the workers can do while it lasts, also where a small history leaves them idle otherwise.
        busy = min(0.2 * self.jobs, max(6 * self.jobs / len(weights), 0.6 * self._capacity))
        weights[BUSY_HOUR] = 0
        weights[BUSY_HOUR] = sum(weights) * busy / (self.jobs - busy)
        total, left = sum(weights), self.jobs
        for hour, weight in enumerate(weights):
            count = left if hour == len(weights) - 1 else min(left, round(self.jobs * weight / total))
            left -= count
            part = BURST if hour == BUSY_HOUR else 1
            yield from sorted(3_600 * (hour + part * self._random.random()) for _ in range(count))

    def events(self) -> Iterator[Event]:
        """Yield the events, each job's in order of time."""
        free = [(0.0, node) for node in NODES for _ in range(self._slots)]
        heapq.heapify(free)
        retries: list[tuple[float, int, Job]] = []
        names = tuple(QUEUES)
        for number, at in enumerate(self.arrivals()):
            while retries and retries[0][0] <= at:
                ready, _, again = heapq.heappop(retries)
                yield from self._attempt(again, ready, free, retries)
            queue = names[number % len(names)]
            job = Job(number, queue, at, queue == "images" and self._random.random() < POISON * len(names))
            yield Event(at, number, EventKind.ENQUEUED, None, 0, 0, None)
            yield from self._attempt(job, at, free, retries)
        while retries:
            ready, _, again = heapq.heappop(retries)
            yield from self._attempt(again, ready, free, retries)

    def _attempt(
        self, job: Job, ready: float, free: list[tuple[float, str]], retries: list[tuple[float, int, Job]]
    ) -> Iterator[Event]:
        at, node = heapq.heappop(free)
        begin = max(at, ready) + 0.005
        job.attempt += 1
        self.claims += 1
        claim = self.claims
        ill = node == SICK and begin > self.seconds / 2
        run = QUEUES[job.queue][1] * self._scale * self._random.lognormvariate(-0.125, 0.5) * (3 if ill else 1)
        run = min(run, LEASE * 0.95)
        lost = ill and self._random.random() < 0.1
        failed = job.poisoned or lost or self._random.random() < (0.3 if ill else 0.004)
        end = begin + (LEASE + 1 if lost else run)
        heapq.heappush(free, (end, node))
        yield Event(begin, job.number, EventKind.CLAIMED, node, job.attempt, claim, begin + LEASE, begin - ready)

        def ended(kind: EventKind, detail: dict[str, str] | None = None) -> Event:
            text = None if detail is None else json.dumps(detail)
            ran = end - begin if kind in {EventKind.ACKED, EventKind.RELEASED} else None
            return Event(end, job.number, kind, node, job.attempt, claim, begin + LEASE, None, ran, text)

        if not failed:
            yield ended(EventKind.ACKED)
            return
        kind, fingerprint = ("LEASE_EXPIRED", "lease_expired") if lost else POISON_ERROR if job.poisoned else SICK_ERROR
        told = {"error_type": kind, "fingerprint": fingerprint}
        yield ended(EventKind.EXPIRED if lost else EventKind.RELEASED, None if lost else told)
        if job.attempt >= TRIES:
            yield ended(EventKind.DEAD_LETTERED, told)
        else:
            heapq.heappush(retries, (end, job.number, job))


def write(
    count: int,
    *,
    using: str = "default",
    until: datetime | None = None,
    together: int = 1,
    tell: Callable[[int], None] = lambda written: None,
) -> int:
    """Write a history of about ``count`` events that ends now (or at ``until``).

    Args:
        count: events wanted; whole jobs are written, about three events each.
        using: alias of the database.
        until: when the history ends.
        together: jobs that come, are claimed and end at once: events of one row, at most 1,000.
        tell: called with the number of events after each transaction.

    Returns:
        How many events were written.
    """
    simulation = Simulation(max(1, round(count / 3.06 / together)))
    begin = (until or datetime.now(UTC)) - timedelta(seconds=simulation.seconds)
    written = 0
    with pool.connect(using) as connection:
        executor = ConnectionExecutor(connection)
        ids = {}
        for name in QUEUES:
            executor.run(engine.create(name, project=PROJECT, preset="django", max_deliveries=TRIES))
            ids[name] = executor.run(engine.get(name, project=PROJECT)).id  # type: ignore[union-attr]
        writer = _Writer(connection, begin, list(ids.values()), together)
        batch: list[Event] = []
        for event in simulation.events():
            batch.append(event)
            if len(batch) * together >= BATCH:
                written += writer.write(batch)
                batch = []
                tell(written)
        written += writer.write(batch)
        tell(written)
        connection.execute(sql.SQL(statement("lake/events_analyze")))
    return written


class _Writer:
    """Writes batches of events through COPY, each in a transaction (and with a transaction id) of its own."""

    def __init__(self, connection: psycopg.Connection[Any], begin: datetime, queues: list[int], together: int) -> None:
        self._connection, self._begin, self._queues, self._together = connection, begin, queues, together
        self._seqs: list[int] = []
        self._tasks = [task for task, _ in QUEUES.values()]

    def write(self, batch: list[Event]) -> int:
        """Write events in order of time."""
        if not batch:
            return 0
        partitions.maintain(self._connection)
        batch.sort(key=lambda event: event.at)
        fresh = sum(1 for event in batch if event.kind is EventKind.ENQUEUED)
        rows = ConnectionExecutor(self._connection).fetch("lake/events_numbers", {"size": fresh * self._together})
        self._seqs.extend(rows[0][0])
        copying = statement("lake/events_copy")
        with self._connection.transaction(), self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for start in range(0, len(batch), 5_000):
                copy.write("".join(map(self._line, batch[start : start + 5_000])))
        return len(batch) * self._together

    def _line(self, event: Event) -> str:
        kind, count = event.job % len(self._queues), self._together
        seqs = self._seqs[event.job * count : (event.job + 1) * count]
        deadline = _NULL if event.deadline is None else self._time(event.deadline)
        return (
            f"{self._time(event.at)}\t{self._queues[kind]}\t{event.claim or _NULL}\t{deadline}\t{seqs[0]}\t{seqs[-1]}\t"
            f"{event.kind:d}\t{event.node or _NULL}\t{self._tasks[kind]}\t{{{','.join(map(str, seqs))}}}\t"
            f"{_each(event.attempt if event.attempt > 1 else None, count)}\t"
            f"{_ms(event.waited, count)}\t{_ms(event.ran, count)}\t"
            f"{event.detail or _NULL}\n"
        )

    def _time(self, second: float) -> str:
        return (self._begin + timedelta(seconds=second)).isoformat()


def _each(value: int | None, count: int) -> str:
    """Return an array of the same number for each job in COPY's text."""
    return _NULL if value is None else "{" + ",".join([str(value)] * count) + "}"


def _ms(seconds: float | None, count: int) -> str:
    return _NULL if seconds is None else _each(round(seconds * 1000), count)
