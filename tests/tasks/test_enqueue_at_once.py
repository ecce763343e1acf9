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
FIELDS = [field.name for field in fields(TaskResult)]
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


def test_they_are_stored_told_and_claimed_in_their_order(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue(0)  # makes the queue
    one_by_one.clear()
    results = samples.echo.enqueue_many([*((number,) for number in range(MANY - 1)), {"value": 'back\\slash\t"'}])
    assert not one_by_one
    jobs = list(StoredJob.objects.order_by("seq"))[1:]
    assert [job.key for job in jobs] == [result.id for result in results]
    assert [job.data for job in jobs[:-1]] == [{"args": [number]} for number in range(MANY - 1)]
    assert jobs[-1].data == {"kwargs": {"value": 'back\\slash\t"'}}
    assert results[7].args == [7]
    assert results[-1].kwargs == {"value": 'back\\slash\t"'}
    assert all(result.enqueued_at == job.created_at for result, job in zip(results, jobs, strict=True))
    assert {(result.status, result.created) for result in results} == {(TaskResultStatus.READY, True)}
    told = [seq for event in LeaseEvent.objects.order_by("id") for seq in event.seqs]
    assert told[1:] == [job.seq for job in jobs]
    assert all(len(event.seqs) <= 1_000 for event in LeaseEvent.objects.all())
    claimed = engine.run(engine.claim("default", "worker", 1_000))
    assert [job.seq for job in claimed[1:]] == [job.seq for job in jobs[:999]]


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


def test_the_list_has_a_result_of_its_own_for_each_call() -> None:
    samples.echo.enqueue(0)  # makes the queue
    results = samples.echo.enqueue_many((number,) for number in range(MANY))
    assert [result.args for result in results] == [[number] for number in range(MANY)]
    assert len({id(result.errors) for result in results} | {id(result.worker_ids) for result in results}) == 2 * MANY
    one = samples.echo.enqueue(1)
    assert {field: type(getattr(results[0], field)) for field in FIELDS} == {
        field: type(getattr(one, field)) for field in FIELDS
    }
    assert [results[-1].refresh(), one.refresh()] == [None, None]
    assert (results[-1].id, results[-1].args) == (StoredJob.objects.order_by("-seq")[1].key, [MANY - 1])


def test_one_call(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue("makes the queue")
    assert one_by_one == [("makes the queue",)]
    one_by_one.clear()
    results = [samples.echo.enqueue(number) for number in range(3)]
    assert not one_by_one
    jobs = list(StoredJob.objects.order_by("seq"))[1:]
    assert [(job.key, job.data, job.created_at, job.rank) for job in jobs] == [
        (result.id, {"args": [number]}, result.enqueued_at, 0) for number, result in enumerate(results)
    ]
    assert [(result.args, result.status, result.created) for result in results] == [
        ([number], TaskResultStatus.READY, True) for number in range(3)
    ]
    assert [event.seqs for event in LeaseEvent.objects.order_by("id")][1:] == [[job.seq] for job in jobs]
    assert [job.seq for job in engine.run(engine.claim("default", "worker", 10))][1:] == [job.seq for job in jobs]
    with pytest.raises(InvalidOption, match="data must be JSON"):
        samples.echo.enqueue(float("inf"))


def test_a_large_payload_and_a_queue_with_a_cap_go_the_general_way(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue("makes the queue")
    one_by_one.clear()
    samples.echo.enqueue("x" * 20_000)
    assert len(one_by_one) == 1, "a large payload has a flag"
    QueueRow.objects.filter(name="default").update(cap_records=1)
    samples.echo.enqueue("capped")
    assert Ready.objects.count() == 1


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


@pytest.mark.parametrize("wrong", [float("nan"), "nul\0"])
def test_a_value_that_cannot_be_stored_adds_nothing_and_leaves_the_transaction(wrong: object) -> None:
    with transaction.atomic():
        samples.echo.enqueue("first")
        with pytest.raises(InvalidOption, match="data must"):
            samples.echo.enqueue_many((wrong if number == 1_900 else number,) for number in range(MANY))
        samples.echo.enqueue("last")
    assert [job.data["args"] for job in StoredJob.objects.order_by("seq")] == [["first"], ["last"]]
    assert Ready.objects.count() == 2


def test_arguments_that_the_task_does_not_take_add_nothing() -> None:
    with pytest.raises(TypeError, match="argument"):
        samples.echo.enqueue_many([*((number,) for number in range(200)), (1, 2)])
    with pytest.raises(TypeError, match="must be JSON"):
        samples.echo.enqueue_many([*((number,) for number in range(200)), (object(),)])
    assert not StoredJob.objects.exists()


def test_large_payloads_a_missing_queue_and_one_with_a_cap(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue_many((number,) for number in range(200))
    assert len(one_by_one) == 200, "the queue was missing"
    one_by_one.clear()
    samples.echo.enqueue_many([*((number,) for number in range(1_200)), ("x" * 20_000,)])
    assert len(one_by_one) == 1_201
    assert Ready.objects.count() == 1_401
    assert [row.flags for row in Ready.objects.order_by("seq")][-2:] == [0, JobFlag.LARGE]
    QueueRow.objects.filter(name="default").update(cap_records=1_500)
    one_by_one.clear()
    samples.echo.enqueue_many((number,) for number in range(200))
    assert len(one_by_one) == 200
    assert Ready.objects.count() == 1_500


def test_a_payload_that_is_too_large_adds_nothing(settings: Any) -> None:
    samples.echo.enqueue(0)
    settings.LEASEQUEUE = {"MAX_PAYLOAD_BYTES": 2_000}
    with pytest.raises(PayloadTooLarge, match="more than 2000 bytes"):
        samples.echo.enqueue_many([*((number,) for number in range(1_200)), ("é" * 1_000,)])
    assert StoredJob.objects.count() == 1


def test_the_signal_is_sent_for_each() -> None:
    heard: list[str] = []
    samples.echo.enqueue(0)
    with connected(signals.task_enqueued, lambda task_result, **_: heard.append(task_result.id)):
        results = samples.echo.enqueue_many((number,) for number in range(200))
    assert heard == [result.id for result in results]
