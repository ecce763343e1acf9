"""What the tests of the tasks door share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks import flow_samples, samples


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    samples.calls.clear()
    yield
    samples.calls.clear()


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[flow_samples.Oracle]:
    """Files that say what ran, of whichever process."""
    with flow_samples.watch(tmp_path) as watched:
        yield watched
