from collections.abc import Iterator

import pytest

from django_leasequeue.notify import close_listeners


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()
