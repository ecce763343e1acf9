"""Everything here has threads and connections of its own: none outlives its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_leasequeue import engine
from django_leasequeue.notify import close_listeners
from tests.worker.processes import Start, starting


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    close_listeners()


@pytest.fixture
def work(test_dsn: str) -> str:
    """A queue like those of Django tasks, with short retries; its name."""
    engine.run(engine.create("work", preset="django", backoff="fixed", backoff_base_ms=20, max_deliveries=3))
    return "work"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which jobs note what they do."""
    return tmp_path / "notes"


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals of this test's workers alone, those of its processes included."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def start(subprocess_env: dict[str, str]) -> Iterator[Start]:
    with starting(subprocess_env) as function:
        yield function
