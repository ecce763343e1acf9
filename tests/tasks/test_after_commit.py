"""Tasks whose queue is in another database than the caller's data wait for the commit of the data."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import TestCase, override_settings

from django_leasequeue import engine
from django_leasequeue import signals as job_signals
from django_leasequeue.exceptions import InvalidOption, PayloadTooLarge
from django_leasequeue.models import Job, LiveJob
from django_leasequeue.tasks import LeaseQueueBackend, Limit, chain, get_workflow_result, group
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist
from tests.support.heard import connected
from tests.tasks import context_samples, context_settings, samples
from tests.tasks.helpers import run_one

FAR = {"DATABASE": "far"}


@pytest.fixture
def far(transactional_db: None) -> Iterator[None]:
    """Another alias, for the jobs: connections of their own, to the same server."""
    wrapper = connections["default"].copy("far")
    connections["far"] = wrapper
    wrapper.connect()  # before the alias is in the settings: django.test refuses those that a test does not name
    connections.settings["far"] = connections.settings["default"]
    try:
        with override_settings(LEASEQUEUE=FAR):
            yield
    finally:
        wrapper.close()
        del connections["far"]
        del connections.settings["far"]


def jobs() -> int:
    return LiveJob.objects.using("far").count()


pytestmark = pytest.mark.usefixtures("far")


def test_a_task_is_enqueued_when_the_data_is_committed_under_the_id_that_it_had() -> None:
    told: list[Any] = []
    with connected(job_signals.enqueued, lambda key, **_: told.append(key)):
        with transaction.atomic():
            never = samples.add.enqueue(1)
            transaction.set_rollback(True)
        assert (jobs(), never.enqueued_at) == (0, None)
        with pytest.raises(TaskResultDoesNotExist):
            samples.add.get_result(never.id)
        with transaction.atomic():
            result = samples.add.enqueue(1, second=2)
            assert uuid.UUID(result.id)
            assert (jobs(), told, result.enqueued_at) == (0, [], None)
    assert told == [result.id]
    assert result.enqueued_at is not None
    assert run_one() == "completed"
    result.refresh()
    assert result.return_value == 3


def test_many_tasks_wait_too() -> None:
    with transaction.atomic():
        samples.add.enqueue_many([(1,), (2,)])
        transaction.set_rollback(True)
    with transaction.atomic():
        results = samples.add.enqueue_many([(number,) for number in range(600)])
        assert jobs() == 0
    assert jobs() == 600
    assert samples.add.get_result(results[-1].id).args == [599]


def test_a_savepoint_that_is_rolled_back_takes_its_tasks_along() -> None:
    with transaction.atomic():
        with transaction.atomic():
            samples.add.enqueue(1)
            transaction.set_rollback(True)
        kept = samples.add.enqueue(2)
    assert list(LiveJob.objects.using("far").values_list("key", flat=True)) == [kept.id]


@pytest.mark.parametrize("setting", [None, "far", "gone"])
def test_without_a_transaction_or_turned_off_it_is_enqueued_at_once(setting: str | None) -> None:
    assert samples.add.enqueue(1).enqueued_at is not None
    assert jobs() == 1
    with transaction.atomic(), transaction.atomic(using="far"):  # the one on the jobs' own alias decides
        samples.add.enqueue(1)
        assert jobs() == 2
    with override_settings(LEASEQUEUE={**FAR, "ENQUEUE_AFTER_COMMIT_OF": setting}), transaction.atomic():
        samples.add.enqueue(1)
        assert jobs() == 3


def test_a_backend_with_a_database_of_its_own_waits_and_refuses_before_the_commit() -> None:
    backend = LeaseQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": "far"}})
    with override_settings(LEASEQUEUE={}), transaction.atomic():
        backend.enqueue(samples.add, [1], {})
        transaction.set_rollback(True)
    assert jobs() == 0
    with override_settings(LEASEQUEUE={**FAR, "MAX_PAYLOAD_BYTES": 100}), transaction.atomic():
        with pytest.raises(PayloadTooLarge):
            samples.echo.enqueue("x" * 200)
        assert not connections["default"].run_on_commit


def test_the_transaction_around_a_test_does_not_count() -> None:
    block = transaction.atomic()
    block._from_testcase = True  # as TestCase marks its own
    with block:
        samples.add.enqueue(1)
        assert jobs() == 1
        with TestCase.captureOnCommitCallbacks() as callbacks, transaction.atomic():
            samples.add.enqueue(2)
            assert jobs() == 1
        assert len(callbacks) == 1


def test_tasks_with_a_key_become_those_that_are_there_then_and_those_under_a_limit_wait_too() -> None:
    there = samples.send_invoice.enqueue(5)
    with transaction.atomic():
        result = samples.send_invoice.enqueue(5)
        new = samples.send_invoice.enqueue(6)
        assert (result.created, new.created) == (None, None)
        promised = new.id
    assert (result.id, result.created, new.id, new.created) == (there.id, False, promised, True)
    assert jobs() == 2
    limited = samples.add.using(limit=Limit("k", concurrency=1))
    with transaction.atomic():
        limited.using(queue_name="limited").enqueue_many([(1,), (2,)])
        assert jobs() == 2
    assert [job.data["args"] for job in engine.run(engine.claim("limited", "worker-1", 10), "far")] == [[1]]
    with pytest.raises(InvalidTask, match="the key of a limit"), transaction.atomic():
        samples.echo.using(limit=Limit("{value}", concurrency=1)).enqueue("")


def test_a_workflow_waits_for_the_commit_too() -> None:
    with transaction.atomic():
        group([samples.add.s(1)]).enqueue()
        transaction.set_rollback(True)
    assert jobs() == 0
    with transaction.atomic():
        result = chain(samples.add.s(1, 1), samples.add.s()).enqueue()
        with pytest.raises(InvalidOption, match="not enqueued before the transaction"):
            result.wait()
        with pytest.raises(TaskResultDoesNotExist):
            _ = result.status
    assert result.status.total == 2
    assert get_workflow_result(result.id).status.label == "running"
    with pytest.raises(PayloadTooLarge), transaction.atomic():
        group([samples.echo.s("x" * 20_000_000)]).enqueue()


def test_a_call_carries_the_context_that_was_there_when_it_was_made() -> None:
    context = context_settings.LEASEQUEUE
    with override_settings(LEASEQUEUE={**FAR, **context}), transaction.atomic():
        token = context_samples.user.set("ada")
        context_samples.tell.enqueue()
        context_samples.user.reset(token)
        assert jobs() == 0
    assert Job.objects.using("far").get().meta == {"$context": {"user": "ada", "token": "t-1"}}
