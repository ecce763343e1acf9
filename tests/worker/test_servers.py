"""Servers that go away and come back: everybody is back by himself and says it once, and what is beside goes on."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.words import named
from tests.conftest import HOME
from tests.support.environment import child_environment
from tests.support.faults import faulty
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually
from tests.worker.handlers import lines, times
from tests.worker.processes import WorkerProcess, starting
from tests.worker.support import enqueue_at, noted

AWAY = {
    "worker": "worker: The database is not reached, trying again",
    "reaper": "reaper: The reaper cannot work, and tries again",
    "listener": "notify: LISTEN connection lost",
}
BACK_AGAIN = {
    "worker": "worker: The database is reached again",
    "reaper": "reaper: The reaper works again",
    "listener": "notify: LISTEN connection is back",
}


@dataclass
class Site:
    """A server, and a supervisor with two workers, a reaper and two listeners on it."""

    server: TemporaryServer
    worker: WorkerProcess
    notes: Path
    enqueued: int = 0

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url(), autocommit=True)

    def enqueue(self) -> str:
        """Enqueue a job; return its key."""
        self.enqueued += 1
        enqueue_at(self.server, f"job-{self.enqueued}", self.notes)
        return f"job-{self.enqueued}"

    def said(self, words: str) -> int:
        return sum(words in line for line in self.worker.log)


@pytest.fixture
def site(migrated_server: TemporaryServer, notes: Path) -> Iterator[Site]:
    with starting(child_environment(migrated_server.url())) as start:
        # The reaper, which `WorkerProcess` leaves out otherwise, is one of those who have to come back.
        worker = start("--processes", "2", "--concurrency", "2", "--poll", "1", reaper=True)
        site = Site(migrated_server, worker, notes)
        worker.says("Worker started", 2)
        worker.says("This reaper leads now")
        noted(site.notes, site.enqueue())
        with site.connect() as own:
            held = "locktype = 'advisory' AND classid = {lock.listeners}::oid"
            query = named(f"SELECT count(DISTINCT pid) FROM pg_locks WHERE {held}")
            eventually(lambda: own.execute(query).fetchone() == (2,), "both listen for jobs")
        yield site


@contextlib.contextmanager
def restart(site: Site) -> Iterator[None]:
    site.server.stop("immediate")
    yield
    site.server.start()


@contextlib.contextmanager
def read_only(site: Site) -> Iterator[None]:
    with faulty(site.server) as server:
        server.set("default_transaction_read_only", "on")
        yield
        server.reset("default_transaction_read_only")


@contextlib.contextmanager
def refused(site: Site) -> Iterator[None]:
    name = site.server.django_database()["NAME"]
    with psycopg.connect(site.server.url(), dbname="postgres", autocommit=True) as own:
        own.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        yield
        own.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())


WAYS: dict[str, tuple[Callable[[Site], contextlib.AbstractContextManager[None]], tuple[str, ...]]] = {
    "restart": (restart, ("worker", "reaper", "listener")),
    "read-only": (read_only, ("worker", "reaper")),
    "refused": (refused, ("worker", "reaper", "listener")),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_everybody_is_back_and_says_it_once(site: Site, way: str) -> None:
    happens, who = WAYS[way]
    counts = {"worker": 2, "reaper": 1, "listener": 2}
    with happens(site):
        for part in who:
            site.worker.says(AWAY[part], counts[part])
        # Long enough for many attempts.
        time.sleep(4)
    noted(site.notes, site.enqueue())
    for part in who:
        site.worker.says(BACK_AGAIN[part], counts[part])
        assert site.said(AWAY[part]) == counts[part]
        assert site.said(BACK_AGAIN[part]) == counts[part]
    assert "Traceback" not in site.worker.text
    assert "ended and restarts" not in site.worker.text
    noted(site.notes, site.enqueue())


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.chaos
def test_postgresql_restarts_underneath(migrated_server: TemporaryServer, notes: Path) -> None:
    env = child_environment(migrated_server.url())
    with migrated_server.connect() as connection, starting(env) as begin:
        executor = engine.ConnectionExecutor(connection)
        executor.run(engine.create("work", preset="django"))
        job = {"do": "sleep", "seconds": 0.01, "file": str(notes)}
        executor.run(engine.enqueue("work", [engine.NewJob(job, key=f"{n}") for n in range(600)]))
        worker = begin("--concurrency", "4")
        for done in (50, 250):
            eventually(lambda done=done: times(notes, "end") > done, "some are done")
            migrated_server.stop("immediate")
            time.sleep(0.5)
            migrated_server.start()
        with migrated_server.connect() as after:
            eventually(lambda: count(after, "leasequeue_jobresult") == 600, "all are done")
            assert count(after, "leasequeue_livejob") == 0
        # An idle worker whose connection was lost hears of new jobs again.
        migrated_server.stop("fast")
        migrated_server.start()
        with migrated_server.connect() as after:
            again = engine.ConnectionExecutor(after)
            again.run(engine.enqueue("work", [engine.NewJob(job, key="last")]))
            eventually(lambda: count(after, "leasequeue_jobresult") == 601, "the last one is done")
        worker.ends()
    assert "Part of the worker broke" not in worker.text
    assert len({key for key, word, _ in lines(notes) if word == "end"}) == 601


def count(connection: Any, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.slow
@pytest.mark.parametrize("queues", [(), ("--queues", "near,far.*")])
def test_a_worker_of_two_servers(migrated_server: TemporaryServer, notes: Path, queues: tuple[str, ...]) -> None:
    near = migrated_server
    with TemporaryServer(HOME, migrated=True) as far:
        places = ((near, "near"), (far, "far.mail"))

        def serves(name: str, *beside: TemporaryServer) -> None:
            """Both, or all but one, take jobs."""
            running = [(server, queue) for server, queue in places if server not in beside]
            for server, queue in running:
                enqueue_at(server, f"{name}-{queue}", notes, queue)
            for _, queue in running:
                noted(notes, f"{name}-{queue}")

        env = {
            **child_environment(near.url()), "DJANGO_SETTINGS_MODULE": "testproject.settings_servers",
            "LEASEQUEUE_SERVERS": json.dumps({"default": near.url(), "far": far.url()}),
        }  # fmt: skip
        with starting(env) as start:
            worker = start("--concurrency", "2", *queues, reaper=True)
            worker.says("Worker started", 2)
            worker.says("This reaper leads now", 2)
            serves("first")
            for stopped in (far, near):
                stopped.stop("immediate")
                serves(f"without-{stopped is far}", stopped)
                stopped.start()
            serves("last")
            assert "ended and restarts" not in worker.text
