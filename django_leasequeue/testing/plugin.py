"""The pytest plugin: the fixture ``leasequeue``. Nothing of Django is imported before a test asks for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .harness import Harness


@pytest.fixture
def leasequeue() -> Iterator[Harness]:
    """Return the queues in the hands of a test: ``drain``, ``assert_enqueued``, ``advance`` and more; see ``Harness``.

    The test needs the database in the usual way (``django_db``, with or without ``transaction=True``).
    """
    from .harness import Harness

    with Harness() as harness:
        yield harness


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Have async calls use Django's connection: tests hold everything in a transaction that no other one sees."""
    if "django" in sys.modules:
        from ..conf import process

        process.switches.django_connection = True
        process.forget()  # what the test before this one saw in the database: it has undone what it did


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """After the last test nothing listens any more: a connection would keep the test database from being removed."""
    notify = sys.modules.get("django_leasequeue.notify")
    if nextitem is None and notify is not None:
        notify.close_listeners()
