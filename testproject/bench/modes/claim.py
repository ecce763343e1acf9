"""Claiming and acknowledging in batches of 1, 20 and 200."""

from __future__ import annotations

from typing import Any

from django_leasequeue.engine import Ending, ack, claim, finish
from django_leasequeue.engine.leases.floor import ClaimCursor

from ..bench import NODE, Bench, Measurement
from ..figures import Sample, Target
from ..options import PROJECT

SUMMARY = "claim and acknowledge in batches of 1, 20, 200"

_LABEL = "UPDATE .. SKIP LOCKED, DELETE"
_KEPT_LABEL = "UPDATE .. SKIP LOCKED, DELETE, INSERT"


def run(bench: Bench) -> None:
    """Add a figure for each batch size, and one for batches whose results are kept.

    The first ones are of jobs as topics have them, without a key, since the ceiling's table does not keep keys unique;
    the last one is of jobs with ids, as tasks have them.
    """
    bench.start_reaper()
    size = bench.options.size
    queue = bench.queue(preset="topics")
    for batch, jobs in ((1, bench.options.singles), (20, size // 2), (200, size)):
        bench.compare(
            f"claim and ack, batches of {batch}",
            ours(bench, queue, batch, key=None),
            bare(bench, batch, key=None),
            jobs,
            label=_LABEL,
            target=Target("ratio", at_least=0.5) if batch == 200 else None,
        )
    kept = bench.compare(
        "claim and finish, results kept, batches of 200",
        ours(bench, bench.queue(), 200, keep=True),
        bare(bench, 200, keep=True),
        size,
        label=_KEPT_LABEL,
    )
    # Lease events are written too: this is the whole price of a job behind its enqueue.
    cpu, wal = Target("value", at_most=15), Target("value", at_most=550)
    bench.add_cost(kept, "CPU of PostgreSQL for a job, claimed and finished by 200", "backend_cpu_us", "us", cpu)
    bench.add_cost(kept, "WAL of a job, claimed and finished by 200", "wal_bytes", "bytes", wal)


def ours(bench: Bench, queue: str, batch: int, *, keep: bool = False, fill: bool = True, **fields: Any) -> Measurement:
    """Return the measurement of claiming and settling through the engine.

    Args:
        bench: the run.
        queue: where from.
        batch: jobs of a claim.
        keep: whether to store a result.
        fill: whether to enqueue the jobs first (not timed); the others wait already.
        fields: of the jobs.
    """
    executor = bench.executor

    def measure(jobs: int) -> Sample:
        if fill:
            bench.fill(queue, jobs, **fields)
        left = jobs
        # As a worker does: it starts behind what it has claimed itself.
        trail = ClaimCursor()
        with bench.meter.measure(jobs, executor.connection) as sample:
            while left > 0:
                leased = executor.run(claim(queue, NODE, min(batch, left), project=PROJECT, cursor=trail))
                if not leased:
                    break
                if keep:
                    endings = [Ending(job.seq, job.token, result_json="null") for job in leased]
                    executor.run(finish(endings, NODE, project=PROJECT))
                else:
                    tokens = [job.token for job in leased]
                    executor.run(ack([job.seq for job in leased], NODE, tokens=tokens, project=PROJECT))
                left -= len(leased)
        sample.jobs = jobs - left
        return sample

    return measure


def bare(bench: Bench, batch: int, *, keep: bool = False, fill: bool = True, **fields: Any) -> Measurement:
    """Return the measurement of the same in bare SQL."""
    table = bench.bare
    settle = table.finish if keep else table.ack

    def measure(jobs: int) -> Sample:
        if fill:
            bench.fill_bare(jobs, **fields)
        left = jobs
        with bench.meter.measure(jobs, table.connection) as sample:
            while left > 0:
                rows = table.claim(min(batch, left))
                if not rows:
                    break
                settle(rows)
                left -= len(rows)
        sample.jobs = jobs - left
        return sample

    return measure
