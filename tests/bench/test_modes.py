"""Every mode runs, at a size at which its figures mean nothing, and leaves nothing behind."""

import json
import math
import os

import pytest

from testproject.bench import runner
from testproject.bench.modes import MODES, peers
from testproject.bench.options import BenchOptions
from testproject.bench.progress import Progress

#: Which figures a mode must give: words of their names.
EXPECTED = {
    "enqueue": ["one at a time", "8 threads", "in bulk", "the rate alone", "ready-made text"],
    "flow": ["one job of each at a time", "with a callback", "in 10 layers", "enqueue of the group", "its callback"],
    "limits": ["3 of the queue at once", "off the rate", "in any second", "unlimited jobs beside"],
    "durable": [
        "a durable step", "a durable step, CPU of PostgreSQL", "an atomic step", "jobs of 5 steps",
        "emit that nobody waits for", "enqueue beside 500 sleepers", "drain beside 500 sleepers",
    ],
    "servers": ["on 3 servers", "another server", "1 of 3 servers stopped"], "peers": ["DBOS", "django-absurd"],
    "single": ["into empty tables", "last fifth"],
    "claim": ["batches of 1", "batches of 20", "batches of 200", "results kept", "WAL of a job"],
    "log": ["lease log of a job"],
    "drain": ["1 process, start-up included", "1 process, steady", "2 processes, start-up included",
        "2 processes, steady", "CPU of the worker", "WAL of a job", "with prefetch and coalescing"],
    "latency": ["half of the jobs", "99 of 100 jobs", "jobs later than"],
    "snapshot": ["runworker and a producer", "last fifth", "runworker drains", "in turn", "bare SQL"],
    "crowd": ["4 workers beside a snapshot", "last fifth"],
    "backlog": ["200 waiting", "5,000 waiting", "share of the ceiling", "runworker"],
    "scheduled": ["0 scheduled", "5,000 scheduled", "share of the ceiling"], "memory": ["memory of runworker"],
    "duplicate": ["the key is taken"], "buffer": ["enqueue, 50 callers", "enqueue, claim, ack, 50 callers"],
    "request": ["half of the calls", "99 of 100 calls", "100 callers", "waiting callers"],
    "triage": ["groups", "list", "one group", "finds nothing", "by payload", "preview"],
    "zaqar": ["at the start", "in the middle", "claim 20", "oldest and newest"],
    "http": ["records a request", "50 connections", "half of them", "99 of 100", "fairness", "idle server",
        "server_total_ms", "while 13 bodies"],
}  # fmt: skip


def test_every_mode_is_tested() -> None:
    assert EXPECTED.keys() == MODES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param(mode, marks=[pytest.mark.sample] * (mode == "claim")) for mode in MODES])
@pytest.mark.usefixtures("nothing_left")
def test_mode(mode: str) -> None:
    if mode == "peers" and peers.PYTHON not in os.environ:
        pytest.skip(f"{peers.PYTHON} names no Python that has DBOS and django-absurd")
    outcome = runner.run(BenchOptions(size=100, rounds=1), [mode], Progress(None))

    assert outcome.errors == {}
    assert not outcome.interrupted
    names = [figure.name for figure in outcome.figures]
    for words in EXPECTED[mode]:
        assert any(words in name for name in names), f"{words!r} is missing: {names}"
    for figure in outcome.figures:
        assert figure.mode == mode
        assert figure.values
        assert all(math.isfinite(value) for value in figure.values + figure.beside)
        assert bool(figure.label) == bool(figure.beside)
    report = outcome.as_json()
    assert json.loads(json.dumps(report)) == report
