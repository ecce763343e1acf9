"""The pytest plugin: the fixture ``leasequeue``. It imports Django only for tests that use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .harness import Harness


@pytest.fixture
def leasequeue() -> Iterator[Harness]:
    """Return a ``Harness``: ``drain``, ``assert_enqueued``, ``advance`` and more.

    The test needs the database in the usual way (``django_db``, with or without ``transaction=True``).
    """
    from .harness import Harness

    with Harness() as harness:
        yield harness


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let async calls use Django's connection: only it sees a test's open transaction. No embedded worker starts."""
    if "django" in sys.modules:
        from ..conf import process

        process.switches.django_connection = True
        process.switches.embedded = False
        process.forget()  # the test before has rolled its rows back


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """After the last test close listeners: their connections would block the removal of the test database."""
    notify = sys.modules.get("django_leasequeue.notify")
    if nextitem is None and notify is not None:
        notify.close_listeners()
