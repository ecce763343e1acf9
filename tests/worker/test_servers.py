"""Queues on two servers: one worker and one reaper serve both, and each goes on without the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import HOME
from tests.support.environment import child_environment
from tests.support.temporary_server import TemporaryServer
from tests.worker.processes import starting
from tests.worker.support import enqueue_at, noted


class Servers:
    """Two servers, and the environment of processes that know both."""

    def __init__(self, near: TemporaryServer, far: TemporaryServer) -> None:
        self.near, self.far = near, far
        self.env = {
            **child_environment(near.url()),
            "DJANGO_SETTINGS_MODULE": "testproject.settings_servers",
            "LEASEQUEUE_SERVERS": json.dumps({"default": near.url(), "far": far.url()}),
        }


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
    with starting(servers.env) as start:
        worker = start("--concurrency", "2", *queues, reaper=True)
        worker.says("Worker started", 2)
        worker.says("This reaper leads now", 2)
        enqueue_at(servers.near, "one", notes, "near")
        enqueue_at(servers.far, "two", notes, "far.mail")
        noted(notes, "one")
        noted(notes, "two")
        for stopped, other, queue in (
            (servers.far, servers.near, "near"), (servers.near, servers.far, "far.mail"),
        ):  # fmt: skip
            stopped.stop("immediate")
            enqueue_at(other, f"beside-{queue}", notes, queue)
            noted(notes, f"beside-{queue}")
            stopped.start()
        enqueue_at(servers.near, "three", notes, "near")
        enqueue_at(servers.far, "four", notes, "far.mail")
        noted(notes, "three")
        noted(notes, "four")
        assert "ended and is started again" not in worker.text
