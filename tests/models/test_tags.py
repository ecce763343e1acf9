"""Tags of jobs: from whichever door, found by their index, in the lease log, inherited."""

from typing import Any

import pytest
from django.db import connection

from django_leasequeue import Queue, engine
from django_leasequeue.engine import NewJob, tags
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Job, JobEvent, JobResult
from tests.engine.helpers import make

pytestmark = pytest.mark.django_db


def found(**lookups: Any) -> list[Any]:
    return list(Job.objects.filter(**lookups).order_by("pk").values_list("data", flat=True))


@pytest.mark.parametrize("count", [1, 2, 120])
def test_found_and_in_the_log(count: int) -> None:
    make("work")
    jobs = [NewJob(n, tags={"customer": n % 2, "kind": "mail", "own": True}, meta={"a": 1}) for n in range(count - 1)]
    engine.run(engine.enqueue("work", [*jobs, NewJob(-1, tags={"customer": "1"})]))
    engine.run(engine.enqueue("work", [NewJob(-2), NewJob(-3, meta={"kind": "mail"})]))
    assert found(tags__customer=1) == list(range(1, count - 1, 2))
    assert found(tags__customer="1") == [-1]
    assert found(tags__contains={"customer": 0, "kind": "mail"}, state="ready") == list(range(0, count - 1, 2))
    assert found(tags__own=True, tags__customer__in=[1]) == found(tags__customer=1)
    assert found(tags__isnull=True) == [-2, -3]
    assert Job.objects.exclude(tags__customer="1").exclude(tags__kind="mail").filter(tags__isnull=False).count() == 0
    logged = {event.job.data: event.detail for event in JobEvent.objects.filter(kind=1).select_related("job")}
    assert logged[-1] == {"tags": {"customer": "1"}}
    assert logged[-2] is None
    assert all(logged[job.data] == {"tags": job.tags} for job in jobs)


def test_the_index_answers() -> None:
    make("work")
    engine.run(engine.enqueue("work", [NewJob(n, tags={"customer": n}) for n in range(300)]))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE leasequeue_job")
    assert "leasequeue_job_tags" in Job.objects.filter(tags__customer=7).explain()


WRONG = [{"a b": 1}, {"a__b": 1}, {"1": 1}, {"a": None}, {"a": 1.5}, {"a": 2**63}, {"a": "x" * 300}, {1: 1}, "a", []]


@pytest.mark.parametrize(("wrong", "words"), [
    *((wrong, "tag") for wrong in WRONG), (dict.fromkeys(map(chr, range(97, 114)), 1), "16"),
])  # fmt: skip
def test_what_is_no_tag_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        Queue("work").enqueue(1, tags=wrong)


def test_what_runs_gives_its_tags_to_what_it_enqueues() -> None:
    queue = Queue("work")
    token = tags.inherited.set({"customer": 7, "region": "eu"})
    queue.enqueue(1)
    queue.enqueue_many([2, NewJob(3, tags={"region": "us"})])
    tags.inherited.reset(token)
    queue.enqueue(4)
    assert (found(tags__contains={"customer": 7, "region": "eu"}), found(tags__customer=7)) == ([1, 2], [1, 2, 3])


def test_the_tags_stay_with_a_job_until_it_is_forgotten() -> None:
    queue = Queue("work", max_deliveries=1, result_ttl_ms=60_000, dead_letter="self")
    queue.enqueue(1, tags={"customer": 7})
    queue.enqueue(2, tags={"customer": 7})
    done, dead = queue.claim(2)
    queue.ack(done)
    queue.nack(dead, error="broken")
    assert found(tags__customer=7, state="completed") == [1]
    assert JobResult.objects.get().job.tags == {"customer": 7}
    Queue("other").create()
    Job.objects.dead().redrive("other")
    moved = Job.objects.in_queue("other").get()
    assert (moved.tags, moved.events.get().detail["tags"]) == ({"customer": 7}, {"customer": 7})
