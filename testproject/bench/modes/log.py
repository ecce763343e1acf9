"""Bytes of the lease log on the disk for a job that is enqueued, claimed and acknowledged in batches."""

from __future__ import annotations

from django_leasequeue import engine
from django_leasequeue.engine import Ending, claim, finish
from django_leasequeue.engine.leases.floor import ClaimCursor
from django_leasequeue.enums import EventKind

from ..bench import NODE, Bench, jobs_of
from ..figures import Figure, Target
from ..options import PROJECT

SUMMARY = "bytes on disk of the lease log for a job: enqueue, claim and ack in batches"

#: Jobs of one call.
BATCH = 200


def run(bench: Bench) -> None:
    """Add the figure, with what each kind of event takes of it."""
    bytes_a_job: list[float] = []
    details: dict[str, float] = {}
    jobs = bench.options.size
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: {jobs:,} jobs, round {round_} of {bench.options.rounds}")
        queue = bench.queue()
        info = bench.executor.run(engine.get(queue, project=PROJECT))
        assert info is not None
        since = bench.server_time()
        for start in range(0, jobs, BATCH):
            bench.enqueue(queue, jobs_of(min(BATCH, jobs - start)))
        trail = ClaimCursor()
        while leased := bench.executor.run(claim(queue, NODE, BATCH, project=PROJECT, cursor=trail)):
            endings = [Ending(job.seq, job.token, result_json="null", ran_ms=1) for job in leased]
            bench.executor.run(finish(endings, NODE, project=PROJECT))
        rows = bench.fetch("log_volume", {"queue": info.id, "since": since})
        bytes_a_job.append(sum(row[3] for row in rows) / jobs)
        details = {EventKind(kind).name.lower(): round(size / jobs, 1) for kind, _, _, size in rows}
    bench.add(
        Figure(
            bench.mode,
            f"lease log of a job, enqueued, claimed and finished by {BATCH}",
            "bytes",
            bytes_a_job,
            target=Target("value", at_most=60),
            details=details,
        )
    )
