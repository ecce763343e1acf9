"""Tasks that add steps to their own workflow while they run, and tasks that replace themselves by another call."""

from typing import Any

import pytest
from django.test import TestCase

from django_leasequeue.exceptions import InvalidOption, JobCancelled, JobFailed
from django_leasequeue.models import StoredJob
from django_leasequeue.tasks import chain, chord, current_workflow, group
from django_leasequeue.tasks.api import TaskResultDoesNotExist, TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness, LeaseQueueTestMixin
from tests.tasks import flow_samples as flow
from tests.tasks.helpers import run_one
from tests.worker.support import working

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("oracle")]


@pytest.mark.django_db
class TestGrowing:
    def test_a_running_task_adds_steps(self, leasequeue: Harness) -> None:
        result = chain(flow.spread.s(3), flow.given.s("next")).enqueue()
        assert result.wait() == [[3, "next"], [[0, 2, 4], "all"], [3, "this"], [[2, 4], "chord"]]
        assert (result.status.total, result.status.completed) == (10, 10)

    def test_steps_that_may_fail(self, leasequeue: Harness) -> None:
        result = group([flow.spread.s(1, 2)], on_failure=flow.sorry.s("word")).enqueue()
        leasequeue.drain()
        assert (result.status.label, result.status.failed, result.status.open) == ("failed", 2, 0)
        assert leasequeue.assert_enqueued(flow.given, "all").ran
        leasequeue.assert_enqueued(flow.sorry, result.id, "word", count=1)

    def test_an_attempt_that_fails_afterwards_adds_again(self, leasequeue: Harness) -> None:
        result = group([flow.grow.using(backoff=0).s("raise")], name="twice").enqueue()
        assert result.wait() == ["twice", 2, 2]

    @pytest.mark.parametrize(("what", "says"), [
        ("", "nothing was added"), ("twice", "enqueued already. Call current_workflow"),
        ("other", "after takes what add() of the same workflow returned"),
        ("id", "that of its task's result; it is 'nonsense'"), ("strange", "are not"),
    ])  # fmt: skip
    def test_what_does_not_go(self, what: str, says: str) -> None:
        result = group([flow.grow.using(max_attempts=1).s(what)]).enqueue()
        while run_one() is not None:
            pass
        (failed,) = (member for member in result.members() if member.state == "failed")
        assert failed.error_type == "django_leasequeue.exceptions.InvalidOption"
        assert failed.error is not None
        assert says in failed.error

    def test_outside_of_a_workflow(self) -> None:
        with pytest.raises(InvalidOption, match="No task runs here"):
            current_workflow()
        result = flow.grow.using(max_attempts=1).enqueue("x")
        assert run_one() == "dead"
        result.refresh()
        assert "runs in no workflow: enqueue it with chain" in result.errors[0].traceback


class InTests(LeaseQueueTestMixin, TestCase):
    async def test_async_tasks_add_steps(self) -> None:
        result = await chain(flow.double.s(4), flow.aspread.s()).aenqueue()
        assert await result.await_all() == [[[8, "first"], 9], "second"]


@pytest.mark.parametrize(("call", "value"), [
    (flow.become.s("double", 4), 8), (flow.abecome.s(4), 8), (flow.become.s("chain", 4), 16),
    (flow.become.s("group", 1, 2), [2, 4]), (flow.become.s("chord", 1, 2), 6),
    (flow.become.s("become", "become", "double", 3), 6),
])  # fmt: skip
def test_its_value_is_that_of_what_replaces_it(leasequeue: Harness, call: Any, value: Any, oracle: Any) -> None:
    result = call.enqueue()
    assert result.wait() == value
    after = chain(call, flow.given.s("next")).enqueue()
    assert after.wait() == [value, "next"]
    assert group(flow.double.s(5), call).enqueue().wait() == [10, value]
    assert chord([call, call], flow.given.s()).enqueue().wait() == [[value, value]]
    runs = sum(run.key == "become" for run in oracle.runs())
    assert runs in (0, 5, 15), "each function ran once, however often its job was claimed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("args", "value"), [(("chain", 4), 16), (("group", 1, 2), [2, 4]), (("chord", 1, 2), 6)])
def test_its_successors_go_on_without_a_reaper(args: Any, value: Any) -> None:
    result = chain(flow.become.s(*args), flow.given.s("next")).enqueue()
    with working(TaskHandler()):
        assert result.wait(timeout=60) == [value, "next"]


@pytest.mark.parametrize("call", ["fail", "become"])
def test_a_failure_is_its_own_and_is_not_tried_again(leasequeue: Harness, call: str) -> None:
    args = ("no",) if call == "fail" else ("fail", "no")
    result = flow.become.using(backoff=0).enqueue(call, *args)
    after = chain(flow.become.s(call, *args), flow.double.s()).enqueue()
    leasequeue.drain()
    with pytest.raises(JobFailed, match="FailForGood: no"):
        result.wait()
    result.refresh()
    assert len(result.errors) == 1
    assert [member.state for member in after.members()] == ["failed", "cancelled"]
    assert after.members()[0].error_type == "django_leasequeue.tasks.exceptions.FailForGood"


@pytest.mark.parametrize("args", [("sleep",), ("become", "sleep")])
def test_who_cancels_it_cancels_what_replaces_it(leasequeue: Harness, args: Any) -> None:
    alone, inside = flow.become.enqueue(*args), group([flow.become.s(*args)]).enqueue()
    leasequeue.drain()
    assert StoredJob.objects.count() == 2 * (len(args) + 1)
    assert alone.cancel()
    assert inside.cancel() == 1
    assert StoredJob.objects.count() == 0
    with pytest.raises(TaskResultDoesNotExist):
        alone.refresh()


def test_what_replaces_it_is_cancelled_by_itself(leasequeue: Harness) -> None:
    result = flow.become.enqueue("sleep")
    leasequeue.drain()
    assert flow.sleeper.jobs.cancel() == 1
    leasequeue.drain()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[-1].exception_class is JobCancelled


@pytest.mark.parametrize(("call", "says"), [
    (flow.become.using(max_attempts=1).s("nothing"), "takes a signature, such as"),
    (flow.become_atomic.using(max_attempts=1).s(), "is atomic and replaces itself"),
    (flow.deeper.using(max_attempts=1).s(101), "100 calls have replaced one another"),
])  # fmt: skip
def test_what_does_not_go(leasequeue: Harness, call: Any, says: str) -> None:
    result = call.enqueue()
    leasequeue.drain(advance=True)
    result.refresh()
    assert says in result.errors[-1].traceback


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_a_worker_goes_on_with_it_without_a_reaper_when_a_single_call_has_ended() -> None:
    with working(TaskHandler(), queues=["default"]):
        assert flow.become.enqueue("become", "double", 4).wait() == 8
        failing = flow.become.enqueue("fail", "no")
        with pytest.raises(JobFailed, match="FailForGood: no"):
            failing.wait()
