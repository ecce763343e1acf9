"""What a mode works with: connections, queues, filling them, and taking a measurement and its ceiling in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob, pool
from django_leasequeue.tasks.results import new_end

from . import children
from .bare import BareQueue
from .figures import Figure, Sample, Target, median_costs
from .measuring import Meter
from .options import PROJECT, BenchOptions
from .progress import Progress
from .sql import statement

#: A measurement: it takes how many jobs to work on, and returns what it measured.
Measurement = Callable[[int], Sample]

#: Jobs of one call that fills a queue.
_FILL = 5_000

NODE = "bench"
NOOP = "testproject.bench.tasks.noop"


class Bench:
    """One run: its options, its progress, its figures.

    Args:
        options: what to do.
        progress: who is told.
        empty: removes all jobs, between modes.
    """

    def __init__(self, options: BenchOptions, progress: Progress, empty: Callable[[], None]) -> None:
        self.options = options
        self.progress = progress
        self.figures: list[Figure] = []
        #: Removes all jobs and gives their space back: what one measurement leaves behind does not slow the next.
        self.vacuum = empty
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self.mode = ""

    @contextmanager
    def run_mode(self, name: str) -> Iterator[None]:
        """Around one mode: its connections end with it, and its jobs are removed."""
        self.mode = name
        try:
            with ExitStack() as self._stack:
                #: With the planner's own choices: for reports, not for hot statements.
                self.plain = self._stack.enter_context(
                    psycopg.connect(**pool.connection_parameters(self.options.using), autocommit=True)
                )
                self.meter = Meter(self.plain)
                self.executor = ConnectionExecutor(self.connect())
                self.bare = BareQueue(self.connect())
                yield
        finally:
            self.progress.step(f"{name}: removing its jobs")
            self.vacuum()

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection as a worker has it; it is closed when the mode ends."""
        return self._stack.enter_context(pool.connect(self.options.using))

    def start_reaper(self) -> None:
        """Let a reaper run until the mode ends, as one does wherever the queue is used without our workers."""
        self._stack.enter_context(children.reaper(self.options.using))

    def queue(self, preset: str = "django", **options: Any) -> str:
        """Make a queue of the benchmark's own, durable unless ``options`` say otherwise; return its name."""
        name = f"{self.mode}-{next(self._numbers)}"
        options.setdefault("durability", "fsync")
        self.executor.run(engine.create(name, project=PROJECT, preset=preset, **options))
        return name

    def fetch(self, name: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement of the benchmark's own and return its rows."""
        return self.plain.execute(statement(name), params).fetchall()

    def tidy(self) -> None:
        """Do after a large fill what autovacuum would do in the middle of a measurement."""
        self.plain.execute(statement("vacuum_jobs"))

    def server_time(self) -> datetime:
        """Return the server's time."""
        found: datetime = self.fetch("server_time")[0][0]
        return found

    @staticmethod
    def patience(jobs: int) -> float:
        """Return how many seconds a process may take for so many jobs before it is given up."""
        return 120 + jobs / 100

    def enqueue(self, queue: str, jobs: list[NewJob]) -> None:
        """Add jobs through the engine, as ``enqueue_many`` of tasks does."""
        self.executor.run(engine.enqueue(queue, jobs, project=PROJECT, create=False, fresh=True))

    def fill(self, queue: str, count: int, **fields: Any) -> None:
        """Add ``count`` jobs to a queue."""
        for part in _parts(count):
            self.enqueue(queue, jobs_of(part, **fields))

    def fill_bare(self, count: int, **fields: Any) -> None:
        """Add ``count`` jobs to the ceiling's table."""
        for part in _parts(count):
            self.bare.enqueue_many(jobs_of(part, **fields))

    def compare(
        self,
        name: str,
        ours: Measurement,
        beside: Measurement,
        jobs: int,
        *,
        label: str,
        target: Target | None = None,
    ) -> Figure:
        """Take a rate and its ceiling in turn, so that what changes on the machine changes both; add the figure.

        Args:
            name: what is measured.
            ours: measures us.
            beside: measures the ceiling.
            jobs: of each measurement; a tenth of it warms both up.
            label: what the ceiling is.
            target: what is to be reached.
        """
        self.progress.step(f"{self.mode}: {name}, warming up")
        for measurement in (ours, beside):
            measurement(max(1, jobs // 10))
        pairs: list[tuple[Sample, Sample]] = []
        for round_ in range(1, self.options.rounds + 1):
            self.progress.step(f"{self.mode}: {name}, round {round_} of {self.options.rounds}")
            pairs.append((ours(jobs), beside(jobs)))
        samples, ceilings = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        figure = Figure(
            self.mode,
            name,
            "jobs/s",
            [sample.rate for sample in samples],
            [sample.rate for sample in ceilings],
            label,
            target,
            median_costs(samples),
            median_costs(ceilings),
            samples=samples,
            beside_samples=ceilings,
        )
        return self.add(figure)

    def add_cost(self, of: Figure, name: str, cost: str, unit: str, target: Target | None = None) -> None:
        """Add what one job of a compared figure cost, round by round; nothing where that could not be read.

        Args:
            of: the figure, from ``compare``.
            name: what is told.
            cost: name of the cost, see ``Sample.costs``.
            unit: of the cost.
            target: what is to be reached.
        """
        ours, beside = ([sample.costs()[cost] for sample in side] for side in (of.samples, of.beside_samples))
        known = [(one, other) for one, other in zip(ours, beside, strict=True) if one is not None and other is not None]
        if known:
            values, others = [one for one, _ in known], [other for _, other in known]
            self.add(Figure(self.mode, name, unit, values, others, of.label, target))

    def add(self, figure: Figure) -> Figure:
        """Put a figure into the report."""
        self.figures.append(figure)
        return figure


async def close_connections() -> None:
    """Close what coroutines used: the event loop's pools, or the connection of the thread that worked for it."""
    await pool.close_pools()
    if pool.in_thread():
        await sync_to_async(connections.close_all)()


def _parts(count: int) -> Iterator[int]:
    while count > 0:
        yield min(count, _FILL)
        count -= _FILL


def jobs_of(count: int, **fields: Any) -> list[NewJob]:
    """Return jobs as calls of a Django task become them: a random key, the task's name, its arguments.

    Args:
        count: how many.
        fields: further fields of ``NewJob``.
    """
    return [NewJob(**{"id_end": new_end(), "name": NOOP, "data": {"args": [n]}, **fields}) for n in range(count)]
