"""What a benchmark starts beside itself: children that are watched, and a server for JDBC."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from django_leasequeue.models import EventKind
from testproject.bench import processes, tcp_server
from testproject.bench.children import Child, ChildFailed
from tests.spark.helpers import NOON, event
from tests.support.waiting import eventually


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
def test_a_copy_of_the_events_on_tcp(tmp_path: Path, test_dsn: str) -> None:
    """The server for JDBC holds a copy of the events, asks for its password, and is gone afterwards."""
    with psycopg.connect(test_dsn, autocommit=True) as database:
        for seq in (1, 2):
            event(database, queue_id=7, seq=seq, kind=EventKind.CLAIMED, node="n'1", detail={"a": "ü"})
    with tcp_server.with_events("default", tmp_path) as place:
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
