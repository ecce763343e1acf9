"""JSON lookups on columns that keep JSON as it was written; tags of jobs, found by their index."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import Case, Count, F, FloatField, Func, OuterRef, Subquery, TextField, When
from django.db.models.fields.json import KT, KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce

from django_leasequeue import Queue, engine
from django_leasequeue.engine import Failure, NewJob, Release, metadata
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import EventKind, Job, JobEvent, JobResult
from tests.engine.helpers import NODE, claim, make, put

pytestmark = pytest.mark.django_db

DATA = (
    {"n": 1, "o": {"p": [1, 2]}, "s": "x"}, {"n": 2.0, "s": "y"}, {"big": 10**30}, [1, 2, {"a": 1}], "text", None,
    {"n": None, "z": 1e300},
)  # fmt: skip


@pytest.fixture
def numbers() -> list[int]:
    make("work")
    return [job.seq for job in engine.run(engine.enqueue("work", [NewJob(data=data) for data in DATA]))]


@pytest.mark.parametrize(("lookups", "found"), [
    ({"data__n": 1}, [0]), ({"data__n": 2}, [1]), ({"data__n": None}, [6]), ({"data__n__gt": 1}, [1]),
    ({"data__n__in": [1, 2]}, [0, 1]), ({"data__n__isnull": False}, [0, 1, 6]), ({"data__z__gt": 5}, [6]),
    ({"data__big__gte": 10**30}, [2]), ({"data__s__startswith": "x"}, [0]), ({"data__s__icontains": "Y"}, [1]),
    ({"data__o__p": [1, 2]}, [0]), ({"data__o__p__0": 1}, [0]), ({"data__2__a": 1}, [3]),
    ({"data__contains": {"n": 1}}, [0]),
    ({"data__contained_by": {**DATA[0], "more": 1}}, [0]),  # type: ignore[dict-item]
    ({"data__has_key": "n"}, [0, 1, 6]), ({"data__in": [DATA[0], "text"]}, [0, 4]),
    ({"data__has_keys": ["n", "o"]}, [0]), ({"data__has_any_keys": ["o", "big"]}, [0, 2]),
    ({"data__o__has_key": "p"}, [0]), ({"data": {"n": 2.0, "s": "y"}}, [1]), ({"data": "text"}, [4]),
    ({"data__isnull": True}, [5]), ({"data__n": F("data__n")}, [0, 1, 6]),
])  # fmt: skip
def test_lookups(numbers: list[int], lookups: dict[str, Any], found: list[int]) -> None:
    jobs = Job.objects.filter(**lookups).order_by("pk")
    assert list(jobs.values_list("pk", flat=True)) == [numbers[place] for place in found]


def test_values_are_as_they_were_written_in_order_in_groups_and_each_once(numbers: list[int]) -> None:
    jobs = Job.objects.filter(data__has_key="n")
    assert sorted(map(repr, jobs.values_list("data__n", flat=True))) == ["1", "2.0", "None"]
    assert Job.objects.filter(data__has_key="z").values("data__z").get() == {"data__z": 1e300}
    jobs = Job.objects.filter(data__has_key="s")
    assert list(jobs.order_by("-data__s").values_list("data__s", flat=True)) == ["y", "x"]
    assert sorted(jobs.values_list("data__s", flat=True).distinct()) == ["x", "y"]
    counted = jobs.values("data__s").annotate(jobs=Count("pk")).order_by("data__s")
    assert list(counted) == [{"data__s": "x", "jobs": 1}, {"data__s": "y", "jobs": 1}]


def test_whole_rows_are_compared(numbers: list[int]) -> None:
    jobs = Job.objects.filter(data__has_key="z")
    (once,) = jobs.distinct()
    (counted,) = jobs.annotate(of=Count("attempts"))
    assert once.data == counted.data == jobs.get().data == {"n": None, "z": 1e300}
    assert counted.of == 0
    assert list(jobs.values_list("data", flat=True).distinct()) == [{"n": None, "z": 1e300}]
    assert list(Job.objects.filter(data="text").distinct().values_list("data", flat=True)) == ["text"]
    assert Job.objects.filter(data__isnull=True).union(jobs).count() == 2
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX shop_job_n ON leasequeue_job ((leasequeue_jsonb(data) -> 'n'))")
        cursor.execute("SET LOCAL enable_seqscan = off")
    assert "shop_job_n" in Job.objects.filter(data__n=1).explain(), "an index on the expression serves the lookup"


@pytest.mark.parametrize(("expression", "found"), [
    (KeyTransform("n", "data"), 2.0), (KeyTextTransform("s", "data"), "y"), (Cast(KT("data__n"), FloatField()), 2.0),
    (Coalesce("progress", "data"), DATA[1]), (Case(When(state="ready", then="data")), DATA[1]),
    (Func("data", function="jsonb_typeof", output_field=TextField()), "object"),
    (Subquery(Job.objects.filter(pk=OuterRef("pk")).values("data")), DATA[1]),
    (Subquery(Job.objects.filter(pk=OuterRef("pk")).values("data__s")), "y"),
])  # fmt: skip
def test_expressions_see_jsonb(numbers: list[int], expression: Any, found: object) -> None:
    (job,) = Job.objects.annotate(of=expression).filter(data__s="y").order_by("of", "data")
    assert job.of == found
    assert Job.objects.annotate(of=expression).filter(of=found).exists()


ENDS = [EventKind.RELEASED, EventKind.DEAD_LETTERED]


@pytest.mark.parametrize(("lookups", "kinds"), [
    ({"detail__error_type": "KeyError"}, ENDS), ({"detail__has_key": "error_type"}, ENDS),
    ({"detail__contains": {"error_type": "KeyError"}, "job__task": "shop.pay"}, ENDS), ({"detail__to": None}, []),
    ({"detail__isnull": True}, [EventKind.ENQUEUED, EventKind.CLAIMED]),
])  # fmt: skip
def test_lookups_of_an_events_detail(lookups: dict[str, Any], kinds: list[EventKind]) -> None:
    make(max_deliveries=1, exhaust_at="release", dead_letter="self")
    put(1, name="shop.pay")
    (job,) = claim()
    engine.run(engine.release([Release(job.seq, failure=Failure("KeyError", "no order"))], NODE))
    events = JobEvent.objects.filter(**lookups).order_by("pk")
    assert list(events.values_list("kind", flat=True)) == kinds


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
    token = metadata.inherited.set({"customer": 7, "region": "eu"})
    queue.enqueue(1)
    queue.enqueue_many([2, NewJob(3, tags={"region": "us"})])
    metadata.inherited.reset(token)
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
