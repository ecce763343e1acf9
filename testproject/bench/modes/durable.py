"""Durable tasks: what a step and an event cost beside the barest INSERT, and what many that sleep cost the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from math import isnan, nan
from typing import Any

import psycopg
from django.db import connections, transaction

from django_leasequeue import engine
from django_leasequeue.engine.jobs.steps import emit
from django_leasequeue.worker import JobControl

from ..bench import NODE, Bench, Measurement, jobs_of
from ..drains import Drain, drain
from ..figures import Figure, Sample, Target
from ..options import PROJECT, STEPS
from ..sql import statement

SUMMARY = "steps and events beside a bare INSERT; jobs of 5 steps; a queue beside 200,000 jobs that sleep or wait"

_LABEL = "INSERT of one row, durable"
_BATCH = 1_000
_DAY_MS = 86_400_000
_TASK = "testproject.bench.tasks.{}"

_numbers = count(1)


def run(bench: Bench) -> None:
    """Add the figures."""
    bench.start_reaper()
    each = bench.options.singles
    bare = _bare(bench, bench.bare.connection, partial(_prepared, bench.bare.connection))
    _compare(bench, "a durable step", _steps(bench, _plain), bare, each, 1.5)
    by_hand = _bare(bench, _django(bench), partial(_in_transaction, bench))
    label = "that INSERT in transaction.atomic()"
    _compare(bench, "an atomic step of an INSERT", _steps(bench, _atomic), by_hand, each, None, label)
    _compare(bench, "emit that nobody waits for", _emits(bench), bare, each, 1.3)
    _jobs(bench, max(100, bench.options.size // 2))
    _beside(bench, bench.options.size * 5)


def _compare(
    bench: Bench, name: str, ours: Measurement, beside: Measurement, each: int, most: float | None, label: str = _LABEL
) -> None:
    """Add the times of one, and what it costs the server's process behind its connection."""
    target = None if most is None else Target("ratio", at_most=most)
    figure = bench.compare(f"{name}, rate", ours, beside, each, label=label)
    times, others = ([1e6 / value for value in side] for side in (figure.values, figure.beside))
    bench.add(Figure(bench.mode, name, "us", times, others, label, target))
    bench.add_cost(figure, f"{name}, CPU of PostgreSQL", "backend_cpu_us", "us", target)
    bench.add_cost(figure, f"{name}, CPU of this process", "client_cpu_us", "us")


def _django(bench: Bench) -> psycopg.Connection[Any]:
    connection = connections[bench.options.using]
    connection.ensure_connection()
    found: psycopg.Connection[Any] = connection.connection
    return found


