"""What tests of undone steps share: the ends of runs, what is booked, and a clean slate."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue.testing import Harness
from tests.tasks import undo_tasks


@pytest.fixture
def nothing_undone() -> Iterator[None]:
    yield
    undo_tasks.done.clear()
    undo_tasks.broken.clear()


def states(leasequeue: Harness, **options: Any) -> list[str]:
    return [ran.state for ran in leasequeue.drain(**options)]


def booked() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))
