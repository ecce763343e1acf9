"""A large backlog: claiming from a million waiting jobs as fast as from ten thousand."""

from __future__ import annotations

from statistics import median

from ..bench import Bench, Measurement
from ..drains import bare_drain, drain
from ..figures import Figure, Sample, Target
from ..sql import statement
from .claim import bare, ours

SUMMARY = "claim from a backlog of 1,000,000 as fast as from 10,000"

BATCH = 20

_LABEL = "UPDATE .. SKIP LOCKED, DELETE"


def run(bench: Bench) -> None:
    """Add the figures. The bare table, always small, tells how fast the machine was at the time."""
    bench.start_reaper()
    queue = bench.queue()
    jobs = bench.options.small_backlog // 2
    small, large = bench.options.small_backlog, bench.options.large_backlog
    bench.progress.step(f"{bench.mode}: enqueueing {small:,} jobs")
    bench.fill(queue, small)
    bench.fill_bare(small)
    refilled, bare_refilled = _refilled(bench, queue)
    name = "claim and ack, batches of 20, {:,} waiting"
    few = bench.compare(name.format(small), refilled, bare_refilled, jobs, label=_LABEL)
    few_drained = _drains(bench, queue, small)
    bench.progress.step(f"{bench.mode}: enqueueing {large - small:,} jobs")
    bench.fill(queue, large - small)
    bench.tidy()
    many = bench.compare(name.format(large), refilled, bare_refilled, jobs, label=f"{_LABEL}, {small:,} waiting")
    add_ratio(bench, f"{large:,} waiting", many, few, f"{small:,} waiting")
    many_drained = _drains(bench, queue, large)
    add_ratio(bench, f"runworker, {large:,} waiting", many_drained, few_drained, f"{small:,} waiting")
    bench.add_cost(many_drained, f"CPU of PostgreSQL for a job, runworker, {large:,} waiting", "server_cpu_us", "us")


def _drains(bench: Bench, queue: str, waiting: int) -> Figure:
    """Add the rate of a worker that does some of what waits, beside the bare loop with nothing else in its table."""
    jobs = bench.options.size
    pairs = []
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: runworker, {waiting:,} waiting, round {round_} of {bench.options.rounds}")
        bench.fill(queue, jobs)
        ours = drain(bench, jobs, fill=False, queue=queue, arguments=("--max-jobs", str(jobs)))
        bench.plain.execute(statement("bare_empty"))
        pairs.append((ours, bare_drain(bench, jobs)))
    bench.fill_bare(bench.options.small_backlog)
    return bench.add(
        Figure(
            bench.mode,
            f"runworker, {jobs:,} jobs, {waiting:,} waiting, steady",
            "jobs/s",
            [pair[0].steady_rate for pair in pairs],
            [pair[1].steady_rate for pair in pairs],
            "the barest psycopg loop",
            samples=[pair[0].cost for pair in pairs],
            beside_samples=[pair[1].cost for pair in pairs],
        )
    )


def add_ratio(bench: Bench, name: str, loaded: Figure, free: Figure, label: str) -> None:
    """Add how a rate compares with the same rate without the load, both as shares of the ceiling of their time."""
    assert free.ratio is not None
    bench.add(
        Figure(
            bench.mode,
            f"share of the ceiling, {name}",
            "of it",
            loaded.ratios,
            [median(free.ratios)] * len(loaded.ratios),
            label,
            Target("ratio", at_least=0.95),
        )
    )


def _refilled(bench: Bench, queue: str) -> tuple[Measurement, Measurement]:
    """Return both measurements; what they take is put back, not timed."""
    take, take_bare = ours(bench, queue, BATCH, fill=False), bare(bench, BATCH, fill=False)

    def measure(jobs: int) -> Sample:
        sample = take(jobs)
        bench.fill(queue, jobs)
        return sample

    def measure_bare(jobs: int) -> Sample:
        sample = take_bare(jobs)
        bench.fill_bare(jobs)
        return sample

    return measure, measure_bare
