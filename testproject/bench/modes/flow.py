"""Jobs under limits and in workflows, drained beside plain ones."""

from __future__ import annotations

import time
from statistics import median
from uuid import uuid4

from django_leasequeue import engine
from django_leasequeue.engine import Limited, LimitValues, NewJob, Node

from ..bench import Bench, jobs_of
from ..crew import NOTE, crew, wait
from ..drains import Drain, drain
from ..figures import Figure, Target
from ..options import PROJECT

SUMMARY = "limits of one job at a time a key, a group with a callback, a graph in layers, beside plain jobs"

#: Jobs of a key, jobs of a layer, nodes of the largest workflow.
OF_A_KEY, LAYERS, MOST = 100, 10, 10_000
_LABEL = "the same worker with plain jobs"


def run(bench: Bench) -> None:
    """Add the figures."""
    size, jobs = bench.options.size, min(bench.options.size, MOST)
    bench.progress.step(f"{bench.mode}: warming up")
    drain(bench, max(100, jobs // 10))
    plain: list[Drain] = []
    many: list[Drain] = []
    callbacks: list[float] = []
    found: dict[str, list[Drain]] = {"limit": [], "group": [], "layers": []}
    seconds: list[float] = []
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: round {round_} of {bench.options.rounds}")
        plain.append(drain(bench, jobs))
        many.append(drain(bench, size) if size > jobs else plain[-1])
        found["limit"].append(_drain(bench, _limited(bench, size), size))
        queue = bench.queue()
        before = time.monotonic()
        _start(bench, queue, [*_nodes(queue, jobs - 1), Node(queue, _job(), tuple(range(jobs - 1)))])
        seconds.append(time.monotonic() - before)
        found["group"].append(_drain(bench, queue, jobs))
        queue = bench.queue()
        _start(bench, queue, _layers(queue, jobs))
        found["layers"].append(_drain(bench, queue, jobs))
        callbacks.append(_callback(bench, jobs - 1))
    _rates(bench, f"{size // OF_A_KEY:,} keys, one job of each at a time", found["limit"], many, 0.15)
    _rates(bench, f"a group of {jobs - 1:,} with a callback", found["group"], plain, None)
    _rates(bench, f"a graph of {jobs:,} in {LAYERS} layers", found["layers"], plain, 0.4)
    name = f"enqueue of the group of {jobs - 1:,}"
    bench.add(Figure(bench.mode, name, "s", seconds, target=Target("value", at_most=1)))
    within = f"from the end of the group of {jobs - 1:,} to the start of its callback"
    bench.add(Figure(bench.mode, within, "ms", callbacks, target=Target("value", at_most=50)))
    overhead = [(_server(one) - _server(other)) for one, other in zip(found["group"], plain, strict=True)]
    if all(value == value for value in overhead):
        bench.add(
            Figure(
                bench.mode,
                "CPU of PostgreSQL for a member, beyond a plain job's",
                "us",
                [median(overhead)],
                target=Target("value", at_most=15),
            )
        )


def _drain(bench: Bench, queue: str, jobs: int) -> Drain:
    return drain(bench, jobs, fill=False, queue=queue)


def _job() -> NewJob:
    (job,) = jobs_of(1)
    return job


def _callback(bench: Bench, jobs: int) -> float:
    """Return the ms from the last member's last line to its callback's first, on idle workers."""
    queue = bench.queue()
    with crew(bench, queue) as told:
        (last,) = jobs_of(1, name=NOTE)
        members = [Node(queue, job) for job in jobs_of(jobs, name=NOTE)]
        _start(bench, queue, [*members, Node(queue, last, tuple(range(jobs)))])
        wait(bench, told, jobs + 1)
        (_, end), (_, began) = told.read()[-2:]
    return (began - end) * 1000


def _nodes(queue: str, count: int) -> list[Node]:
    return [Node(queue, job) for job in jobs_of(count)]


def _layers(queue: str, count: int) -> list[Node]:
    """Each node waits for two of the layer before."""
    width = count // LAYERS
    nodes = []
    for place, job in enumerate(jobs_of(width * LAYERS)):
        layer, column = divmod(place, width)
        above = (layer - 1) * width
        parents = {above + column, above + (column + 1) % width} if layer else set()
        nodes.append(Node(queue, job, tuple(sorted(parents))))
    return nodes + [Node(queue, _job())] * (count - len(nodes))


def _start(bench: Bench, queue: str, nodes: list[Node]) -> None:
    bench.executor.run(engine.start_workflow(nodes, uuid4(), project=PROJECT))


def _limited(bench: Bench, jobs: int) -> str:
    queue, keys = bench.queue(), max(1, jobs // OF_A_KEY)
    one = LimitValues("bench", concurrency=1)
    limits = [Limited(f"key-{number}", one) for number in range(keys)]
    for first in range(0, jobs, MOST):
        part = [job._replace(limit=limits[n % keys]) for n, job in enumerate(jobs_of(min(MOST, jobs - first)), first)]
        bench.executor.run(engine.enqueue(queue, part, project=PROJECT))
    return queue


def _rates(bench: Bench, name: str, found: list[Drain], plain: list[Drain], least: float | None) -> None:
    target = None if least is None else Target("ratio", at_least=least)
    ours, beside = [one.rate for one in found], [one.rate for one in plain]
    bench.add(Figure(bench.mode, name, "jobs/s", ours, beside, _LABEL, target))


def _server(one: Drain) -> float:
    return float("nan") if one.cost.server_cpu is None else one.cost.server_cpu / one.jobs * 1e6
