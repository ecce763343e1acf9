"""Steps that are undone when their task fails for good or is cancelled."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.exceptions import InvalidOption, JobFailed
from django_leasequeue.models import Attempt, Job, JobStep
from django_leasequeue.models.storedjob import Record
from django_leasequeue.tasks.api import TaskResultDoesNotExist, TaskResultStatus, task_signals
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from django_leasequeue.worker import undo as undo_calls
from django_leasequeue.worker.steps import JobSteps
from tests.engine.helpers import NODE, make, one, put
from tests.support.heard import connected
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.tasks import undo_tasks as tasks
from tests.tasks.helpers import drained
from tests.worker.support import working

pytestmark = pytest.mark.django_db


class TestFailure:
    @pytest.mark.parametrize(("how", "ends", "errors"), [
        ("for good", ["failing", "failed"], ["FailForGood"]),
        ("wrong", ["failing", "failing", "dead"], ["ValueError", "ValueError"]),
    ])  # fmt: skip
    def test_steps_are_undone_in_reverse_order_and_its_failure_is_noted_once(
        self, leasequeue: Harness, how: str, ends: list[str], errors: list[str]
    ) -> None:
        told: list[Any] = []
        with connected(task_signals.task_finished, lambda task_result, **_: told.append(task_result)):
            result = tasks.trip.enqueue(how)
            assert drained(leasequeue, advance=True) == ends
        assert tasks.found() == tasks.UNDONE
        result.refresh()
        assert result.status is TaskResultStatus.FAILED
        for found in (*told, result):
            assert [error.exception_class_path.rpartition(".")[2] for error in found.errors] == errors
        assert len(told) == 1

    def test_one_that_used_up_its_attempts_is_a_dead_letter_when_they_are_undone(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("wrong")
        drained(leasequeue, advance=True)
        job = Job.objects.get()
        assert (job.state, job.error_type, job.error) == ("dead", "builtins.ValueError", "wrong")
        names = list(JobStep.objects.order_by("number").values_list("name", flat=True))
        assert names[-3:] == ["$undo car", "$undo hotel", "$undo flight"]

    def test_a_retried_dead_letter_begins_anew_from_the_first_undone_step(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("wrong")
        drained(leasequeue, advance=True)
        Group.objects.filter(name="look").delete()
        for _ in range(2):
            tasks.done.clear()
            Job.objects.all().retry()
            assert drained(leasequeue, advance=True) == ["failing", "failing", "dead"]
            assert tasks.found() == (["mail", "car", "hotel", "flight"], [])
        assert Job.objects.get().max_deliveries is not None

    def test_a_retry_from_a_step_and_a_dead_letter_of_another_queue_begin_anew(self, leasequeue: Harness) -> None:
        make("trips", dead_letter="graves", exhaust_at="release")
        tasks.trip.using(queue_name="trips").enqueue("wrong")
        drained(leasequeue, advance=True)
        for step in (None, "flight"):
            tasks.done.clear()
            (letter,) = Record.objects.filter(queue__name="graves").values_list("seq", flat=True)
            (back,) = engine.run(engine.redrive("graves", [letter], to="trips", from_step=step))
            assert back.state == "ready"
            assert drained(leasequeue, advance=True) == ["failing", "failing", "dead"]
            assert tasks.found() == tasks.UNDONE

    def test_a_completed_task_undoes_nothing(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("")
        assert drained(leasequeue) == ["completed"]
        assert tasks.found() == (["mail"], ["car", "flight", "hotel", "look"])

    def test_of_coroutines(self, leasequeue: Harness) -> None:
        tasks.async_trip.enqueue()
        assert drained(leasequeue) == ["failing", "failed"]
        assert tasks.found() == (["hotel", "coroutine"], ["coroutine"])

    def test_of_a_decorated_step_and_of_a_result_that_is_no_json(self, leasequeue: Harness) -> None:
        tasks.decorated_trip.enqueue()
        tasks.unserializable_trip.enqueue()
        assert sorted(drained(leasequeue)) == ["dead", "failed", "failing", "failing"]
        assert (sorted(tasks.done), tasks.booked()) == (["decorated flight", "flight"], [])


class TestCrash:
    @pytest.mark.parametrize("step", ["$undo car", "$undo hotel", "$undo flight"])
    def test_in_the_middle_of_undoing_goes_on_behind_what_is_undone(self, leasequeue: Harness, step: str) -> None:
        tasks.trip.enqueue("wrong")
        drained(leasequeue)
        leasequeue.crash_after(step)
        assert drained(leasequeue, advance=True) == ["failing", "crashed", "dead"]
        assert tasks.found() == tasks.UNDONE

    def test_in_the_only_attempt_undoes_what_is_recorded(self, leasequeue: Harness) -> None:
        tasks.trip.using(max_attempts=1).enqueue("")
        leasequeue.crash_after("hotel")
        assert drained(leasequeue) == ["crashed", "dead"]
        assert tasks.found() == (["hotel", "flight"], ["look"])
        assert Job.objects.get().error_type == "MAX_ATTEMPTS"


class TestFailingUndo:
    def test_it_is_tried_again_after_the_backoff_and_goes_on(self, leasequeue: Harness) -> None:
        clock = leasequeue.freeze()
        tasks.trip.enqueue()
        tasks.broken.add("hotel")
        assert drained(leasequeue) == ["failing", "failing"]
        assert tasks.done == ["mail", "car"]
        tasks.broken.clear()
        assert drained(leasequeue) == []
        clock.advance(seconds=60)
        assert drained(leasequeue) == ["failed"]
        assert tasks.found() == tasks.UNDONE

    def test_one_that_never_succeeds_is_a_dead_letter_whose_retry_goes_on_undoing(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue()
        tasks.broken.add("car")
        ended = drained(leasequeue, advance=True)
        assert ended == ["failing"] * 11 + ["dead"]
        job = Job.objects.get()
        assert job.error_type == "builtins.ConnectionError"
        assert job.error == "the undo of the step 'car' failed: car cannot be undone now"
        assert Attempt.objects.filter(seq=job.seq, error_type__endswith="FailForGood").exists()
        tasks.broken.clear()
        Job.objects.all().retry()
        assert drained(leasequeue) == ["failed"]
        assert tasks.found() == tasks.UNDONE


class TestCancel:
    def test_of_a_sleeping_task_undoes_at_once_and_then_the_job_is_gone(self, leasequeue: Harness) -> None:
        result = tasks.trip.enqueue("sleeps")
        assert drained(leasequeue) == ["suspended"]
        assert result.cancel()
        assert not result.cancel(), "it is being cancelled already"
        drained(leasequeue)
        assert tasks.found() == tasks.UNDONE
        assert not Job.objects.exists()
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()

    def test_of_several_at_once(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("sleeps")
        tasks.decorated_trip.enqueue("sleeps")
        drained(leasequeue)
        assert Job.objects.all().cancel() == 2
        drained(leasequeue)
        assert (sorted(tasks.done), Job.objects.count()) == (["car", "decorated flight", "flight", "hotel", "mail"], 0)

    def test_between_two_attempts(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("wrong")
        assert drained(leasequeue) == ["failing"]
        assert Job.objects.all().cancel() == 1
        leasequeue.crash_after("$undo hotel")
        assert drained(leasequeue)[0] == "crashed"
        assert tasks.found() == tasks.UNDONE
        assert not Job.objects.exists()

    def test_of_one_that_has_not_recorded_a_step_to_undo_removes_it(self, leasequeue: Harness) -> None:
        tasks.trip.enqueue("sleeps")
        assert Job.objects.all().cancel() == 1
        assert not Job.objects.exists()

    def test_of_one_that_runs_only_if_that_is_asked(self, leasequeue: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = []

        def cancel(how: str) -> None:
            answers.extend([Job.objects.all().cancel(), Job.objects.all().cancel(running=True)])

        monkeypatch.setattr(tasks, "fail", cancel)
        tasks.trip.enqueue("")
        drained(leasequeue)
        assert answers == [0, 1]
        assert tasks.found() == tasks.UNDONE
        assert not Job.objects.exists()

    def test_of_one_that_is_undoing_changes_nothing(self, leasequeue: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        answers, call = [], undo_calls._call

        def cancelled_meanwhile(path: str, value: Any) -> None:
            answers.extend([Job.objects.all().cancel(running=True), result.cancel(running=True)])
            call(path, value)

        monkeypatch.setattr(undo_calls, "_call", cancelled_meanwhile)
        result = tasks.trip.enqueue("for good")
        assert drained(leasequeue) == ["failing", "failed"], "its lease was not taken"
        assert tasks.found() == tasks.UNDONE
        assert answers == [0, False] * 3


def _control() -> JobControl:
    make("work")
    put(1)
    control = JobControl(one(), NODE)
    control.undoes_steps = True
    return control


def test_the_job_s_page_says_what_is_undone(leasequeue: Harness, admin_client: Client) -> None:
    tasks.trip.using(max_attempts=1).enqueue("wrong")
    drained(leasequeue)
    page = admin_client.get(f"/admin/leasequeue/job/{Job.objects.get().pk}/change/").content.decode()
    assert "undo of hotel" in page
    assert "undone by tests.tasks.undo_tasks.unbook atomic" in page


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_logs_that_steps_are_undone_and_not_that_the_task_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is slow by its worker."""
    result = tasks.unserializable_trip.enqueue()
    with caplog.at_level("INFO", "django_leasequeue.jobs"), working(TaskHandler(), queues=["default"], concurrency=1):
        with pytest.raises(JobFailed):
            result.wait(timeout=60)
    lines = [record.getMessage() for record in caplog.records if record.name == "django_leasequeue.jobs"]
    assert lines[-2:] == ["Job failed for good: its next delivery undoes its steps", "Job failed for good"]


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_workers_undo_what_threads_coroutines_and_processes_have_done() -> None:
    """It is slow by its workers and the processes of a task."""
    slow = tasks.slow_trip.enqueue()
    made = [tasks.unserializable_trip.enqueue(), tasks.async_trip.enqueue(), tasks.isolated_trip.enqueue()]
    options: dict[str, Any] = {"queues": ["default"], "concurrency": 2}
    with working(TaskHandler(), reaper=True, **options):
        eventually(lambda: Group.objects.filter(name="slow").exists())
        assert slow.cancel(running=True)
        for result in made:
            with pytest.raises(JobFailed):
                result.wait(timeout=120)
        eventually(lambda: not Job.objects.filter(state__in=["ready", "leased", "delayed"]).exists())
    assert tasks.booked() == ["coroutine"]
    assert [result.attempts for result in made] == [2, 2, 2]


