from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_leasequeue.api.keys import ring
from django_leasequeue.api.topics import base, figures
from django_leasequeue.engine import clock as engine_clock
from tests.api.client import Api


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """What a server process remembers for a moment would survive the test's rollback."""
    yield
    ring.forget()
    figures.forget()
    base.forget()


@pytest.fixture
def open_api(settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open", "COUNT_SECONDS": 0}}


@pytest.fixture
def api(db: None, open_api: None) -> Api:
    """The door, open to everybody, inside the test's transaction."""
    return Api()


@pytest.fixture
def clock() -> Iterator[engine_clock.Clock]:
    """The engine's clock, held at a round time; ``clock.advance(seconds=...)`` moves it."""
    with engine_clock.hold(engine_clock.Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))) as held:
        yield held