def _steps(bench: Bench, do: Callable[[Bench, JobControl], None]) -> Measurement:
    """Measure steps of jobs that are leased, as their workers do them: on Django's connection."""

    def measure(steps: int) -> Sample:
        controls = list(_leased(bench, -(-steps // STEPS)))
        with bench.meter.measure(STEPS * len(controls), _django(bench)) as sample:
            for control in controls:
                for _ in range(STEPS):
                    do(bench, control)
        return sample

    return measure


def _leased(bench: Bench, jobs: int) -> Iterator[JobControl]:
    queue = bench.queue(lease_ms=3_600_000)
    bench.fill(queue, jobs)
    while jobs > 0:
        claimed = bench.executor.run(engine.claim(queue, NODE, min(jobs, _BATCH), project=PROJECT))
        jobs -= len(claimed)
        yield from (JobControl(job, NODE, bench.options.using) for job in claimed)


def _plain(bench: Bench, control: JobControl) -> None:
    control.step("step", int)


def _atomic(bench: Bench, control: JobControl) -> None:
    control.step("step", lambda: _insert(bench), atomic=True)


def _insert(bench: Bench) -> None:
    """Insert a row as a host does it by hand, on Django's connection."""
    with connections[bench.options.using].cursor() as cursor:
        cursor.execute(statement("bare_step_insert"), {"job": next(_numbers), "name": "step", "value": "0"})


def _in_transaction(bench: Bench) -> None:
    with transaction.atomic(using=bench.options.using):
        _insert(bench)


def _prepared(connection: psycopg.Connection[Any]) -> None:
    """Insert a row as nothing can be quicker."""
    with psycopg.Cursor(connection) as cursor:
        params = {"job": next(_numbers), "name": "step", "value": "0"}
        cursor.execute(statement("bare_step_insert"), params, prepare=True)


def _bare(bench: Bench, connection: psycopg.Connection[Any], insert: Callable[[], None]) -> Measurement:
    def measure(rows: int) -> Sample:
        with bench.meter.measure(rows, connection) as sample:
            for _ in range(rows):
                insert()
        return sample

    return measure


def _emits(bench: Bench) -> Measurement:
    def measure(events: int) -> Sample:
        with bench.meter.measure(events, _django(bench)) as sample:
            for _ in range(events):
                engine.run(emit(f"event {next(_numbers)}", 0, project=PROJECT), bench.options.using)
        return sample

    return measure


def fill_steps(bench: Bench, queue: str, jobs: int, name: str) -> None:
    """Enqueue calls of ``five_steps`` or ``five_inserts``, each with a number of its own."""
    for first in range(0, jobs, _BATCH):
        part = jobs_of(min(_BATCH, jobs - first), name=_TASK.format(name))
        bench.enqueue(queue, [job._replace(data={"args": [next(_numbers)]}) for job in part])


def _jobs(bench: Bench, jobs: int) -> None:
    """Add the rate of a worker on jobs of several steps, beside one whose jobs insert as many rows by hand."""
    drains: dict[str, list[Drain]] = {"five_steps": [], "five_inserts": []}
    for round_ in range(bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: jobs of {STEPS} steps, round {round_} of {bench.options.rounds}")
        for name, found in drains.items():
            queue, number = bench.queue(), max(100, jobs // 10) if round_ == 0 else jobs  # the first one warms up
            fill_steps(bench, queue, number, name)
            done = drain(bench, number, fill=False, queue=queue)
            if round_:
                found.append(done)
    label = f"the same worker, {STEPS} INSERTs by hand"
    target = Target("ratio", at_least=0.6)
    name = f"jobs of {STEPS} steps on one worker"
    for what, unit, value, aim in (
        ("", "jobs/s", lambda one: one.rate, target),
        (", CPU of the worker", "us", lambda one: one.worker_cpu_us, None),
        (", CPU of PostgreSQL", "us", lambda one: (one.cost.server_cpu or nan) / one.jobs * 1e6, None),
    ):
        ours, beside = ([value(one) for one in found] for found in drains.values())
        if not any(map(isnan, ours + beside)):
            bench.add(Figure(bench.mode, f"{name}{what}", unit, ours, beside, label, aim))


def _beside(bench: Bench, each: int) -> None:
    """Add the rates of a queue, beside as many jobs that sleep and that wait for events, and before there were any."""
    jobs = bench.options.size
    rates: dict[str, list[list[float]]] = {"enqueue": [], "drain": []}
    for suspended in (0, each):
        if suspended:
            _suspend(bench, suspended)
        drain(bench, max(100, jobs // 10))
        found: list[tuple[float, float]] = []
        for round_ in range(1, bench.options.rounds + 1):
            bench.progress.step(f"{bench.mode}: beside {suspended:,}, round {round_} of {bench.options.rounds}")
            queue = bench.queue()
            with bench.meter.measure(jobs) as sample:
                bench.fill(queue, jobs)
            found.append((sample.rate, drain(bench, jobs, fill=False, queue=queue).rate))
        for place, values in enumerate(rates.values()):
            values.append([pair[place] for pair in found])
    for name, (before, after) in rates.items():
        title = f"{name} beside {each:,} sleepers and {each:,} that wait"
        target = Target("ratio", at_least=0.95)
        bench.add(Figure(bench.mode, title, "jobs/s", after, before, "before there were any", target))


def _suspend(bench: Bench, each: int) -> None:
    """Leave jobs as those are that sleep, and that wait for events, for a day."""
    for event in (None, "packed:"):
        bench.progress.step(f"{bench.mode}: putting {each:,} jobs to sleep")
        queue = bench.queue()
        bench.fill(queue, each, delay_ms=_DAY_MS)
        info = bench.executor.run(engine.get(queue, project=PROJECT))
        assert info is not None
        params = {"queue": info.id, "project": PROJECT, "event": event}
        bench.plain.execute(statement("suspend"), params)
    bench.tidy()