def test_a_cancel_that_found_no_steps_leaves_a_job_that_has_some_by_now(leasequeue: Harness) -> None:
    result = tasks.trip.enqueue("sleeps")
    met: list[str] = []

    def run_before_the_removal(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if "DELETE FROM leasequeue_delayed d" in str(sql) and not met:
            met.append("the job runs")
            met.extend(drained(leasequeue))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(run_before_the_removal):
        assert result.cancel() is False
    assert (met, tasks.done) == (["the job runs", "suspended"], ["mail"])
    assert result.cancel()
    drained(leasequeue)
    assert tasks.found() == tasks.UNDONE


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_cancel_waits_for_the_first_step_while_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow by its worker."""
    kept, goes_on, keep = threading.Event(), threading.Event(), JobSteps._keep

    def slowly(self: JobSteps, *args: Any) -> None:
        keep(self, *args)
        if not kept.is_set():
            kept.set()
            assert goes_on.wait(60)

    monkeypatch.setattr(JobSteps, "_keep", slowly)
    result = tasks.slow_trip.enqueue()
    with working(TaskHandler(), queues=["default"], concurrency=1):
        assert kept.wait(60)
        with ThreadResult(lambda: result.cancel(running=True)) as cancel:
            eventually(_waits_for_a_lock)
            goes_on.set()
            assert cancel.value() is True
        eventually(lambda: not Job.objects.exists())
    assert tasks.found() == (["slow"], [])


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        ((count,),) = cursor.fetchall()
    return bool(count)


class TestRefused:
    @pytest.mark.parametrize("undo", [lambda value: None, "tasks.unbook", Group.save, tasks.trip])
    def test_what_a_later_process_cannot_import(self, undo: Any) -> None:
        with pytest.raises(InvalidOption, match="undo must be a function at the top of a module"):
            _control().step("a", str, undo=undo)

    def test_a_coroutine_function_for_an_atomic_step(self) -> None:
        with pytest.raises(InvalidOption, match="undo of an atomic step must be a plain function"):
            _control().step("a", str, atomic=True, undo=tasks.aunbook)

    def test_in_an_atomic_task_and_outside_of_tasks(self, leasequeue: Harness) -> None:
        tasks.atomic_trip.enqueue()
        (ran,) = leasequeue.drain()
        assert "tasks that are not atomic" in str(ran.error)
        control = _control()
        control.undoes_steps = False
        with pytest.raises(InvalidOption, match="tasks that are not atomic"):
            control.step("a", str, undo=tasks.unbook)


class TestDeadline:
    def test_a_task_that_cannot_try_again_in_time_undoes_its_steps(self, leasequeue: Harness) -> None:
        result = tasks.trip.using(deadline=30).enqueue("wrong")  # its backoff is a minute
        assert drained(leasequeue) == ["failing", "failed"]
        assert tasks.found() == tasks.UNDONE
        result.refresh()
        assert result.errors[-1].exception_class_path.endswith("DeadlineExceeded")

    def test_what_is_undone_after_the_deadline_is_undone_to_the_end(self, leasequeue: Harness) -> None:
        leasequeue.freeze()
        tasks.broken.add("hotel")
        result = tasks.trip.using(deadline=30).enqueue("for good")
        assert drained(leasequeue) == ["failing", "failing"]
        leasequeue.advance(minutes=2)
        tasks.broken.clear()
        assert drained(leasequeue) == ["failed"]
        assert tasks.found() == tasks.UNDONE
        result.refresh()
        assert result.errors[-1].exception_class_path.endswith("FailForGood")

    def test_one_whose_deadline_passes_while_it_waits_undoes_its_steps(self, leasequeue: Harness) -> None:
        leasequeue.freeze()
        result = tasks.trip.using(deadline=3_600).enqueue("sleeps")
        assert drained(leasequeue) == ["suspended"]
        leasequeue.advance(days=2)
        assert drained(leasequeue) == ["failing", "failed"]
        assert tasks.found() == tasks.UNDONE
        result.refresh()
        assert result.errors[-1].exception_class_path.endswith("DeadlineExceeded")
