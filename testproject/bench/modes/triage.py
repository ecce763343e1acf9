"""Triage: what the pages of dead letters ask of the engine, with a million of them as with ten thousand."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from django_leasequeue import engine
from django_leasequeue.engine.dead import triage
from django_leasequeue.engine.dead.filter import DeadFilter, PayloadTest
from django_leasequeue.engine.operation import Operation

from ..bench import Bench
from ..figures import Figure, Target
from ..options import PROJECT
from ..sql import statement

SUMMARY = "groups, lists, searches and previews of 1,000,000 dead letters, each within 300 ms"

#: Times that each is asked for in one round.
TRIES = 5
#: Letters of one statement that fills a queue.
_FILL = 50_000

Ask = Callable[[DeadFilter], Operation[Any]]

ASKED: dict[str, tuple[Ask, dict[str, Any]]] = {
    "groups": (triage.dead_groups, {}),
    "list": (triage.dead_page, {}),
    "list of one group": (triage.dead_page, {"fingerprint": "print-1"}),
    "search by text that finds nothing": (triage.dead_page, {"text": "nothing like it"}),
    "search by payload": (
        triage.dead_page,
        {"payload": (PayloadTest("data", ("kwargs", "customer"), True, "17"),)},
    ),
    "preview of everything": (triage.preview, {}),
}


def run(bench: Bench) -> None:
    """Add the figures: the small queue stands beside the large one, in the same rounds."""
    small, large = (_dead(bench, count) for count in (bench.options.small_backlog, bench.options.large_backlog))
    bench.plain.execute(statement("vacuum_all"))  # as autovacuum would have
    for name, (ask, more) in ASKED.items():
        times: dict[str, list[float]] = {small: [], large: []}
        for round_ in range(bench.options.rounds + 1):
            bench.progress.step(f"{bench.mode}: {name}, round {round_} of {bench.options.rounds}")
            for queue, found in times.items():
                took = [_asked(bench, ask(DeadFilter(project=PROJECT, queue=queue, **more))) for _ in range(TRIES)]
                if round_:  # the first warms both up
                    found.append(median(took))
        bench.add(
            Figure(
                bench.mode,
                f"{name}, {bench.options.large_backlog:,} dead letters",
                "ms",
                times[large],
                times[small],
                f"the same of {bench.options.small_backlog:,}",
                Target("value", at_most=300),
            )
        )


def _dead(bench: Bench, count: int) -> str:
    """Make a queue with so many dead letters; return its name."""
    queue = bench.queue()
    info = bench.executor.run(engine.get(queue, project=PROJECT))
    assert info is not None
    for start in range(0, count, _FILL):
        bench.progress.step(f"{bench.mode}: {start:,} of {count:,} dead letters")
        bench.plain.execute(statement("dead_fill"), {"queue": info.id, "count": min(_FILL, count - start)})
    return queue


def _asked(bench: Bench, operation: Operation[Any]) -> float:
    """Run an operation; return the milliseconds that it took."""
    began = time.perf_counter()
    bench.executor.run(operation)
    return (time.perf_counter() - began) * 1_000
