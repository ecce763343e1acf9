"""Steps of workflows with options of their own: a time, a limit, a key, a queue, and what starts when they fail."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption, JobFailed
from django_leasequeue.models import Delayed, Member, StoredJob
from django_leasequeue.tasks import Limit, Workflow, WorkflowResult, chain, chord, group
from django_leasequeue.tasks.api import InvalidTask, TaskResultStatus
from django_leasequeue.testing import Harness
from tests.tasks import flow_samples as flow
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db

LIMIT = Limit("steps", concurrency=1)


def run_all(queue: str = "default") -> int:
    runs = 0
    while run_one(queue) is not None:
        runs += 1
    return runs


def states(result: WorkflowResult[Any]) -> list[str]:
    return [member.state for member in result.members()]


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
            assert run_all(queue) == 1 + (step == 1 and queue == "default")
        run_all()
        assert result.results() == [8]

    def test_a_time_is_the_earliest(self, clock: Clock) -> None:
        later = clock.now + timedelta(hours=1)
        result = chain(flow.double.s(1), flow.double.using(run_after=later).s()).enqueue()
        past = chain(flow.double.s(1), flow.double.using(run_after=later - timedelta(hours=2)).s()).enqueue()
        assert [run_all(), run_all()] == [2, 1], "a time that is over is due at once"
        assert (states(result), past.results()) == (["completed", "delayed"], [4])
        clock.advance(hours=1, seconds=1)
        run_all()
        assert result.results() == [4]

    def test_callbacks_of_chords_and_of_failures_have_times(self, clock: Clock) -> None:
        given, sorry = flow.given.using(run_after=60), flow.sorry.using(run_after=60)
        result = chord([flow.double.s(1), flow.fail_for_good.s()], given.s(), allow_failures=True).enqueue()
        broken = chain(flow.fail_for_good.s(), on_failure=sorry.s()).enqueue()
        assert run_all() == 3
        assert (states(result)[-1], Delayed.objects.count()) == ("delayed", 2)
        clock.advance(seconds=61)
        assert run_all() == 2
        assert (result.status.open, broken.status.failed) == (0, 1)

    def test_an_attempt_after_it_does_not_wait_again(self, clock: Clock, tmp_path: Path) -> None:
        late = flow.fail_once.using(run_after=60, backoff=0).si(str(tmp_path))
        result = chain(flow.double.si(1), late).enqueue()
        assert (run_all(), late.task.step_delay) == (1, timedelta(seconds=60))
        clock.advance(seconds=61)
        assert run_all() == 2, "it failed, and was tried again at once"
        assert result.status.label == "completed"

    def test_a_cancelled_workflow_has_none_left(self, clock: Clock) -> None:
        result = chain(flow.double.s(1), flow.double.using(run_after=60).s()).enqueue()
        run_all()
        assert result.cancel() == 1
        run_all()
        assert (Delayed.objects.count(), result.status.label) == (0, "cancelled")

    def test_what_is_no_time(self) -> None:
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

    def test_what_does_not_go(self) -> None:
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
        assert run_all() == 3
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
        assert run_all() == 1
        assert states(result) == ["failed", "cancelled", "cancelled"]
        assert result["excuse"].status == TaskResultStatus.FAILED
        assert Member.objects.filter(for_failure=True).count() == 1

    def test_an_immutable_one_and_one_of_a_step_that_a_task_adds(self, leasequeue: Harness) -> None:
        workflow = Workflow(on_failure=flow.sorry.s("all"))
        workflow.add(flow.fail_for_good.s().on_failure(flow.given.si("only this")), name="bad")
        result = workflow.enqueue()
        leasequeue.drain()
        assert result["given"].value == ["only this"]
        leasequeue.assert_enqueued(flow.sorry, result.id, "all", count=1)

    def test_what_does_not_go(self) -> None:
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
