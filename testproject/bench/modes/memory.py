"""Whether a worker's memory stays level over many jobs."""

from __future__ import annotations

from ..bench import Bench
from ..drains import drain
from ..figures import Figure, Target

SUMMARY = "memory of runworker over 100,000 jobs"

_MB = 1_000_000


def run(bench: Bench) -> None:
    """Add the figure: the memory at the end, beside that after a fifth of the jobs."""
    jobs = bench.options.long
    bench.progress.step(f"{bench.mode}: runworker, {jobs:,} jobs")
    found = drain(bench, jobs)
    (worker,) = found.children
    early, late = found.fifths[0], found.end
    after_fifth = [sample.resident for sample in worker.samples if sample.at <= early]
    until_end = [sample.resident for sample in worker.samples if sample.at <= late]
    if not after_fifth:
        bench.progress.step(f"{bench.mode}: the process was too short-lived to be seen")
        return
    step = max(1, len(until_end) // 50)
    bench.add(
        Figure(
            bench.mode,
            f"memory of runworker after {jobs:,} jobs",
            "MB",
            [until_end[-1] / _MB],
            [max(after_fifth) / _MB],
            f"the same process until {jobs // 5:,} jobs",
            Target("ratio", at_most=1.1),
            details={"samples_mb": [round(value / _MB, 2) for value in until_end[::step]]},
        )
    )
