"""A cancelled workflow undoes the steps of its unfinished jobs, as the cancel of each of them would."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_leasequeue.models import Job, StoredJob, Workflow
from django_leasequeue.tasks import FailForGood, chain, group
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from tests.support.waiting import eventually
from tests.tasks import undo_tasks as tasks
from tests.tasks.helpers import drained, run_one
from tests.worker.support import working

pytestmark = pytest.mark.django_db


def undone(result: Any) -> None:
    """Check that all is as after the cancel of the only job that had begun, and the workflow has ended."""
    assert tasks.found() == tasks.UNDONE
    assert not StoredJob.objects.exists()
    status = result.status
    assert (status.label, status.open, status.cancelled) == ("cancelled", 0, status.total)


class TestWaiting:
    @pytest.mark.parametrize(("how", "state"), [("wrong", "failing"), ("sleeps", "suspended")])
    def test_for_its_retry_or_its_time(self, leasequeue: Harness, how: str, state: str) -> None:
        result = chain(tasks.trip.s(how), tasks.decorated_trip.si()).enqueue()
        assert drained(leasequeue) == [state]
        assert result.cancel() == 2
        assert (result.cancel(), tasks.booked()) == (0, ["car", "flight", "hotel", "look"])
        drained(leasequeue)
        undone(result)

    def test_in_ready(self, leasequeue: Harness) -> None:
        result = group([tasks.trip.using(backoff=0).s("wrong")]).enqueue()
        assert run_one() == "failing"
        assert Job.objects.get().state == "ready"
        assert result.cancel() == 1
        drained(leasequeue)
        undone(result)

    def test_one_without_a_step_goes_at_once(self, leasequeue: Harness) -> None:
        result = group([tasks.trip.s("sleeps"), tasks.trip.s("sleeps")]).enqueue()
        assert (result.cancel(), StoredJob.objects.count()) == (2, 0)
        assert (drained(leasequeue), tasks.done, result.status.open) == ([], [], 0)

    def test_a_crash_or_an_error_in_the_middle_of_undoing(self, leasequeue: Harness) -> None:
        result = group([tasks.trip.s("wrong")]).enqueue()
        drained(leasequeue)
        tasks.broken.add("flight")
        assert result.cancel() == 1
        leasequeue.crash_after("$undo hotel")
        assert drained(leasequeue) == ["crashed", "failing"]
        assert tasks.done == ["mail", "car", "hotel"]
        tasks.broken.clear()
        drained(leasequeue, advance=True)
        undone(result)

    def test_what_undoes_after_a_failure_goes_on_and_fails(self, leasequeue: Harness) -> None:
        result = group([tasks.trip.s("for good")]).enqueue()
        assert run_one() == "failing"
        assert result.cancel() == 0
        assert drained(leasequeue) == ["failed"]
        assert tasks.found() == tasks.UNDONE
        assert (result.status.label, result.status.failed, result.status.open) == ("cancelled", 1, 0)


class TestRunning:
    @pytest.fixture
    def cancelled(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        def enqueue(heed: Callable[[], None]) -> Any:
            def cancel(how: str) -> None:
                assert result.cancel() == 0
                tasks.control().abort("cancelled")  # as a worker does that is told
                heed()

            monkeypatch.setattr(tasks, "fail", cancel)
            result = group([tasks.trip.s("")]).enqueue()
            return result

        return enqueue

    @pytest.mark.parametrize("heed", [lambda: tasks.control().raise_if_aborted(), lambda: {}["would be tried again"]])
    def test_one_that_heeds_or_fails(self, leasequeue: Harness, cancelled: Any, heed: Any) -> None:
        result = cancelled(heed)
        drained(leasequeue)
        undone(result)

    def test_one_that_fails_for_good_undoes_and_has_failed(self, leasequeue: Harness, cancelled: Any) -> None:
        def fail() -> None:
            raise FailForGood("no")

        result = cancelled(fail)
        assert drained(leasequeue) == ["failing", "failed"]
        assert tasks.found() == tasks.UNDONE
        assert (result.status.label, result.status.failed, result.status.open) == ("cancelled", 1, 0)

    def test_one_that_goes_on_counts_as_what_it_becomes(self, leasequeue: Harness, cancelled: Any) -> None:
        result = cancelled(lambda: None)
        assert drained(leasequeue) == ["completed"]
        assert (tasks.done, result.status.completed) == (["mail"], 1)


def test_one_that_fails_for_good_while_its_worker_stops_undoes_its_steps(
    leasequeue: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(how: str) -> None:
        tasks.control().abort("stopping")
        raise FailForGood("no")

    monkeypatch.setattr(tasks, "fail", stop)
    tasks.trip.enqueue()
    assert drained(leasequeue) == ["failing", "failed"]
    assert tasks.found() == tasks.UNDONE


@pytest.mark.parametrize("workflow", [True, False])
def test_what_has_replaced_a_job_undoes_its_steps(leasequeue: Harness, workflow: bool) -> None:
    calls: list[Any] = [group([tasks.becomes.s(workflow)]).enqueue, lambda: tasks.becomes.enqueue(workflow)]
    for enqueue in calls:
        result = enqueue()
        drained(leasequeue)
        assert result.cancel() == 1
        drained(leasequeue)
        assert (*tasks.found(), StoredJob.objects.count()) == (*tasks.UNDONE, 0)
        tasks.done.clear()


def test_from_the_admin(leasequeue: Harness, admin_client: Client) -> None:
    result = chain(tasks.trip.s("wrong"), tasks.decorated_trip.si()).enqueue()
    drained(leasequeue)
    page = f"/admin/leasequeue/workflow/{Workflow.objects.get().uid}/"
    assert admin_client.post(page + "act/", {"action": "cancel"}).status_code == 302
    drained(leasequeue)
    undone(result)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_workers_undo_what_runs_waits_and_sleeps() -> None:
    """It is slow by its worker."""
    result = group([tasks.slow_trip.s(), tasks.trip.s("wrong"), tasks.decorated_trip.s("sleeps")]).enqueue()
    with working(TaskHandler(), queues=["default"], concurrency=2, reaper=True):
        eventually(lambda: {"slow", "car", "decorated flight"} <= {*tasks.booked()} and "mail" in tasks.done)
        eventually(lambda: Job.objects.filter(state="delayed").count() == 2)
        assert result.cancel() == 2
        eventually(lambda: not StoredJob.objects.exists())
        eventually(lambda: result.status.open == 0)
    assert sorted(tasks.done) == ["car", "decorated flight", "flight", "hotel", "mail", "slow"]
    assert tasks.booked() == ["look"]
    assert result.status.cancelled == 3
