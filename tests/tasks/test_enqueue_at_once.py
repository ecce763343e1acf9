"""Many calls of a task at once: as one by one."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_leasequeue import Queue, engine
from django_leasequeue.enums import JobFlag
from django_leasequeue.exceptions import InvalidOption, PayloadTooLarge
from django_leasequeue.models import LeaseEvent, Ready, StoredJob
from django_leasequeue.models import Queue as QueueRow
from django_leasequeue.tasks import calls
from django_leasequeue.tasks.api import TaskResult, TaskResultStatus, task_backends
from tests.support.heard import connected
from tests.tasks import samples
from tests.tasks.django_api import signals

pytestmark = pytest.mark.django_db

MANY = 2_300
backend: Any = task_backends["default"]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Any]]:
    """The arguments of calls that were prepared by themselves."""
    prepared: list[Sequence[Any]] = []
    prepare = calls.CallCompiler.prepare

    def spy(self: calls.CallCompiler, args: Sequence[Any], *rest: Any) -> Any:
        prepared.append(args)
        return prepare(self, args, *rest)

    monkeypatch.setattr(calls.CallCompiler, "prepare", spy)
    return prepared


def each(sets: Sequence[Any]) -> list[Any]:
    return [samples.echo.enqueue(**one) if isinstance(one, dict) else samples.echo.enqueue(*one) for one in sets]


@pytest.mark.parametrize(("size", "enqueue"), [(MANY, samples.echo.enqueue_many), (4, each)], ids=["many", "each"])
def test_they_are_stored_told_and_claimed_in_their_order(
    one_by_one: list[Sequence[Any]], size: int, enqueue: Callable[[Any], Any]
) -> None:
    samples.echo.enqueue(0)
    assert one_by_one == [(0,)], "it makes the queue"
    one_by_one.clear()
    heard: list[Any] = []
    with connected(signals.task_enqueued, lambda task_result, **_: heard.append(task_result)):
        results = enqueue([*((number,) for number in range(size - 1)), {"value": 'back\\slash\t"'}])
    assert (one_by_one, heard) == ([], results)
    jobs = list(StoredJob.objects.order_by("seq"))[1:]
    assert [(job.key, job.rank) for job in jobs] == [(result.id, 0) for result in results]
    assert [job.data for job in jobs[:-1]] == [{"args": [number]} for number in range(size - 1)]
    assert jobs[-1].data == {"kwargs": {"value": 'back\\slash\t"'}}
    assert [result.args for result in results[:-1]] == [[number] for number in range(size - 1)]
    assert results[-1].kwargs == {"value": 'back\\slash\t"'}
    assert all(result.enqueued_at == job.created_at for result, job in zip(results, jobs, strict=True))
    assert {(result.status, result.created) for result in results} == {(TaskResultStatus.READY, True)}
    told = [seq for event in LeaseEvent.objects.order_by("id") for seq in event.seqs]
    assert told[1:] == [job.seq for job in jobs]
    assert all(len(event.seqs) <= 1_000 for event in LeaseEvent.objects.all())
    claimed = engine.run(engine.claim("default", "worker", 1_000))
    assert [job.seq for job in claimed[1:]] == [job.seq for job in jobs[:999]]
    assert len({id(result.errors) for result in results} | {id(result.worker_ids) for result in results}) == 2 * size
    one = samples.echo.enqueue(1)
    types = [[type(getattr(result, field.name)) for field in fields(TaskResult)] for result in (results[0], one)]
    assert types[0] == types[1]
    results[-1].refresh()
    assert (results[-1].id, results[-1].kwargs) == (jobs[-1].key, jobs[-1].data["kwargs"])


@pytest.mark.parametrize("size", [0, 1, 100, 101, MANY])
@pytest.mark.parametrize("many", [
    samples.echo.enqueue_many, async_to_sync(samples.echo.aenqueue_many),
    lambda sets: backend.enqueue_many([(samples.echo, given, {}) for given in sets]),
    lambda sets: async_to_sync(backend.aenqueue_many)([(samples.echo, given, {}) for given in sets]),
    lambda sets: samples.with_options.enqueue_many(() for _ in sets), Queue("default").enqueue_many,
], ids=["task", "async", "backend", "async backend", "with options", "queue"])  # fmt: skip
def test_any_number_of_calls_returns_a_list(many: Callable[[Any], Any], size: int) -> None:
    samples.echo.enqueue(0)  # makes the queue
    results = many([(number,) for number in range(size)])
    assert (type(results), len(results)) == (list, size)


@pytest.mark.django_db(transaction=True)
def test_a_queue_with_ranks_and_a_time_to_live(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue(0)
    QueueRow.objects.filter(name="default").update(priority_order="asc", priority_min=3, priority_max=9, ttl_ms=60_000)
    one_by_one.clear()
    samples.echo.enqueue_many((number,) for number in range(200))
    assert not one_by_one
    jobs = StoredJob.objects.order_by("seq")[1:]
    assert {(job.rank, job.expires_at - job.created_at) for job in jobs} == {(3, timedelta(minutes=1))}
    assert {(row.rank, row.expires_at) for row in Ready.objects.exclude(rank=0)} == {(3, jobs[0].expires_at)}
    samples.echo.enqueue(200)
    assert not one_by_one, "some had this rank before"
    QueueRow.objects.filter(name="default").update(priority_min=4)
    samples.echo.enqueue(201)
    assert one_by_one == [(201,)], "the first one of a rank notes it as well"
    assert len(engine.run(engine.claim("default", "worker", 1_000))) == 203


@pytest.mark.parametrize(("wrong", "error", "says"), [
    ((float("nan"),), InvalidOption, "data must"), (("nul\0",), InvalidOption, "data must"),
    ((object(),), TypeError, "must be JSON"), ((1, 2), TypeError, "too many positional arguments"),
    (("é" * 1_000,), PayloadTooLarge, "more than 2000 bytes"),
])  # fmt: skip
def test_one_wrong_call_adds_nothing_and_leaves_the_transaction(
    settings: Any, wrong: tuple[Any, ...], error: type[Exception], says: str
) -> None:
    settings.LEASEQUEUE = {"MAX_PAYLOAD_BYTES": 2_000}
    with transaction.atomic():
        samples.echo.enqueue("first")
        with pytest.raises(error, match=says):
            samples.echo.enqueue_many(wrong if number == 1_900 else (number,) for number in range(MANY))
        with pytest.raises(error, match=says):
            samples.echo.enqueue(*wrong)
        samples.echo.enqueue("last")
    assert [job.data["args"] for job in StoredJob.objects.order_by("seq")] == [["first"], ["last"]]
    assert Ready.objects.count() == 2


def test_large_payloads_a_missing_queue_and_one_with_a_cap(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue_many((number,) for number in range(200))
    assert len(one_by_one) == 200, "the queue was missing"
    samples.echo.enqueue("x" * 20_000)
    assert len(one_by_one) == 201, "a large payload has a flag"
    one_by_one.clear()
    samples.echo.enqueue_many([*((number,) for number in range(1_200)), ("x" * 20_000,)])
    assert len(one_by_one) == 1_201
    assert Ready.objects.count() == 1_402
    assert [row.flags for row in Ready.objects.order_by("seq")][-2:] == [0, JobFlag.LARGE]
    QueueRow.objects.filter(name="default").update(cap_records=1_500)
    one_by_one.clear()
    samples.echo.enqueue_many((number,) for number in range(200))
    samples.echo.enqueue("capped")
    assert len(one_by_one) == 201
    assert Ready.objects.count() == 1_500
