from collections.abc import Iterator

import pytest

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
