"""Queues on two servers: one worker and one reaper serve both, and each goes on without the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor
from tests.conftest import HOME
from tests.support.environment import child_environment
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually
from tests.worker.handlers import lines
from tests.worker.processes import starting


class Servers:
    """Two servers, and the environment of processes that know both."""

    def __init__(self, near: TemporaryServer, far: TemporaryServer) -> None:
        self.near, self.far = near, far
        self.env = {
            **child_environment(near.url()),
            "DJANGO_SETTINGS_MODULE": "testproject.settings_servers",
            "LEASEQUEUE_SERVERS": json.dumps({"default": near.url(), "far": far.url()}),
        }

    def enqueue(self, server: TemporaryServer, queue: str, key: str, notes: Path) -> None:
        with psycopg.connect(server.url(), autocommit=True) as own:
            job = engine.NewJob(data={"file": str(notes)}, key=key)
            ConnectionExecutor(own).run(engine.enqueue(queue, [job]))


@pytest.fixture
def servers(migrated_server: TemporaryServer) -> Iterator[Servers]:
    with TemporaryServer(HOME, migrated=True) as far:
        yield Servers(migrated_server, far)


@pytest.mark.slow
@pytest.mark.parametrize("queues", [(), ("--queues", "near,far.mail")])
def test_one_worker_serves_both_and_goes_on_while_one_is_stopped(
    servers: Servers, tmp_path: Path, queues: tuple[str, ...]
) -> None:
    notes = tmp_path / "notes"

    def done(key: str) -> None:
        eventually(lambda: (key, "end") in {line[:2] for line in lines(notes)}, f"{key} is done")

    with starting(servers.env) as start:
        worker = start("--concurrency", "2", *queues, reaper=True)
        worker.says("Worker started", 2)
        worker.says("This reaper leads now", 2)
        servers.enqueue(servers.near, "near", "one", notes)
        servers.enqueue(servers.far, "far.mail", "two", notes)
        done("one")
        done("two")
        for stopped, other, queue in (
            (servers.far, servers.near, "near"),
            (servers.near, servers.far, "far.mail"),
        ):
            stopped.stop("immediate")
            key = f"beside-{queue}"
            servers.enqueue(other, queue, key, notes)
            done(key)
            stopped.start()
        servers.enqueue(servers.near, "near", "three", notes)
        servers.enqueue(servers.far, "far.mail", "four", notes)
        done("three")
        done("four")
        assert "ended and is started again" not in worker.text
