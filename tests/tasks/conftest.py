"""What the tests of the tasks door share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.notify import close_listeners
from tests.tasks import batch_samples, context_samples, flow_samples, samples, undo_tasks

NOTED: list[Any] = [
    samples.calls, samples.called, batch_samples.runs, undo_tasks.done, undo_tasks.broken,
    context_samples.captured, context_samples.entered, context_samples.left,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_left_of_other_tests() -> Iterator[None]:
    for noted in NOTED:
        noted.clear()
    yield
    for noted in NOTED:
        noted.clear()
    close_listeners()


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[flow_samples.Oracle]:
    """Files that say what ran, of whichever process."""
    with flow_samples.watch(tmp_path) as watched:
        yield watched
