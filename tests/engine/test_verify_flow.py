"""``verify`` finds what is wrong with limits and workflows, and nothing where nothing is."""

from uuid import uuid4

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import Ending, LimitValues, NewJob, Node
from django_leasequeue.models import Limit, Member
from tests.engine.flow import differences, limited
from tests.engine.helpers import NODE, claim, make
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def running() -> engine.LeasedJob:
    """A job that has the only slot; behind it one that waits, beside it a workflow."""
    make(result_ttl_ms=86_400_000)
    limited(["x", "x"])
    engine.run(engine.start_workflow([Node("work", NewJob(1)), Node("work", NewJob(2), (0,))], uuid4()))
    jobs = claim(10)
    assert len(jobs) == 2
    (job,) = (job for job in jobs if job.data != 1)
    assert differences() == []
    return job


def test_a_slot_without_a_job(running: engine.LeasedJob) -> None:
    engine.run(engine.finish([Ending(running.seq, running.token)], NODE))
    assert differences() == []  # its turn is to come
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM leasequeue_flowturn")
    assert differences() == ["lost_slot"]


def test_a_job_without_a_slot(running: engine.LeasedJob) -> None:
    rows(Member).filter(pk=running.seq).update(taken=False)
    assert differences() == ["no_slot"]


def test_more_than_the_limit(running: engine.LeasedJob) -> None:
    engine.run(engine.set_limits([LimitValues("customer", concurrency=2)]))
    assert len(claim(10)) == 1
    assert differences() == []
    rows(Limit).update(concurrency=1)
    assert differences() == ["too_many_slots"]


def test_held_by_nothing(running: engine.LeasedJob) -> None:
    rows(Member).filter(waits=True).update(waits=False)
    assert differences() == ["waits_for_nothing"]
    rows(Member).filter(waits=False, key__isnull=False, taken=False).delete()
    assert differences() == ["held_by_nobody"]
