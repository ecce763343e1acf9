"""Enqueueing a job that is there already."""

from __future__ import annotations

from uuid import uuid4

from django_leasequeue import engine

from ..bench import Bench, Measurement
from ..figures import Sample, Target
from ..options import PROJECT

SUMMARY = "enqueue of a key that is taken costs no more than of a fresh one"


def run(bench: Bench) -> None:
    """Add the figure."""
    queue = bench.queue()
    taken = str(uuid4())
    bench.enqueue(queue, [engine.NewJob(key=taken, data={"args": [0]})])
    bench.compare(
        "one at a time, the key is taken",
        _singles(bench, queue, taken),
        _singles(bench, queue, None),
        bench.options.singles,
        label="the same with fresh keys",
        target=Target("ratio", at_least=1),
    )


def _singles(bench: Bench, queue: str, key: str | None) -> Measurement:
    def measure(jobs: int) -> Sample:
        new = [engine.NewJob(key=key or str(uuid4()), data={"args": [number]}) for number in range(jobs)]
        with bench.meter.measure(jobs) as sample:
            for job in new:
                bench.executor.run(engine.enqueue(queue, [job], project=PROJECT, create=False))
        return sample

    return measure
