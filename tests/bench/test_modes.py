"""Every mode runs, at a size at which its figures mean nothing; and what a benchmark starts beside itself."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_leasequeue.models import EventKind
from testproject.bench import processes, runner, tcp_server
from testproject.bench.children import Child, ChildFailed
from testproject.bench.modes import MODES, peers
from testproject.bench.options import BenchOptions
from testproject.bench.progress import Progress
from tests.spark.helpers import NOON, event
from tests.support.waiting import eventually

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
    "log": ["lease log of a job"], "batch": ["nothing a run", "a statement a run"],
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


#: Modes that start servers, workers and clients, as `memory` does, which runs with every change.
LARGE = {
    "backlog", "batch", "crowd", "drain", "durable", "flow", "http", "latency", "limits", "request", "servers",
    "snapshot", "zaqar",
}  # fmt: skip


def kept(mode: str) -> Any:
    marks = [pytest.mark.sample] * (mode == "claim") + [pytest.mark.release] * (mode in LARGE)
    return pytest.param(mode, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [kept(mode) for mode in MODES])
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


def test_a_child_that_fails_says_why_and_one_that_does_not_end_is_stopped() -> None:
    with Child(["-c", "raise SystemExit('no queue here')"], {}) as child, pytest.raises(ChildFailed) as caught:
        child.wait(300)
    assert "ended with code 1" in str(caught.value)
    assert "no queue here" in str(caught.value)
    with Child(["-c", "import time; time.sleep(600)"], {}) as child:
        with pytest.raises(ChildFailed, match=r"did not end within 0\.1 s"):
            child.wait(0.1)
        child.check()
    assert not child.running


@pytest.mark.slow
def test_children_end_with_a_benchmark_that_was_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    child = (
        f"import os, pathlib; pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "from testproject.bench.child import watch; watch()"
    )
    parent = (
        "import time; from testproject.bench.children import Child\n"
        f"with Child(['-c', {child!r}], {{}}): time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        eventually(lambda: told.exists() and told.read_text(), "the child runs")
        process.kill()
    eventually(lambda: processes.times(int(told.read_text())) is None, "the child ends with its parent")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_copy_of_the_events_on_tcp(test_dsn: str) -> None:
    with psycopg.connect(test_dsn, autocommit=True) as database:
        for seq in (1, 2):
            event(database, queue_id=7, seq=seq, kind=EventKind.CLAIMED, node="n'1", detail={"a": "ü"})
    # Not in pytest's own directory: every run beside this one closes it to other accounts, and so to PostgreSQL's.
    with tempfile.TemporaryDirectory() as made, tcp_server.with_events("default", Path(made)) as place:
        assert place["host"].startswith("127.")
        with psycopg.connect(**place) as connection:
            rows = connection.execute(
                "SELECT seqs[1], txid, occurred_at, kind, node, detail->>'a' FROM leasequeue_leaseevent ORDER BY id"
            ).fetchall()
        assert rows == [(seq, 1, NOON, int(EventKind.CLAIMED), "n'1", "ü") for seq in (1, 2)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(**{**place, "password": "guessed"})
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**place)
