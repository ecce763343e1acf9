from collections.abc import Iterator
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.notify import close_listeners
from tests.conftest import HOME
from tests.support.temporary_server import TemporaryServer


@pytest.fixture(scope="module")
def migrated() -> Iterator[TemporaryServer]:
    """A server of the module's own whose faults the tests bring about."""
    with TemporaryServer(HOME, migrated=True) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()


def jobqueue(name: str = "images", **options: Any) -> Queue:
    return Queue(name, preset="jobqueue", node=options.pop("node", "worker-1"), **options)


def states(queue: Queue, key: str = "id") -> str | None:
    status = queue.get_status(key)
    return None if status is None else status.state
