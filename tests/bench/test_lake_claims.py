"""Claims that are counted beside the lake: they work on a queue of their own, and what happens beside them is told."""

import time
from collections.abc import Iterator

import pytest
from django.db import connection

from django_leasequeue.models import JobEvent, JobResult, LiveJob, Queue
from testproject.bench.lake_claims import Claims
from testproject.bench.options import PROJECT

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def claims() -> Iterator[Claims]:
    found = Claims("default")
    yield found
    found.close()
    assert not Queue.objects.filter(project=PROJECT).exists()


def test_each_round_claims_and_finishes_what_it_enqueued(claims: Claims) -> None:
    looks: list[float] = []

    def three_times(seconds: float) -> bool:
        looks.append(seconds)
        return len(looks) <= 3

    assert claims.rate(three_times) > 0
    assert looks == sorted(looks)
    queue = Queue.objects.get(project=PROJECT)
    assert not LiveJob.objects.filter(queue=queue).exists()
    assert JobResult.objects.filter(queue=queue).count() == 3 * 200
    assert JobEvent.objects.filter(queue_id=queue.pk).count() == 3 * 3 * 200
    claims.vacuum()


def test_it_goes_on_for_as_long_as_the_other_work(claims: Claims) -> None:
    done: list[int] = []

    def work() -> None:
        while not JobResult.objects.exists():
            time.sleep(0.01)
        connection.close()
        done.append(1)

    assert claims.rate_during(work) > 0
    assert done == [1]


def test_what_breaks_beside_is_told(claims: Claims) -> None:
    def broken() -> None:
        raise ValueError("the stream broke off")

    with pytest.raises(ValueError, match="the stream broke off"):
        claims.rate_during(broken)
