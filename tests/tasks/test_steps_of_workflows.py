"""Steps with options of their own (a time, a limit, a key, a queue), steps that start when others fail, steps that
tasks add to their own workflow, and tasks that replace themselves by another call."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption, JobCancelled, JobFailed
from django_leasequeue.models import Delayed, Member, StoredJob
from django_leasequeue.tasks import Limit, Workflow, chain, chord, current_workflow, group
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist, TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from tests.tasks import flow_samples as flow
from tests.tasks.helpers import run_all, run_one, states
from tests.worker.support import working

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("oracle")]

LIMIT = Limit("steps", concurrency=1)


class TestTimes:
    @pytest.mark.parametrize("delay", [60, timedelta(minutes=1)])
    @pytest.mark.parametrize("options", [{}, {"limit": LIMIT}, {"queue_name": "other"}])
    def test_a_delay_counts_from_the_end_of_what_is_before(self, clock: Clock, delay: Any, options: Any) -> None:
        queue = options.get("queue_name", "default")
        late = flow.double.using(run_after=delay, **options)
        result = chain(late.s(1), late.s(), flow.double.s()).enqueue()
        for step in range(2):
            clock.advance(seconds=59)
            run_all(queue)
            assert states(result)[step] == "delayed", "not sixty seconds from the call, but from the end before"
            clock.advance(seconds=2)
            assert len(run_all(queue)) == 1 + (step == 1 and queue == "default")
        run_all()
        assert result.results() == [8]

    def test_a_time_is_the_earliest_also_of_callbacks_of_chords_and_failures(self, clock: Clock) -> None:
        later = clock.now + timedelta(hours=1)
        result = chain(flow.double.s(1), flow.double.using(run_after=later).s()).enqueue()
        past = chain(flow.double.s(1), flow.double.using(run_after=later - timedelta(hours=2)).s()).enqueue()
        assert [len(run_all()), len(run_all())] == [2, 1], "a time that is over is due at once"
        assert (states(result), past.results()) == (["completed", "delayed"], [4])
        clock.advance(hours=1, seconds=1)
        run_all()
        assert result.results() == [4]
        given, sorry = flow.given.using(run_after=60), flow.sorry.using(run_after=60)
        result = chord([flow.double.s(1), flow.fail_for_good.s()], given.s(), allow_failures=True).enqueue()
        broken = chain(flow.fail_for_good.s(), on_failure=sorry.s()).enqueue()
        assert len(run_all()) == 3
        assert (states(result)[-1], Delayed.objects.count()) == ("delayed", 2)
        clock.advance(seconds=61)
        assert len(run_all()) == 2
        assert (result.status.open, broken.status.failed) == (0, 1)

    def test_another_attempt_does_not_wait_again_nor_what_is_cancelled(self, clock: Clock, tmp_path: Path) -> None:
        late = flow.fail_once.using(run_after=60, backoff=0).si(str(tmp_path))
        result = chain(flow.double.si(1), late).enqueue()
        assert (len(run_all()), late.task.run_delay) == (1, timedelta(seconds=60))
        clock.advance(seconds=61)
        assert len(run_all()) == 2, "it failed, and was tried again at once"
        assert result.status.label == "completed"
        result = chain(flow.double.s(1), flow.double.using(run_after=60).s()).enqueue()
        run_all()
        assert (result.cancel(), run_all()) == (1, [])
        assert (Delayed.objects.count(), result.status.label) == (0, "cancelled")
        for wrong in (float("nan"), float("inf"), timedelta.max):
            with pytest.raises(InvalidTask):
                flow.double.using(run_after=wrong)


class TestKeys:
    def test_a_step_has_a_key_while_its_workflow_is_on_the_way(self) -> None:
        keyed = flow.double.using(key="step")
        result = chain(flow.double.s(1), keyed.s()).enqueue()
        before = StoredJob.objects.count()
        assert keyed.enqueue(7).id == result.members()[1].id, "the key is taken: that job is the answer"
        for again in (chain(keyed.s(1)), group(flow.double.s(1), keyed.s(2))):
            with pytest.raises(InvalidOption, match=r"key 'step' of a step .* nothing of the workflow"):
                again.enqueue()
        assert StoredJob.objects.count() == before
        run_all()
        assert chain(keyed.s(1)).enqueue().status.total == 1
        with pytest.raises(InvalidTask, match="not known before the job before"):
            chain(flow.double.s(1), flow.double.using(key=str).s()).enqueue()
        with pytest.raises(InvalidTask, match="takes nothing from another job"):
            chain(flow.double.using(key="k", on_conflict="replace").s(1)).enqueue()
        with pytest.raises(InvalidOption, match="the key 'two'"):
            group(flow.double.using(key="two").s(number) for number in range(2)).enqueue()


class TestFailuresOfSteps:
    def test_it_gets_what_failed_and_the_rest_is_as_without_it(self) -> None:
        step = flow.fail_for_good.si("no").on_failure(flow.excuse.s("word"))
        result = chain(flow.double.si(1), step, flow.double.s()).enqueue()
        assert len(run_all()) == 3
        assert states(result) == ["completed", "failed", "completed", "cancelled"]
        error = ["django_leasequeue.tasks.exceptions.FailForGood", "no"]
        assert result["excuse"].value == [False, *error, "word"]
        with pytest.raises(JobFailed, match="no"):
            result.results()

    def test_it_is_gone_where_the_step_succeeds(self) -> None:
        fine = flow.double.s(2).on_failure(flow.excuse.s("word"))
        single, chained = chain(fine).enqueue(), chain(fine, flow.double.s()).enqueue()
        both = group(fine, fine).enqueue()
        run_all()
        assert (single.results(), chained.results(), both.results()) == ([4], [8], [4, 4])
        assert [each.status.total for each in (single, chained, both)] == [1, 2, 2]
        assert (StoredJob.objects.filter(name__endswith="excuse").count(), Delayed.objects.count()) == (0, 0)

    def test_it_does_not_start_for_a_step_that_was_cancelled_but_may_after_a_retry(self) -> None:
        broken = flow.fail_once.using(max_attempts=1)
        step = flow.fail_for_good.si("no").on_failure(flow.excuse.si(flow.Outcome(True, 1, None, None, None), "x"))
        result = chain(broken.si("/nowhere"), step).enqueue()
        assert len(run_all()) == 1
        assert states(result) == ["failed", "cancelled", "cancelled"]
        assert result["excuse"].status == TaskResultStatus.FAILED
        assert Member.objects.filter(for_failure=True).count() == 1

    def test_an_immutable_one_and_what_does_not_go(self, leasequeue: Harness) -> None:
        workflow = Workflow(on_failure=flow.sorry.s("all"))
        workflow.add(flow.fail_for_good.s().on_failure(flow.given.si("only this")), name="bad")
        result = workflow.enqueue()
        leasequeue.drain()
        assert result["given"].value == ["only this"]
        leasequeue.assert_enqueued(flow.sorry, result.id, "all", count=1)
        good = flow.double.s(1).on_failure(flow.excuse.s("x"))
        for wrong in (flow.double, good):
            with pytest.raises(InvalidOption, match="takes a signature without"):
                flow.double.s(1).on_failure(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="enqueue chain"):
            good.enqueue()


def test_steps_that_a_task_adds_are_in_its_queue_unless_its_code_names_one() -> None:
    result = chain(flow.add_elsewhere.using(queue_name="other").s()).enqueue()
    run_all("other")
    run_all()
    assert [(member.name, member.queue) for member in result.members()] == [
        ("add_elsewhere", "other"), ("inherits", "other"), ("told", "default"), ("at_home", "default"),
        ("read", "default"), ("of Django", "other"), ("of Django, told", "default"),
    ]  # fmt: skip


class TestGrowing:
    def test_a_running_task_adds_steps(self, leasequeue: Harness) -> None:
        result = chain(flow.spread.s(3), flow.given.s("next")).enqueue()
        assert result.wait() == [[3, "next"], [[0, 2, 4], "all"], [3, "this"], [[2, 4], "chord"]]
        assert (result.status.total, result.status.completed) == (10, 10)
        again = group([flow.grow.using(backoff=0).s("raise")], name="twice").enqueue()
        assert again.wait() == ["twice", 2, 2], "an attempt that fails afterwards adds again"
        assert chain(flow.double.s(4), flow.aspread.s()).enqueue().wait() == [[[8, "first"], 9], "second"]

    def test_steps_that_may_fail(self, leasequeue: Harness) -> None:
        result = group([flow.spread.s(1, 2)], on_failure=flow.sorry.s("word")).enqueue()
        leasequeue.drain()
        assert (result.status.label, result.status.failed, result.status.open) == ("failed", 2, 0)
        assert leasequeue.assert_enqueued(flow.given, "all").ran
        leasequeue.assert_enqueued(flow.sorry, result.id, "word", count=1)

    @pytest.mark.parametrize(("what", "says"), [
        ("", "nothing was added"), ("twice", "enqueued already. Call current_workflow"),
        ("other", "after takes what add() of the same workflow returned"),
        ("id", "that of its task's result; it is 'nonsense'"), ("strange", "are not"),
    ])  # fmt: skip
    def test_what_does_not_go(self, what: str, says: str) -> None:
        result = group([flow.grow.using(max_attempts=1).s(what)]).enqueue()
        run_all()
        (failed,) = (member for member in result.members() if member.state == "failed")
        assert failed.error_type == "django_leasequeue.exceptions.InvalidOption"
        assert says in str(failed.error)

    def test_outside_of_a_workflow(self) -> None:
        with pytest.raises(InvalidOption, match="No task runs here"):
            current_workflow()
        result = flow.grow.using(max_attempts=1).enqueue("x")
        assert run_one() == "dead"
        result.refresh()
        assert "runs in no workflow: enqueue it with chain" in result.errors[0].traceback


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
def test_a_worker_goes_on_with_it_without_a_reaper() -> None:
    calls = [("chain", 4), ("group", 1, 2), ("chord", 1, 2)]
    results = [chain(flow.become.s(*args), flow.given.s("next")).enqueue() for args in calls]
    single, failing = flow.become.enqueue("become", "double", 4), flow.become.enqueue("fail", "no")
    with working(TaskHandler(), queues=["default"]):
        assert [result.wait(timeout=60) for result in results] == [[16, "next"], [[2, 4], "next"], [6, "next"]]
        assert single.wait(timeout=60) == 8
        with pytest.raises(JobFailed, match="FailForGood: no"):
            failing.wait(timeout=60)


@pytest.mark.parametrize("args", [("fail", "no"), ("become", "fail", "no")])
def test_a_failure_is_its_own_and_is_not_tried_again(leasequeue: Harness, args: Any) -> None:
    result = flow.become.using(backoff=0).enqueue(*args)
    after = chain(flow.become.s(*args), flow.double.s()).enqueue()
    leasequeue.drain()
    with pytest.raises(JobFailed, match="FailForGood: no"):
        result.wait()
    assert len(result.errors) == 1
    assert states(after) == ["failed", "cancelled"]
    assert after.members()[0].error_type == "django_leasequeue.tasks.exceptions.FailForGood"


@pytest.mark.parametrize("args", [("sleep",), ("become", "sleep")])
def test_who_cancels_it_cancels_what_replaces_it(leasequeue: Harness, args: Any) -> None:
    alone, inside = flow.become.enqueue(*args), group([flow.become.s(*args)]).enqueue()
    leasequeue.drain()
    assert StoredJob.objects.count() == 2 * (len(args) + 1)
    assert (alone.cancel(), inside.cancel(), StoredJob.objects.count()) == (True, 1, 0)
    with pytest.raises(TaskResultDoesNotExist):
        alone.refresh()
    result = flow.become.enqueue(*args)
    leasequeue.drain()
    assert flow.sleeper.jobs.cancel() == 1, "what replaces it may be cancelled by itself"
    leasequeue.drain()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[-1].exception_class is JobCancelled


@pytest.mark.parametrize(("call", "says"), [
    (flow.become.using(max_attempts=1).s("nothing"), "takes a signature, such as"),
    (flow.become_atomic.using(max_attempts=1).s(), "is atomic and replaces itself"),
    (flow.deeper.using(max_attempts=1).s(101), "100 calls have replaced one another"),
])  # fmt: skip
def test_what_does_not_replace_it(leasequeue: Harness, call: Any, says: str) -> None:
    result = call.enqueue()
    leasequeue.drain(advance=True)
    result.refresh()
    assert says in result.errors[-1].traceback
