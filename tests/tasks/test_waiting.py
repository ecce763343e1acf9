"""Results are cancelled and waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.test import TestCase

from django_leasequeue import engine
from django_leasequeue.engine import Ending
from django_leasequeue.exceptions import InvalidOption, JobCancelled, JobFailed, WaitTimeout
from django_leasequeue.models import LiveJob
from django_leasequeue.notify import close_listeners
from django_leasequeue.notify.replies import get_hub
from django_leasequeue.tasks import Limit, chain
from django_leasequeue.tasks.api import TaskResultDoesNotExist
from django_leasequeue.testing import LeaseQueueTestMixin
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.helpers import NODE, claim, run_one


@pytest.fixture
def _listeners_end() -> Any:
    yield
    close_listeners()


def soon(work: Callable[[], object], waiting: Callable[[], bool]) -> ThreadResult:
    """Work in a thread of its own, as soon as somebody waits."""
    return ThreadResult(lambda: eventually(waiting) and work())


def told() -> bool:
    return LiveJob.objects.exclude(reply_to=None).exists()


@pytest.mark.django_db
def test_only_a_task_that_nobody_runs_is_taken_out_also_between_two_attempts() -> None:
    result = samples.add.enqueue(1)
    assert result.cancel() is True
    assert not LiveJob.objects.exists()
    assert result.cancel() is False
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
    first = samples.fail_twice.enqueue()
    assert run_one() == "failing"
    assert samples.fail_twice.get_result(first.id).cancel() is True
    assert not LiveJob.objects.exists()
    result = samples.add.enqueue(1)  # nor one that runs or has ended
    claim()
    assert result.cancel() is False
    done = samples.add.enqueue(1)
    run_one()
    assert done.cancel() is False
    assert done.wait() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_listeners_end")
class TestWait:
    def test_it_returns_what_the_task_returned(self) -> None:
        result = samples.add.enqueue(1, second=2)
        with soon(run_one, told):
            assert result.wait(timeout=30) == 3
        assert result.status == "SUCCESSFUL"

    def test_a_task_that_went_to_another_queue_is_waited_for(self) -> None:
        result = samples.add.enqueue(7)
        elsewhere = samples.add.get_result(result.id)
        object.__setattr__(elsewhere, "task", samples.add.using(queue_name="elsewhere"))
        with soon(run_one, lambda: get_hub("default").waiting == 1):
            assert elsewhere.wait(timeout=30) == 7

    def test_a_failure_is_raised(self) -> None:
        result = samples.fail.using(max_attempts=1).enqueue("it broke")
        run_one()
        with pytest.raises(JobFailed, match=r"failed: builtins\.ValueError: it broke") as raised:
            result.wait()
        assert (raised.value.error_type, raised.value.error) == ("builtins.ValueError", "it broke")
        assert "in fail" in raised.value.traceback

    def test_a_task_that_is_cancelled_meanwhile(self) -> None:
        result = samples.add.enqueue(1)
        with soon(result.cancel, told), pytest.raises(JobCancelled, match="is gone"):
            samples.add.get_result(result.id).wait(timeout=30)

    def test_a_task_that_runs(self) -> None:
        result = samples.add.using(limit=Limit("one", concurrency=1)).enqueue(1)
        other = samples.add.using(limit=Limit("one", concurrency=1)).enqueue(2)
        flow = chain(samples.add.s(3), samples.add.s(4), on_failure=samples.echo.si("sorry")).enqueue()
        held = {job.key: job for job in [*claim(size=9), *claim(size=9)]}
        member = samples.add.get_result(str(flow.members()[0].id))
        assert held.keys() == {result.id, member.id}
        assert (result.cancel(), result.cancel(running=True), result.cancel(running=True)) == (False, True, False)
        assert member.cancel(running=True)
        with pytest.raises(JobCancelled):
            result.wait()
        settled = engine.run(engine.finish([Ending(job.seq, job.token) for job in held.values()], NODE))
        assert set(settled.outcomes.values()) == {engine.Outcome.NOT_FOUND}
        assert [job.key for job in claim(size=9)] == [other.id]
        assert (flow.status.label, flow.status.cancelled, flow.status.open) == ("cancelled", 2, 0)

    def test_not_for_ever(self) -> None:
        result = samples.add.enqueue(1)
        for timeout in (0, -1, float("nan"), "1", True, 86_401):
            with pytest.raises(InvalidOption, match="timeout must be seconds"):
                result.wait(timeout=timeout)
        with transaction.atomic(), pytest.raises(InvalidOption, match="no worker can see"):
            samples.add.enqueue(1).wait()
        with pytest.raises(WaitTimeout, match="It goes on"):
            result.wait(timeout=0.1)
        assert run_one() == "completed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_listeners_end", "native")
class TestAwait:
    async def test_it_returns_what_the_task_returned(self) -> None:
        result = await samples.aecho.aenqueue("word")
        with soon(run_one, told):
            assert await result.await_result(timeout=30) == "word"

    async def test_cancel_and_time_out(self) -> None:
        result = await samples.aecho.aenqueue("word")
        with pytest.raises(WaitTimeout):
            await result.await_result(timeout=0.1)
        assert await result.acancel() is True
        with pytest.raises(JobCancelled):
            await result.await_result()

    @pytest.mark.slow
    async def test_while_the_database_is_away_it_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        result = await samples.aecho.aenqueue("word")
        usual, calls = type(result).arefresh, 0

        async def away(self: Any) -> None:
            nonlocal calls
            calls += 1
            if 1 < calls < 5:  # the first look is before it listens
                raise OperationalError("away")
            await usual(self)

        monkeypatch.setattr(type(result), "arefresh", away)
        with soon(run_one, lambda: calls >= 4):
            assert await result.await_result(timeout=30) == "word"


class InTests(LeaseQueueTestMixin, TestCase):
    """In a test the task runs in place of the waiting."""

    def test_wait(self) -> None:
        assert samples.add.enqueue(2, second=3).wait() == 5

    async def test_await(self) -> None:
        result = await samples.aecho.aenqueue("word")
        assert await result.await_result() == "word"
