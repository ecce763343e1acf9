from collections.abc import Iterator
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.conf import process
from django_leasequeue.notify import close_listeners
from tests.worker.conftest import start  # noqa: F401  (a fixture)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    process.forget()
    yield
    process.forget()
    close_listeners()


@pytest.fixture(autouse=True)
def _open(settings: Any) -> None:
    settings.ROOT_URLCONF = "django_leasequeue.http.metrics.urls"
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}, "METRICS": {"CACHE_SECONDS": 0}}


@pytest.fixture
def work(test_dsn: str) -> str:
    """A queue like those of Django tasks, with short retries; its name."""
    engine.run(engine.create("work", preset="django", backoff="fixed", backoff_base_ms=20, max_deliveries=2))
    return "work"
