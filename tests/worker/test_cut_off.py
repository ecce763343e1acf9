"""Workers that are cut off from the database: running jobs are told in time, nothing starts on a lease that is over."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import pool
from django_leasequeue.engine.leases.sweep import surely_until
from django_leasequeue.models import Attempt, Claim
from django_leasequeue.worker import JobControl
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.worker.handlers import ScriptHandler
from tests.worker.processes import fetch, starting
from tests.worker.support import Threaded, at_first_claim, enqueue, results, working

pytestmark = pytest.mark.usefixtures("work")

#: A lease long enough that a second before its end is promised, with much room.
LEASE = 18.0


class Start(NamedTuple):
    """A job that started: when, by the clock that server and test share."""

    seq: int
    claim: int
    at: float


class Stubborn(ScriptHandler):
    """Jobs go on until the test lets them, whatever they are told; coroutines until they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[Start] = []
        self.controls: list[JobControl] = []
        self.knew: dict[int, float] = {}
        self.cancelled: dict[int, float] = {}
        self.open = threading.Event()

    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self._started(job, control)
        if not self.open.is_set():
            control.event.wait(60)
            self.knew.setdefault(job.seq, time.time())
            self.open.wait(60)
        control.raise_if_aborted()
        return None

    async def arun(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        self._started(job, control)
        try:
            await asyncio.sleep(0 if self.open.is_set() else 60)
        except asyncio.CancelledError:
            self.cancelled.setdefault(job.seq, time.time())
            raise
        return None

    def _started(self, job: engine.LeasedJob, control: JobControl) -> None:
        self.starts.append(Start(job.seq, job.token, time.time()))
        self.controls.append(control)


def late(starts: list[Start], dsn: str) -> list[tuple[Start, float]]:
    """Those that started when their lease was over, and by how many seconds, according to the lease log."""
    found = []
    for start in starts:
        ((deadline,),) = fetch(
            dsn,
            "SELECT extract(epoch FROM max(deadline))::float8 FROM leasequeue_leaseevent WHERE kind IN (2, 3)"
            " AND claim = %s AND %s = ANY (seqs) AND extract(epoch FROM occurred_at) <= %s",
            start.claim, start.seq, start.at,
        )  # fmt: skip
        if deadline is None or start.at > deadline:
            found.append((start, start.at - (deadline or 0)))
    return found


def deadline_of(claim: int) -> float:
    return max(found.deadline.timestamp() for found in Claim.objects.filter(token=claim))


def failures() -> list[str]:
    """What failed, but for leases that expired."""
    return list(Attempt.objects.exclude(error_type="LEASE_EXPIRED").values_list("error_type", flat=True))


def lease_of(seconds: float) -> None:
    options = {"lease_ms": int(seconds * 1000), "backoff": "fixed", "backoff_base_ms": 20, "max_deliveries": 9}
    engine.run(engine.configure("work", preset="django", **options))


@pytest.fixture
def proxy(test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that all connections of workers in this process go through, and no others."""
    parameters = pool.connection_parameters("default")
    with psycopg.connect(test_dsn) as connection:
        host, port = connection.info.host, connection.info.port
    with Proxy(host, port) as proxy:
        through = {**parameters, "host": proxy.host, "port": proxy.port}
        monkeypatch.setattr(pool, "connection_parameters", lambda using, dsn=None: dict(through))
        yield proxy


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases count as over eight seconds before their end: seven more than promised, for a busy machine."""
    monkeypatch.setattr("django_leasequeue.engine.leases.sweep.NOTICE", 8.0)
    monkeypatch.setattr("django_leasequeue.engine.leases.sweep.PART", 0.7)


def test_a_lease_is_surely_held_until_a_second_before_its_end_at_the_latest() -> None:
    assert all(surely_until(100, lease) <= 100 + lease - 1 for lease in (4, 6, 60, 86_400))
    assert all(100 < surely_until(100, lease) < 100 + lease for lease in (0.1, 1, 3.9))


@pytest.mark.slow
@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("way", ["hang", "refuse"])
def test_jobs_are_told_in_time_and_none_starts_late(way: str, proxy: Proxy, test_dsn: str, caplog: Any) -> None:
    caplog.set_level("INFO", "django_leasequeue")
    lease_of(LEASE)
    seqs = enqueue({"async": True}, {"async": True}, *({} for _ in range(12)))
    handler = Stubborn()
    with working(handler, concurrency=2, async_concurrency=2, prefetch=50) as threaded:
        eventually(lambda: len(handler.starts) == 4, "two threads and two coroutines run")
        eventually(lambda: len(threaded.state.held) > 4, "others wait in the buffer")
        getattr(proxy, way)()
        # Renewed once more or not, just before: what the database says now is the last word.
        time.sleep(0.2)
        deadlines = {start.seq: deadline_of(start.claim) for start in handler.starts}
        eventually(lambda: len(handler.knew) == len(handler.cancelled) == 2, "they know")
        for seq, at in [*handler.knew.items(), *handler.cancelled.items()]:
            assert at <= deadlines[seq] - 1
        assert all(control.reason == "lease_lost" for control in handler.controls)
        last = max(deadlines.values())
        eventually(lambda: time.time() > last + 0.1, "the leases are over")
        # The threads are free now, and the buffer is full: what stands there must not start.
        handler.open.set()
        time.sleep(0.3)
        assert len(handler.starts) == 4
        proxy.heal()
        # Everything comes again, under new leases.
        eventually(lambda: {start.seq for start in handler.starts} == set(seqs), "all have started")
    assert late(handler.starts, test_dsn) == []
    # Who was told and raised has not failed.
    assert failures() == []
    said = [entry.getMessage() for entry in caplog.records]
    assert sum("running jobs abort" in line for line in said) <= 2
    if way == "refuse":
        for words in ("The database is not reached", "The database is reached again"):
            assert sum(line.startswith(words) for line in said) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("early")
def test_a_keeper_that_hangs_keeps_nobody_from_being_told(test_dsn: str) -> None:
    """Somebody has locked the claim: no renewal gets through, all else works."""
    lease_of(LEASE)
    enqueue({}, {"async": True})
    handler = Stubborn()
    with working(handler) as threaded:
        eventually(lambda: len(handler.starts) == 2, "they run")
        with psycopg.connect(test_dsn) as locker:
            locker.execute("SELECT FROM leasequeue_claim FOR UPDATE")
            deadlines = {start.claim: deadline_of(start.claim) for start in handler.starts}
            eventually(lambda: all(control.lost for control in handler.controls), "they are told")
            assert time.time() <= min(deadlines.values()) - 1
            assert threaded.worker.healthy
        handler.open.set()
        eventually(lambda: len(results()) == 2, "they come again")
    assert failures() == []


@pytest.mark.slow
def test_a_claim_whose_answer_comes_late_starts_nothing(test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease counts from before the claim was sent, not from when its answer came."""
    lease_of(3.0)
    enqueue({}, {})
    handler = Stubborn()
    handler.open.set()
    threaded = Threaded(handler)
    over: Any = lambda: eventually(lambda: time.time() > kept[0].deadline.timestamp(), "the lease is over")  # noqa: E731
    kept = at_first_claim(monkeypatch, threaded, over)
    with threaded:
        eventually(lambda: len(results()) == 2, "they come again")
    assert kept
    assert late(handler.starts, test_dsn) == []
    assert not {start.claim for start in handler.starts} & {job.token for job in kept}


@pytest.mark.slow
def test_a_process_that_stood_still_starts_none(subprocess_env: dict[str, str], test_dsn: str, tmp_path: Path) -> None:
    lease_of(3.0)
    notes = tmp_path / "starts"
    enqueue(*({"file": str(notes), "seconds": 0.05} for _ in range(150)))
    with starting(subprocess_env) as start:
        worker = start("--handler", "tests.worker.test_cut_off.Noting", "--concurrency", "2")
        for _ in range(3):
            before = len(read(notes))
            eventually(lambda before=before: len(read(notes)) > before + 5, "it works")
            os.kill(worker.pid, signal.SIGSTOP)
            ends = Claim.objects.values_list("deadline", flat=True)
            last = max((end.timestamp() for end in ends), default=0.0)
            eventually(lambda last=last: time.time() > last + 0.1, "its leases are over")
            os.kill(worker.pid, signal.SIGCONT)
        eventually(lambda: len(results()) == 150, "all are done")
        assert "Traceback" not in worker.text
    assert late(read(notes), test_dsn) == []


class Noting(ScriptHandler):
    def run(self, job: engine.LeasedJob, control: JobControl) -> str | None:
        descriptor = os.open(job.data["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{job.seq} {job.token} {time.time()}\n".encode())
        os.close(descriptor)
        time.sleep(job.data["seconds"])
        return None


def read(path: Path) -> list[Start]:
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [Start(int(seq), int(claim), float(at)) for seq, claim, at in lines]


@pytest.mark.slow
def test_a_statement_on_a_socket_that_hangs_ends(proxy: Proxy) -> None:
    with pool.connect("default", patience=10) as connection:
        proxy.hang()
        with pytest.raises(psycopg.OperationalError, match=r"did not answer within 10 s"):
            connection.execute("SELECT 1")
        assert connection.closed


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_ended_by_the_server(test_dsn: str) -> None:
    # The server ends it after nine tenths of that, the client after all of it.
    with pool.connect("default", patience=5) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("4500ms",)
    with pool.connect("default", patience=600) as connection:
        connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(60)")
        assert connection.execute("SELECT 1").fetchone() == (1,)
    # What the host has set stays.
    with pool.connect("default", dsn=f"{test_dsn}&options=-c%20statement_timeout%3D7s", patience=5) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("7s",)
    with pool.connect("default") as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_what_the_host_s_options_say_of_sockets_wins() -> None:
    from django.db import connections

    options = connections["default"].settings_dict["OPTIONS"]
    with patch.dict(options, tcp_user_timeout=1234):
        found = pool.connection_parameters("default")
    assert (found["tcp_user_timeout"], found["connect_timeout"]) == (1234, 5)
    with patch.dict(options, service="mine"):
        assert "connect_timeout" not in pool.connection_parameters("default")
