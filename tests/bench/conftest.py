"""Looking at what a benchmark left behind."""

from collections.abc import Iterator

import pytest
from django.db import connection

from django_leasequeue import models
from testproject.bench.options import PROJECT

#: Tables in which nothing may be left.
_EMPTY = (
    "StoredJob Ready Delayed Claim DeadLetter Record JobResult Attempt LeaseEvent QueueFloor QueueRank TopicState"
    " JobStep EmittedEvent"
)


@pytest.fixture
def nothing_left(transactional_db: None) -> Iterator[None]:
    yield
    assert not models.Queue.objects.filter(project=PROJECT).exists()
    assert not models.Worker.objects.filter(project=PROJECT).exists()
    for name in _EMPTY.split():
        assert not getattr(models, name).objects.exists(), name
    assert [name for name in connection.introspection.table_names() if name.startswith("leasequeue_bench")] == []
