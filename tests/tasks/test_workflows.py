"""Workflows of tasks: what starts when, with what, and how often. What counts the runs is no table of ours: files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, override_settings

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.enums import WorkflowState
from django_leasequeue.exceptions import InvalidOption, JobCancelled, JobFailed, WaitTimeout
from django_leasequeue.models import Delayed, JobResult, Member, StoredJob
from django_leasequeue.models import Workflow as WorkflowRow
from django_leasequeue.tasks import Limit, Workflow, aget_workflow_result, chain, chord, get_workflow_result, group
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_signals
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness, LeaseQueueTestMixin
from django_leasequeue.worker import ExitCode
from tests.large import files, large_settings
from tests.support.heard import connected
from tests.support.pages import run_page
from tests.support.rows import rows
from tests.support.waiting import eventually
from tests.tasks import django_api, samples
from tests.tasks import flow_samples as flow
from tests.tasks.helpers import NODE, claim, run_all, run_one, states
from tests.worker.processes import TASKS, starting
from tests.worker.support import working

pytestmark = pytest.mark.django_db


class TestChain:
    def test_each_gets_the_return_value_of_the_one_before_or_nothing(self) -> None:
        result = chain(flow.double.s(3), samples.add.s(4), flow.double.s()).enqueue()
        assert run_all() == ["completed"] * 3
        assert (samples.calls, result.results(), result.status.label) == ([(6, 4)], [20], "completed")
        first = chain(flow.double.s(3), flow.double.si(5), flow.given.s("more")).enqueue()
        none = chain(samples.echo.s(), flow.given.s()).enqueue()
        run_all()
        assert (first.results(), none.results()) == ([[10, "more"]], [[None]])

    def test_the_operator_makes_chains_and_a_signature_takes_other_options(self, leasequeue: Harness) -> None:
        result = (flow.double.s(3) | group(flow.double.s(), flow.double.s()) | flow.given.s()).enqueue()
        assert result.wait() == [[12, 12]]
        with pytest.raises(TypeError):
            flow.double.s(3) | 5  # type: ignore[operator]
        result = flow.double.si(3).using(priority=7, queue_name="other").enqueue()
        assert (result.task.priority, result.task.queue_name) == (7, "other")
        with pytest.raises(InvalidTask, match=r"options of task\.using"):
            flow.double.s(3).using(countdown=5)

    @pytest.mark.parametrize("step", [flow.fail_for_good.s("no"), samples.fail.using(max_attempts=1).s("no")])
    def test_a_failure_cancels_the_rest_with_its_cause(self, step: Any) -> None:
        result = chain(step, flow.double.s(), flow.double.s()).enqueue()
        assert len(run_all()) == 1
        assert states(result) == ["failed", "cancelled", "cancelled"]
        assert (result.status.label, result.status.failed, result.status.cancelled) == ("failed", 1, 2)
        with pytest.raises(JobFailed, match="no") as caught:
            result.results()
        assert caught.value.job_id == result.members()[0].id
        assert caught.value.error_type in ("builtins.ValueError", "django_leasequeue.tasks.exceptions.FailForGood")

    def test_on_failure_names_a_task(self) -> None:
        for signature, given in ((flow.sorry.s("much"), None), (flow.given.si("just this"), ["just this"])):
            result = chain(flow.fail_for_good.s(), flow.double.s(), on_failure=signature).enqueue()
            assert run_all() == ["failed", "completed"]
            last = JobResult.objects.filter(result__isnull=False).latest("seq")
            assert last.result == (given or [result.id, "much", 1])
        delayed = Delayed.objects.count()
        chain(flow.double.s(1), on_failure=flow.sorry.s()).enqueue()
        assert run_all() == ["completed"]
        assert Delayed.objects.count() == delayed == 2, "only what was cancelled, and may be retried"


class TestGroup:
    def test_counts_results_and_members_in_order(self) -> None:
        told: list[str] = []
        with connected(task_signals.task_enqueued, lambda task_result, **_: told.append(task_result.id)):
            result = group((flow.double.s(number) for number in range(5)), name="five").enqueue()
        assert told == [member.id for member in result.members()], "Django's signal tells of each"
        assert (result.status.total, result.status.open, result.status.label) == (5, 5, "running")
        assert states(result) == ["ready"] * 5
        with pytest.raises(InvalidOption, match="5 jobs have not ended"):
            result.results()
        run_one()
        run_one()
        (held,) = claim()
        assert (result.status.completed, result.status.open) == (2, 3)
        assert sorted(states(result)) == ["completed", "completed", "ready", "ready", "running"]
        engine.run(engine.release([engine.Release(held.seq, held.token, 0)], NODE))
        run_all()
        found = get_workflow_result(result.id)
        assert (found.id, found.results(), WorkflowRow.objects.get().name) == (result.id, [0, 2, 4, 6, 8], "five")
        assert repr(found) == f"WorkflowResult(id={result.id!r})"
        values = [flow.double.get_result(member.id or "").return_value for member in found.members()]
        assert values == [0, 2, 4, 6, 8]

    @pytest.mark.slow
    def test_ten_thousand_members_and_one_more_for_a_failure(self) -> None:
        result = group((flow.double.s(number) for number in range(10_000)), on_failure=flow.sorry.s()).enqueue()
        assert result.status.total == 10_000
        assert states(result) == ["ready"] * 10_000
        with pytest.raises(InvalidOption, match="at most 10000 jobs"):
            group(flow.double.s(number) for number in range(10_001)).enqueue()

    @pytest.mark.parametrize("wrong", ["nonsense", "00000000-0000-4000-8000-000000000000"])
    def test_what_was_never_enqueued_does_not_exist(self, wrong: str) -> None:
        with pytest.raises(TaskResultDoesNotExist, match="no workflow"):
            get_workflow_result(wrong)


class TestChord:
    def test_the_callback_gets_the_values_in_order_and_a_failure_cancels_it(self) -> None:
        result = chord([flow.given.s(number) for number in range(5)], flow.given.s("end")).enqueue()
        one = chord(group([flow.double.s(1)]), flow.given.s()).enqueue()
        run_all()
        assert (result.results(), one.results()) == ([[[[0], [1], [2], [3], [4]], "end"]], [[[2]]])
        result = chord([flow.double.s(1), flow.fail_for_good.s("no luck")], flow.total.s()).enqueue()
        run_all()
        assert states(result) == ["completed", "failed", "cancelled"]
        with pytest.raises(JobFailed, match="no luck"):
            result.results()

    @pytest.mark.parametrize("step", [flow.fail_for_good.s(), samples.fail.using(max_attempts=1).s()])
    def test_with_allow_failures_the_callback_takes_outcomes(self, step: Any, leasequeue: Harness) -> None:
        result = chord([flow.double.s(1), step, flow.double.s(2)], flow.outcomes.s(), allow_failures=True).enqueue()
        one, failed, two = result.wait()
        ids = [member.id for member in result.members()]
        assert (one, two) == ([True, 2, None, None, ids[0]], [True, 4, None, None, ids[2]])
        assert failed == [False, None, result.members()[1].error_type, result.members()[1].error, ids[1]]
        assert failed[2].rpartition(".")[2] in ("FailForGood", "ValueError")
        assert (result.status.completed, result.status.failed) == (3, 1)

    def test_chains_in_groups_and_what_was_cancelled_in_one_is_an_outcome(self, leasequeue: Harness) -> None:
        broken = chain(flow.fail_for_good.s(), flow.double.s())
        result = chord([broken, flow.double.s(2)], flow.outcomes.s(), allow_failures=True).enqueue()
        assert [outcome[:4] for outcome in result.wait()] == [[False, None, None, None], [True, 4, None, None]]
        assert (result.status.open, result.status.label) == (0, "failed")
        pair = group([chain(flow.double.s(), flow.double.s()), flow.double.s()])
        assert chain(flow.double.s(1), pair, flow.given.s("x")).enqueue().wait() == [[8, 4], "x"]
        inner = group(flow.double.s(2), chain(flow.double.s(3), group(flow.double.s(), flow.double.s())))
        assert group(flow.double.s(1), inner, group([])).enqueue().wait() == [2, 4, 12, 12], "they are one group"

    def test_an_empty_group_is_done_at_once_and_what_comes_after_it_waits(self, leasequeue: Harness) -> None:
        result = group([], on_failure=flow.sorry.s(), name="nothing").enqueue()
        assert (result.wait(), result.results(), result.members()) == ([], [], [])
        assert (result.status.label, result.status.total) == ("completed", 0)
        assert get_workflow_result(result.id).wait() == []
        assert WorkflowRow.objects.get().expires_at is not None
        assert not StoredJob.objects.exists()
        assert chord([], flow.total.s()).enqueue().status.total == 1
        result = chain(flow.double.s(1), group([]), flow.given.s("x"), flow.given.s()).enqueue()
        assert states(result) == ["ready", "waiting", "waiting"]
        assert result.wait() == [[[], "x"]]


class TestWorkflow:
    def test_a_graph_of_any_form(self, leasequeue: Harness) -> None:
        workflow = Workflow(name="report")
        one, two = workflow.add(flow.double.s(1)), workflow.add(flow.double.s(2))
        alone = workflow.add(flow.given.s("one"), after=one)
        both = workflow.add(flow.given.s("both"), after=[one, two])
        after_group = workflow.add(
            flow.given.s(), after=workflow.add(group([flow.double.s(), flow.double.s()]), after=two)
        )
        workflow.add(flow.given.s(), after=[alone, both, after_group])
        result = workflow.enqueue()
        assert result.wait() == {"given#4": [[[2, "one"], [[2, 4], "both"], [[8, 8]]]]}
        assert WorkflowRow.objects.get().name == "report"

    def test_steps_by_name(self, leasequeue: Harness) -> None:
        workflow = Workflow()
        first = workflow.add(flow.double.s(1))
        workflow.add(group(flow.double.s(), flow.double.s()), after=first, name="pair")
        workflow.add(flow.double.s(), after=first, name="double")
        workflow.add(flow.fail_for_good.s("no"), name="bad")
        for name, says in (("pair#2", "named 'pair#2' already"), ("x" * 250, "249 bytes"), (5, "the name of a")):
            with pytest.raises(InvalidOption, match=says):
                workflow.add(flow.double.s(1), name=name)
        result = workflow.enqueue()
        names = ["double#2", "pair", "pair#2", "double", "bad", "double#3"]
        assert [member.name for member in result.members()] == names
        assert (result["pair"].status, result["pair"].value) == (TaskResultStatus.READY, None)
        run_all()
        found = result["pair#2"]
        assert (found.status, found.value, found.id) == (TaskResultStatus.SUCCESSFUL, 4, result.members()[2].id)
        assert (result["bad"].status, result["bad"].error) == (TaskResultStatus.FAILED, "no")
        with pytest.raises(KeyError, match="gone"):
            result["gone"]
        workflow = Workflow()
        first = workflow.add(flow.double.s(1))
        workflow.add(flow.double.s(), after=first, name="last")
        workflow.add(flow.given.s(), after=first)
        assert get_workflow_result(workflow.enqueue().id).wait() == {"last": 4, "given": [2]}

    def test_many_layers_but_not_too_many_edges_and_no_cycles(self) -> None:
        workflow, other = Workflow(), Workflow()
        first = workflow.add(flow.double.s(1))
        for added, after in ((other, first), (workflow, [flow.double.s(1)])):
            with pytest.raises(InvalidOption, match="of the same workflow"):
                added.add(flow.double.s(), after=after)  # type: ignore[arg-type]  # just this is refused
        workflow = Workflow()
        layer = workflow.add(group(flow.double.s(number) for number in range(300)))
        for _ in range(10):
            middle = workflow.add(flow.given.si(), after=layer)
            layer = workflow.add(group(flow.double.si(number) for number in range(300)), after=middle)
        assert workflow.enqueue().status.total == 3_310
        many = group(flow.double.si(number) for number in range(1_000))
        with pytest.raises(InvalidOption, match="put one job between them"):
            chain(many, many).enqueue()


def test_a_cancelled_workflow_runs_no_job() -> None:
    result = chain(flow.double.s(1), flow.double.s()).enqueue()
    assert (result.cancel(), run_all(), result.cancel()) == (2, [], 0)
    assert result.status.state == WorkflowState.CANCELLED
    with pytest.raises(JobCancelled, match=r"Workflow .* was cancelled"):
        result.results()


def test_a_cancelled_workflow_completes_what_has_started() -> None:
    result = group([flow.double.s(1), flow.double.s(2)]).enqueue()
    (job,) = claim()
    assert result.cancel() == 1
    assert engine.run(engine.finish([engine.Ending(job.seq, job.token)], NODE)).ok == [job.seq]
    assert (run_all(), states(result)) == ([], ["completed", "cancelled"])
    assert (result.status.completed, result.status.cancelled) == (1, 1)


def test_a_workflow_whose_first_job_expires_is_cancelled(clock: Clock) -> None:
    result = chain(flow.double.using(expires=60).s(1), flow.double.s()).enqueue()
    clock.advance(seconds=61)
    assert run_all() == []
    assert (states(result), result.status.label) == (["cancelled", "cancelled"], "cancelled")
    assert [member.name for member in result.members()] == ["double", "double#2"], "though the first job is gone"
    assert result["double"].status == "FAILED"


class TestReferences:
    def test_a_result_is_stored_once_and_read_from_where_it_is(self, tmp_path: Path) -> None:
        chain(flow.much.s(100_000), flow.length.s()).enqueue()
        run_one()
        (job,) = claim()
        assert job.data == {"inputs": {"many": False, "failed": False}}
        with large_settings(tmp_path):
            result = chain(flow.much.s(100_000), flow.length.s()).enqueue()
            assert run_all() == ["completed", "completed"]
            assert (result.results(), len(files(tmp_path))) == ([100_000], 1)
            large = group([flow.much.s(5_000)]).enqueue()
            run_all()
            assert large.results() == ["x" * 5_000]

    @pytest.mark.parametrize("tolerant", [False, True])
    def test_a_result_that_has_expired_is_a_failure_for_good(self, tolerant: bool) -> None:
        result = chord([flow.double.s(1)], flow.given.s(), allow_failures=tolerant).enqueue()
        run_one()
        engine.run(engine.advance([Member.objects.all()[0].queue_id]))
        rows(JobResult).all().delete()
        assert run_all() == ["failed"]
        with pytest.raises(JobFailed, match="is not there any more: it has expired"):
            result.results()
        last = group([flow.double.s(1)]).enqueue()
        run_all()
        rows(JobResult).all().delete()
        with pytest.raises(JobCancelled, match="has expired"):
            last.results()


class TestRefused:
    @pytest.mark.parametrize(("make", "error", "says"), [
        (chain, InvalidOption, "at least one step"),
        (lambda: chain([]), InvalidOption, "at least one step"),
        (Workflow, InvalidOption, "at least one job"),
        (lambda: group(5), InvalidOption, "takes signatures"),
        (lambda: chord(chain(flow.double.s(1)), flow.total.s()), InvalidOption, "takes a list of steps"),
        (lambda: chain(flow.double), InvalidOption, "takes signatures"),
        (lambda: group([flow.double.s(1), 5]), InvalidOption, "takes signatures"),
        (lambda: chain(chain(flow.double.s(1), name="x")), InvalidOption, "outermost part"),
        (lambda: chain(flow.double.s(1), on_failure=chain(flow.double.s())), InvalidOption, "on_failure takes"),
        (lambda: chain(flow.double.s(1), name="x" * 256), InvalidOption, "name of a workflow"),
        (lambda: chain(flow.double.s()), TypeError, "missing a required argument"),
        (lambda: chain(flow.double.s(1), flow.double.s(1)), TypeError, "too many positional"),
        (lambda: chain(flow.double.s(1), flow.double.si()), TypeError, "missing a required argument"),
        (lambda: chain(flow.double.s({1, 2})), TypeError, "must be JSON"),
        (lambda: chain(samples.renamed.s(1)), InvalidTask, "No worker could run"),
        (
            lambda: chain(flow.double.s(1), flow.double.using(limit=Limit("{value}", concurrency=1)).s()),
            InvalidTask, "not known before the job before has ended",
        ),
    ])  # fmt: skip
    def test_what_is_no_workflow_is_refused(self, make: Callable[[], Any], error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            make().enqueue()
        assert not StoredJob.objects.exists()

    @pytest.mark.parametrize("backend", [django_api.IMMEDIATE, django_api.DUMMY])
    def test_other_backends_have_no_workflows_and_say_so(self, backend: str) -> None:
        with override_settings(TASKS={"default": {"BACKEND": backend}}):
            with pytest.raises(InvalidTask, match="no workflows: they need a LeaseQueueBackend"):
                chain(flow.double.s(1)).enqueue()
            with pytest.raises(InvalidOption, match="has no workflows"):
                get_workflow_result("00000000-0000-4000-8000-000000000000")

    def test_a_payload_that_no_workflow_wrote(self) -> None:
        job = engine.NewJob({"inputs": 1}, name=flow.given.module_path)
        flow.given.enqueue()
        run_one()
        # First the one that is not tried again: the other one's next attempt may come at once.
        lost = job._replace(data={"inputs": {"many": True, "failed": True}})
        for each, outcome in ((lost, "failed"), (job, "failing")):
            engine.run(engine.enqueue("default", [each], project=""))
            assert run_one() == outcome


class InTests(LeaseQueueTestMixin, TestCase):
    def test_drain_goes_on_until_the_workflow_has_ended_with_async_tasks_and_limits(self) -> None:
        result = chord([flow.double.s(number) for number in range(3)], flow.given.s()).enqueue()
        ran = self.leasequeue.drain()
        assert [each.result for each in ran] == [0, 2, 4, [[0, 2, 4]]]
        assert result.results() == [[[0, 2, 4]]]
        self.leasequeue.assert_enqueued(flow.double, 2)
        self.leasequeue.assert_enqueued(flow.given)
        result = chain(flow.adouble.s(3), flow.adouble.s(), flow.given_with_context.s(9)).enqueue()
        assert result.wait() == [1, 12, 9]
        self.leasequeue.freeze()
        one = flow.double.using(limit=Limit("one", concurrency=1))
        one.enqueue_many((number,) for number in range(3))
        assert len(self.leasequeue.drain()) == 3
        flow.double.using(limit=Limit("api", rate=1, per=10)).enqueue_many((number,) for number in range(3))
        assert len(self.leasequeue.drain()) == 1
        self.leasequeue.advance(seconds=11)
        assert len(self.leasequeue.drain()) == 1

    async def test_the_async_twins(self) -> None:
        assert (await flow.adouble.s(3).using(priority=7).aenqueue()).args == [3]
        result = await group([flow.adouble.s(1), flow.double.s(2)]).aenqueue()
        assert (await result.astatus()).open == 2
        assert await result.await_all() == [2, 4]
        assert await (await aget_workflow_result(result.id)).aresults() == [2, 4]
        assert [member.state for member in await result.amembers()] == ["completed", "completed"]
        workflow = Workflow()
        workflow.add(flow.double.s(1))
        other = await workflow.aenqueue()
        assert await other.acancel() == 1
        with pytest.raises(JobCancelled):
            await other.await_all()


@pytest.mark.usefixtures("test_dsn")
class TestWorkers:
    def test_coroutines_take_what_the_one_before_returned(self, settings: Any) -> None:
        settings.LEASEQUEUE = {"ASYNC": "native"}
        results = [chain(flow.double.s(number), flow.adouble.s(), flow.adouble.s()).enqueue() for number in range(10)]
        with working(TaskHandler(), queues=["default"], concurrency=2) as threaded:
            assert [result.wait(timeout=90) for result in results] == [8 * number for number in range(10)]
        assert threaded.code in (ExitCode.OK, ExitCode.GIVEN_BACK), "its event loop did not break"

    def test_a_group_is_waited_for_and_a_callback_runs_once_whoever_ends_last(self, oracle: flow.Oracle) -> None:
        result = group(flow.seen.s("k", number, 0) for number in range(200)).enqueue()
        results = [
            chord([flow.seen.s(f"c{number}", part, 0) for part in range(4)], flow.total.s()).enqueue()
            for number in range(40)
        ]
        with pytest.raises(WaitTimeout):
            result.wait(timeout=0.1)
        with pytest.raises(InvalidOption, match="no worker can see"), transaction.atomic():
            result.wait(timeout=0.1)
        with working(TaskHandler(), queues=["default"], concurrency=4):
            with working(TaskHandler(), queues=["default"], concurrency=4):
                assert result.wait(timeout=90) == list(range(200))
                assert [result.wait(timeout=90) for result in results] == [6] * 40
        runs = oracle.runs()
        assert sorted(run.value for run in runs if run.key == "k") == list(range(200))
        assert (sum(run.key == "total" for run in runs), len(runs)) == (40, 400)

    @pytest.mark.slow
    def test_killed_workers_leave_nothing_stuck(self, oracle: flow.Oracle, subprocess_env: dict[str, str]) -> None:
        """Each parent is told of in the transaction in which it ends: whoever dies, the rest goes on."""
        result = chord([flow.seen.s("k", number, 0.3) for number in range(40)], flow.total.s()).enqueue()
        with starting({**subprocess_env, flow.FOLDER: str(oracle.folder)}) as start:
            for _ in range(3):
                wanted = min(len(oracle.runs()) + 4, 40)
                worker = start(*TASKS, "--queues", "default", "--concurrency", "4", reaper=True)
                eventually(lambda wanted=wanted: len(oracle.runs()) >= wanted, "some have run", 90)
                worker.close()
        with working(TaskHandler(), queues=["default"], concurrency=4):
            assert result.wait(timeout=120) == sum(range(40))
        assert {run.value for run in oracle.runs() if run.key == "k"} == set(range(40))
        assert sum(run.key == "total" for run in oracle.runs()) == 1


def test_the_page_about_workflows(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    names = run_page("how-to/workflows.md", monkeypatch, lambda text: text.replace("range(5_000)", "range(50)"))
    assert names["said"] == "a@example.org: 50 pictures, 245000 bytes"
    assert names["pair"].wait() == [200, 400]
    assert names["report"].wait() == {"tell": "a@example.org: 2 pictures, 2200 bytes", "resize#2": 2_000}
    assert (names["report"]["large"].value, names["outcome"]) == (2_000, "a@example.org: 1 of 2")
    assert names["gift"].wait() == 4_000
    assert names["album"].wait() == ["a@example.org: 3 pictures, 1200 bytes", 1_200]
