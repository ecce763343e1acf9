"""Tasks that add steps to their own workflow while they run."""

import pytest
from django.test import TestCase

from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.tasks import chain, current_workflow, group
from django_leasequeue.testing import Harness, LeaseQueueTestMixin
from tests.tasks import flow_samples as flow
from tests.tasks.helpers import run_one


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

    @pytest.mark.parametrize(
        ("what", "says"),
        [
            ("", "nothing was added"),
            ("twice", "enqueued already. Call current_workflow"),
            ("other", "after takes what add() of the same workflow returned"),
            ("id", "that of its task's result; it is 'nonsense'"),
            ("strange", "are not"),
        ],
    )
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
