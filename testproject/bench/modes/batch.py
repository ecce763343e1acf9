"""Batch tasks: calls of which one run of the function takes 100, beside the same calls one at a time."""

from __future__ import annotations

from ..bench import Bench
from ..drains import drain
from ..figures import Figure, Target

SUMMARY = "runworker drains calls of which a run takes 100, beside one a run: no-ops, and a statement of the ORM a run"

#: What a run does; the task of one call, the task of a batch, the ratio to reach.
_PAIRS = (
    ("nothing", "noop", "noops", None),
    ("a statement", "touch", "touches", Target("ratio", at_least=3)),
)


def run(bench: Bench) -> None:
    """Add the figures."""
    jobs = bench.options.size
    for what, single, batch, target in _PAIRS:
        rates: dict[str, list[float]] = {single: [], batch: []}
        for round_ in range(1, bench.options.rounds + 1):
            bench.progress.step(f"{bench.mode}: {what} a run, round {round_} of {bench.options.rounds}")
            for name, found in rates.items():
                queue = bench.queue()
                bench.fill(queue, jobs, name=f"testproject.bench.tasks.{name}")
                found.append(drain(bench, jobs, fill=False, queue=queue).steady_rate)
        name = f"{what} a run, 100 calls a run"
        bench.add(Figure(bench.mode, name, "jobs/s", rates[batch], rates[single], "one call a run", target))
