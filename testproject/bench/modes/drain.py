"""Workers that drain a queue of tasks that do nothing: what the machinery costs."""

from __future__ import annotations

from statistics import median

from ..bench import Bench
from ..drains import Drain, bare_drain, drain
from ..figures import Figure, Target

SUMMARY = "runworker drains no-op Django tasks with 1 and 2 processes; CPU and WAL of a job"

_LABEL = "the barest psycopg loop"
_OFF = ("--burst", "--prefetch", "0", "--ack-batch", "1")


def run(bench: Bench) -> None:
    """Add the figures."""
    jobs = bench.options.size
    bench.progress.step(f"{bench.mode}: warming up")
    drain(bench, max(100, jobs // 10))
    bare_drain(bench, max(100, jobs // 10))
    single = _pairs(bench, jobs, 1, target=Target("value", at_least=10_000))
    _pairs(bench, jobs, 2, target=Target("value", at_least=15_000))
    _costs(bench, single)
    _without_batches(bench, single, max(100, jobs // 10))


def _pairs(bench: Bench, jobs: int, processes: int, *, target: Target) -> list[tuple[Drain, Drain]]:
    name = f"{processes} process{'es' if processes > 1 else ''}"
    pairs = []
    for round_ in range(1, bench.options.rounds + 1):
        bench.progress.step(f"{bench.mode}: {name}, round {round_} of {bench.options.rounds}")
        pairs.append((drain(bench, jobs, processes=processes), bare_drain(bench, jobs, processes=processes)))
    bench.add(_rates(bench, f"{name}, start-up included", "rate", pairs, target))
    bench.add(
        _rates(
            bench, f"{name}, steady", "steady_rate", pairs, Target("ratio", at_least=0.7) if processes == 1 else None
        )
    )
    return pairs


def _rates(bench: Bench, name: str, attribute: str, pairs: list[tuple[Drain, Drain]], target: Target | None) -> Figure:
    ours = [getattr(pair[0], attribute) for pair in pairs]
    beside = [getattr(pair[1], attribute) for pair in pairs]
    return Figure(bench.mode, name, "jobs/s", ours, beside, _LABEL, target)


def _costs(bench: Bench, pairs: list[tuple[Drain, Drain]]) -> None:
    """Add what one job costs, of the drains with one process."""
    costs = (
        ("CPU of the worker for a job", "us", [[one.worker_cpu_us for one in pair] for pair in pairs], 16.0),
        ("CPU of PostgreSQL for a job", "us", [[_server_us(one) for one in pair] for pair in pairs], 22.0),
        ("WAL of a job", "bytes", [[one.cost.wal_bytes / one.jobs for one in pair] for pair in pairs], None),
    )
    for name, unit, found, most in costs:
        known = [pair for pair in found if not any(value != value for value in pair)]
        if known:
            ours, beside = [pair[0] for pair in known], [pair[1] for pair in known]
            target = None if most is None else Target("value", at_most=most)
            bench.add(Figure(bench.mode, name, unit, ours, beside, _LABEL, target))


def _server_us(one: Drain) -> float:
    return float("nan") if one.cost.server_cpu is None else one.cost.server_cpu / one.jobs * 1e6


def _without_batches(bench: Bench, single: list[tuple[Drain, Drain]], jobs: int) -> None:
    """Add how much prefetch and coalesced acks are worth: the worker beside itself without them."""
    bench.progress.step(f"{bench.mode}: 1 process without prefetch and coalescing")
    off = [drain(bench, jobs, arguments=_OFF).steady_rate for _ in range(min(2, bench.options.rounds))]
    bench.add(
        Figure(
            bench.mode,
            "1 process, steady, with prefetch and coalescing",
            "jobs/s",
            [pair[0].steady_rate for pair in single],
            [median(off)] * len(single),
            "the same worker without them",
            Target("ratio", at_least=10),
        )
    )
