"""Tasks that wait for the result of another: what one has heard, every later delivery hears again."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue import engine
from django_leasequeue.models import Job, JobResult, JobStep
from django_leasequeue.tasks.api import TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from tests.tasks import durable_tasks as tasks
from tests.tasks.helpers import drained

pytestmark = pytest.mark.django_db


def rows() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def forget_results(leasequeue: Harness) -> None:
    """Let results of other tasks expire."""
    leasequeue.advance(days=2)
    engine.run(engine.expire_results())
    assert not JobResult.objects.exists()


def die_behind_what_is_heard(leasequeue: Harness) -> None:
    """Break the next run off when it has heard of the other task, and before it does anything."""
    (waits,) = JobStep.objects.filter(name__startswith="wait ").values_list("name", flat=True)
    leasequeue.crash_after(f"result {waits.partition(' ')[2]}")
    assert leasequeue.drain("default")[0].state == "crashed"


@pytest.mark.parametrize("task", [tasks.refunder, tasks.async_refunder])
def test_a_timeout_that_a_task_has_heard_stays(leasequeue: Harness, task: Any) -> None:
    result = task.enqueue()
    assert drained(leasequeue, "default") == ["suspended"]
    leasequeue.advance(seconds=5)
    assert (drained(leasequeue, "default"), rows()) == (["suspended"], ["refunded"])
    assert drained(leasequeue, "packing") == ["completed"]
    leasequeue.advance(days=1)
    assert drained(leasequeue) == ["completed"]
    assert (result.wait(), rows()) == ("refunded", ["refunded"])


def test_a_timeout_stays_when_the_task_dies_as_it_hears_it(leasequeue: Harness) -> None:
    result = tasks.refunder.enqueue()
    assert drained(leasequeue, "default") == ["suspended"]
    leasequeue.advance(seconds=5)
    die_behind_what_is_heard(leasequeue)
    leasequeue.advance(days=1)
    assert (drained(leasequeue), result.wait(), rows()) == (["completed"] * 2, "refunded", ["refunded"])


def test_a_failure_stays_when_the_other_succeeds_later(
    leasequeue: Harness, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.LEASEQUEUE = {"MAX_RESULT_BYTES": 60}  # it is heard whatever a result may have
    result = tasks.refunder.enqueue(-1)
    assert drained(leasequeue) == ["suspended", "dead", "suspended"]
    monkeypatch.setattr(tasks, "refuse_negative", lambda number: None)
    assert Job.objects.dead().retry() == 1
    assert drained(leasequeue) == ["completed"]
    leasequeue.advance(days=1)
    assert (drained(leasequeue), result.wait(), rows()) == (["completed"], "complained", ["complained"])


@pytest.mark.parametrize("task", [tasks.refunder, tasks.async_refunder])
def test_a_value_stays_when_the_other_is_forgotten(leasequeue: Harness, task: Any) -> None:
    result = task.enqueue()
    assert drained(leasequeue) == ["suspended", "completed", "suspended"]
    forget_results(leasequeue)
    assert (drained(leasequeue), result.wait(), rows()) == (["completed"], "shipped", ["shipped"])


def test_the_value_of_what_has_replaced_a_task_stays_when_it_is_forgotten(leasequeue: Harness) -> None:
    result = tasks.replaced.enqueue()
    assert (drained(leasequeue, "default"), drained(leasequeue, "packing")) == (["suspended"], ["completed"])
    (job,) = engine.run(engine.claim("default", "who dies", 1, strict=False))
    assert TaskHandler().run(job, JobControl(job, "who dies")) == "8"
    engine.run(engine.nack([job.seq], "who dies"))
    forget_results(leasequeue)
    assert (drained(leasequeue), result.wait()) == (["completed"], 8)


def test_no_step_of_a_wait_is_called_unknown(leasequeue: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the delivery that hears the value nor in a later one."""
    result = tasks.refunder.enqueue()
    drained(leasequeue)
    leasequeue.advance(days=1)
    drained(leasequeue)
    assert result.wait() == "shipped"
    assert not JobStep.objects.filter(name__startswith="wait ").exists(), "it is over"
    assert "no longer knows" not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_nobody_hears_a_result_in_a_transaction(leasequeue: Harness) -> None:
    """It could be rolled back with what the task heard; and which of the two has ended first is chance."""
    child = tasks.doubler.enqueue(1)
    leasequeue.drain()
    result = tasks.waiter_in_a_transaction.using(max_attempts=1).enqueue(child.id)
    leasequeue.drain()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert "is inside of a transaction" in result.errors[0].traceback


@pytest.mark.parametrize("value", ["x" * 998, {"failed": ["x"]}, {"timed_out": True}, None, ["timed out"]])
def test_what_could_be_returned_is_heard(leasequeue: Harness, settings: Any, value: Any) -> None:
    """A result of as many bytes as one may have, and one that looks like another end."""
    settings.LEASEQUEUE = {"MAX_RESULT_BYTES": 1_000}
    result = tasks.hears.enqueue(value)
    assert drained(leasequeue) == ["suspended", "completed", "completed"]
    forget = JobStep.objects.filter(name__startswith="result ").count()
    assert (forget, result.wait()) == (1, len(str(value)))
