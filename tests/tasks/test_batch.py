"""Batch tasks: their declaration, their calls, one call alone, and tests with the harness."""

from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks import Batch, BatchCall, chain, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultStatus
from django_leasequeue.tasks.batch import close
from django_leasequeue.testing import Harness
from tests.tasks import batch_samples, samples
from tests.tasks.helpers import run_one


def plain(batch: Any) -> None: ...


def wide(batch: Any, more: int) -> None: ...


@pytest.mark.parametrize(("function", "options", "says"), [
    (plain, {"batch": 0}, "batch must be a whole number from 1 to 1000; it is 0"),
    (plain, {"batch": True}, "batch must be a whole number"), (plain, {"batch": 1_001}, "batch must be"),
    (plain, {"batch": 5, "batch_wait": -1}, "batch_wait must be a number of seconds from 0"),
    (plain, {"batch": 5, "batch_wait": 61}, "batch_wait must be at most 60 seconds; it is 61"),
    (plain, {"batch": 5, "batch_by": "a b"}, "batch_by must be the name of a keyword argument"),
    (plain, {"batch_wait": 1}, "batch_wait is about a batch"), (plain, {"batch_by": "a"}, "batch_by is about a batch"),
    (plain, {"batch": 5, "atomic": True}, "atomic is for tasks that run one call at a time"),
    (plain, {"batch": 5, "isolate": True}, "isolate is for tasks"),
    (plain, {"batch": 5, "deadline": 60}, "deadline is for tasks"),
    (plain, {"batch": 5, "takes_context": True}, "takes_context is for tasks"),
    (wide, {"batch": 5}, "takes the batch alone.*missing a required argument: 'more'"),
    (plain, {"batch": 5, "limit": 5}, "limit must be a Limit"),
])  # fmt: skip
def test_bad_options_are_refused_at_the_declaration(function: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        task(**options)(function)


def test_using_keeps_what_a_batch_task_is() -> None:
    copy = batch_samples.tens.using(priority=5, max_attempts=1)
    assert (copy.batch, copy.batch_wait, copy.func) == (10, 60.0, batch_samples.tens.func)
    options: Any = {"batch": 3}
    with pytest.raises(TypeError, match="batch"):
        copy.using(**options)


@pytest.mark.django_db
def test_a_call_takes_any_arguments_and_the_one_that_groups() -> None:
    batch_samples.tens.enqueue(1, "two", three=[3])
    batch_samples.by_tenant.enqueue(tenant=1)
    with pytest.raises(TypeError, match=r"missing a required.*tenant.*It takes \(\*args, tenant, \*\*kwargs\)"):
        batch_samples.by_tenant.enqueue(1)


def test_a_batch_says_which_answers_it_takes() -> None:
    batch = Batch([BatchCall((n,), {"word": "a"}, f"id-{n}", n + 1) for n in range(3)])
    assert [len(batch), batch[1].args, batch[2].kwargs, batch[-1].id, batch[0].attempt, batch[0].lost] == [
        3, (1,), {"word": "a"}, "id-2", 1, False,
    ]  # fmt: skip
    answers: Any = batch
    for index in (3, -1, True, "0"):
        with pytest.raises(InvalidOption, match="index must be that of a call, 0 to 2; it is"):
            answers.ok(index)
    with pytest.raises(InvalidOption, match=r"error must be an exception.*it is 'no'"):
        answers.fail(0, "no")
    batch.fail(0, ValueError("first"))
    batch.ok(0, "last")
    raised = KeyError("all")
    assert close(batch, raised) == [("last", None), (None, raised), (None, raised)]
    with pytest.raises(InvalidOption, match="no answers after the end of its run"):
        batch.ok(1)


def test_a_direct_call_is_a_batch_of_one() -> None:
    assert batch_samples.mixed.call(7) == ["", 1, 7]
    with pytest.raises(ValueError, match="no luck"):
        batch_samples.mixed.call("fail")
    with pytest.raises(KeyError, match="all"):
        batch_samples.mixed.call("raise")


@pytest.mark.django_db
@pytest.mark.parametrize("declared", [batch_samples.mixed, batch_samples.amixed], ids=["plain", "async"])
def test_a_job_that_runs_alone_is_a_batch_of_one(declared: Any) -> None:
    """As suspects do, and jobs under a rate."""
    result = declared.enqueue(7)
    assert run_one() == "completed"
    result.refresh()
    assert result.return_value == [result.id, 1, 7]
    steps = batch_samples.steps.enqueue("step")
    assert run_one() == "completed"
    steps.refresh()
    assert "task of its own" in steps.return_value


@pytest.mark.django_db
def test_a_value_that_is_returned_belongs_to_no_call() -> None:
    batch_samples.returns.enqueue(1)
    [ran] = Harness().drain()
    assert isinstance(ran.error, TypeError)
    assert "answers with batch.ok(index, value) and returns None, not 5" in str(ran.error)


@pytest.mark.django_db
@pytest.mark.parametrize("declared", [batch_samples.mixed, batch_samples.amixed], ids=["plain", "async"])
def test_the_harness_runs_ready_jobs_together(declared: Any, leasequeue: Harness) -> None:
    before = samples.add.enqueue(1, 2)
    results = [declared.enqueue(word) for word in ("ok", "fail", "for good")]
    between = samples.add.enqueue(3, 4)
    last = declared.enqueue("ok")
    ran = leasequeue.drain()
    assert batch_samples.runs == [["ok", "fail", "for good", "ok"], ["fail"]]
    states = ["completed", "completed", "failing", "failed", "completed", "dead", "completed"]
    assert [one.state for one in ran] == states
    for result in (before, *results, between, last):
        result.refresh()
    assert [result.attempts for result in results] == [1, 2, 1]
    assert (before.return_value, between.return_value, last.return_value[2]) == (3, 7, "ok")
    assert between.attempts == 1, "it was given back uncounted"


@pytest.mark.django_db
def test_the_harness_raises_the_first_error_when_all_are_settled(leasequeue: Harness) -> None:
    results = [batch_samples.mixed.using(max_attempts=1).enqueue(word) for word in ("ok", "fail", 3)]
    with pytest.raises(ValueError, match="no luck"):
        leasequeue.drain(raise_errors=True)
    for result in results:
        result.refresh()
    assert [result.status for result in results] == [
        TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL,
    ]  # fmt: skip


@pytest.mark.django_db
def test_a_database_error_of_a_run_does_not_break_the_tests_transaction(leasequeue: Harness) -> None:
    batch_samples.breaks.enqueue_many([(1,), (2,)])
    ran = leasequeue.drain()
    assert [one.state for one in ran] == ["dead", "dead"]
    assert LiveJob.objects.filter(state=3).count() == 2


@pytest.mark.django_db
def test_a_step_of_a_workflow_may_be_a_call_of_a_batch(leasequeue: Harness) -> None:
    results = [chain(samples.add.s(1, n), batch_samples.mixed.s()).enqueue() for n in range(3)]
    leasequeue.drain()
    assert [result.wait()[2] for result in results] == [1, 2, 3]


@pytest.mark.django_db
def test_arguments_that_cannot_be_read_fail_their_own_job(leasequeue: Harness) -> None:
    good = batch_samples.mixed.enqueue(1)
    Queue("default").enqueue({"words": 1}, name=batch_samples.mixed.module_path)
    ran = leasequeue.drain()
    assert [one.state for one in ran[:2]] == ["completed", "failing"]
    assert "The payload of a task is" in str(ran[1].error)
    good.refresh()
    assert good.return_value[2] == 1
