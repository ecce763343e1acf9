"""Many calls of a plain task at once: as one by one, though their results are made when they are asked for."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.enums import JobFlag
from django_leasequeue.exceptions import InvalidOption, PayloadTooLarge
from django_leasequeue.models import LeaseEvent, Queue, Ready, StoredJob
from django_leasequeue.tasks import calls, plain
from django_leasequeue.tasks.api import TaskResultStatus
from tests.support.heard import connected
from tests.tasks import samples
from tests.tasks.django_api import signals

pytestmark = pytest.mark.django_db

MANY = 2_300


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Any]]:
    """The arguments of calls that were prepared by themselves."""
    prepared: list[Sequence[Any]] = []
    prepare = calls.TaskCalls.prepare

    def spy(self: calls.TaskCalls, args: Sequence[Any], *rest: Any) -> Any:
        prepared.append(args)
        return prepare(self, args, *rest)

    monkeypatch.setattr(calls.TaskCalls, "prepare", spy)
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


def test_results_are_made_when_they_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    samples.echo.enqueue(0)  # makes the queue
    made: list[Any] = []
    new_result = plain.new_result
    monkeypatch.setattr(plain, "new_result", lambda *of: made.append(new_result(*of)) or made[-1])
    results = samples.echo.enqueue_many((number,) for number in range(MANY))
    assert (len(results), made) == (MANY, [])
    assert bool(results)
    first = results[0]
    assert len(made) == MANY
    assert [result.args for result in results] == [[number] for number in range(MANY)]
    assert results[:2] == [first, results[1]]
    assert next(iter(results)) is results[0] is first
    assert first in results
    assert repr(results) == repr(list(results))
    assert len(made) == MANY


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
    samples.echo.enqueue("x" * 20_000)
    assert len(one_by_one) == 1, "a large payload has a flag"
    Queue.objects.filter(name="default").update(cap_records=1)
    samples.echo.enqueue("capped")
    assert Ready.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_queue_with_ranks_and_a_time_to_live(one_by_one: list[Sequence[Any]]) -> None:
    samples.echo.enqueue(0)
    Queue.objects.filter(name="default").update(priority_order="asc", priority_min=3, priority_max=9, ttl_ms=60_000)
    one_by_one.clear()
    samples.echo.enqueue_many((number,) for number in range(200))
    assert not one_by_one
    jobs = StoredJob.objects.order_by("seq")[1:]
    assert {(job.rank, job.expires_at - job.created_at) for job in jobs} == {(3, timedelta(minutes=1))}
    assert {(row.rank, row.expires_at) for row in Ready.objects.exclude(rank=0)} == {(3, jobs[0].expires_at)}
    samples.echo.enqueue(200)
    assert one_by_one == [(200,)], "the statement for one knows rank 0 alone"
    assert len(engine.run(engine.claim("default", "worker", 1_000))) == 202


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
    Queue.objects.filter(name="default").update(cap_records=1_500)
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
