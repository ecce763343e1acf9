"""What the tests of the tasks door share."""

from collections.abc import Iterator

import pytest

from tests.tasks import samples


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    samples.calls.clear()
    yield
    samples.calls.clear()
