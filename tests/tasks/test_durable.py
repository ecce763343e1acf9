"""Tasks that sleep, wait for events and other tasks, and that end in their own transaction."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import transaction

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob, Release
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.jobs.steps import wake_waiting
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import EventTimeout, InvalidOption, JobFailed, PayloadTooLarge
from django_leasequeue.models import Attempt, EmittedEvent, Job, JobStep, Member
from django_leasequeue.reaper.duties import Expiry, JobSteps, MissedEvents, forget_events
from django_leasequeue.reaper.duty import DutyRun
from django_leasequeue.tasks import Limit, aemit, chain, emit, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.words import HELD
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.engine.flow import differences
from tests.engine.helpers import NODE, make, one, put
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.tasks import durable_tasks as tasks
from tests.tasks.helpers import drained
from tests.worker.support import working

pytestmark = pytest.mark.django_db


def suspending(job: LeasedJob, what: str, *args: Any, **options: Any) -> Any:
    """The control of a job that sleeps or waits, and is still held."""
    control = JobControl(job, NODE)
    with pytest.raises(Suspended):
        getattr(control, what)(*args, **options)
    assert control.suspension is not None
    return control


def suspend(job: LeasedJob, control: Any) -> None:
    """Give a job back as its worker does."""
    back = Release(job.seq, job.token, control.suspension.delay_ms)
    engine.run(engine.release([back], NODE, suspended=True))


def duty(work: Any) -> None:
    with connect("default") as connection:
        work(DutyRun(connection, "default"))


@pytest.fixture
def _frozen(leasequeue: Harness) -> None:
    leasequeue.freeze()


@pytest.fixture
def job(clock: engine_clock.Clock) -> LeasedJob:
    make("work")
    put(1)
    return one()


class TestSleep:
    def test_it_goes_on_at_its_time_behind_what_is_done(self, leasequeue: Harness) -> None:
        clock = leasequeue.freeze(datetime(2030, 1, 1, tzinfo=UTC))
        result = tasks.sleeper.enqueue()
        assert drained(leasequeue) == ["suspended"]
        job = Job.objects.get()
        assert (job.state, job.available_at) == ("delayed", datetime(2030, 1, 2, 6, tzinfo=UTC))
        clock.advance(hours=29)
        assert drained(leasequeue) == []
        clock.advance(hours=1)
        assert (drained(leasequeue), drained(leasequeue, advance=True)) == (["suspended"], ["completed"])
        assert clock.now == datetime(2030, 1, 2, 6, 1, tzinfo=UTC)
        assert (result.wait(), result.attempts, Group.objects.count()) == ("before", 1, 1)
        assert not Attempt.objects.exists()

    def test_who_died_before_it_was_back_sleeps_for_the_rest(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        suspending(job, "sleep", "deep", hours=1)
        clock.advance(minutes=20)
        job = one()
        control = suspending(job, "sleep", "deep", hours=1)
        assert control.suspension.delay_ms == 40 * 60_000
        suspend(job, control)
        clock.advance(minutes=40)
        JobControl(one(), NODE).sleep("deep", hours=1)

    def test_until_a_time(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        with pytest.raises(InvalidOption, match="with a time zone"):
            JobControl(job, NODE).sleep_until("a", datetime(2030, 1, 1))  # noqa: DTZ001
        JobControl(job, NODE).sleep_until("past", clock.now)
        control = suspending(job, "sleep_until", "future", clock.now + timedelta(days=400))
        assert control.suspension.delay_ms == 400 * 86_400_000

    def test_a_returned_delivery_knows_that_steps_are_done(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        clock.advance(hours=1)
        job = one()
        assert job.flags & 32, "a suspect"
        control = JobControl(job, NODE)
        assert control.step("a", lambda: 1) == 1
        with pytest.raises(Suspended):
            control.sleep("deep", seconds=1)
        suspend(job, control)
        clock.advance(seconds=1)
        job = one()
        assert not job.flags & 32, "who sleeps is none afterwards"
        deliveries = job.deliveries
        engine.run(engine.release([Release(job.seq, job.token, 0)], NODE, unstarted=True))
        job = one()
        assert job.deliveries == deliveries == 2
        assert JobControl(job, NODE).step("a", lambda: 2) == 1

    def test_one_that_sleeps_may_be_woken_and_is_cancelled_like_a_delayed_one(self, leasequeue: Harness) -> None:
        tasks.swallower.enqueue()
        assert drained(leasequeue) == ["suspended"]
        assert Job.objects.all().run_now() == 1
        assert drained(leasequeue) == ["suspended"]  # its time has not come
        assert (drained(leasequeue, advance=True), Group.objects.count()) == (["completed"], 2)
        tasks.sleeper.enqueue()
        drained(leasequeue)
        assert Job.objects.all().cancel() == 1
        assert drained(leasequeue, advance=True) == []

    def test_one_that_dies_after_its_sleep_does_not_sleep_again(self, leasequeue: Harness) -> None:
        clock = leasequeue.freeze()
        tasks.late_failure.using(max_attempts=1).enqueue()
        assert drained(leasequeue, advance=True) == ["suspended", "dead"]
        Job.objects.all().retry()
        woken = clock.now
        assert (drained(leasequeue, advance=True), clock.now) == (["dead"], woken)
        Job.objects.all().retry(from_step="deep")
        assert drained(leasequeue, advance=True) == ["suspended", "dead"]

    def test_nobody_sleeps_in_a_transaction(self, leasequeue: Harness) -> None:
        tasks.sleeper_in_a_transaction.using(backoff=60).enqueue()  # the queue's own may be none
        (ran,) = leasequeue.drain()
        assert ran.state == "failing"
        assert "inside of a transaction" in str(ran.error)

    def test_it_holds_no_slot_and_is_a_step_of_a_workflow_that_runs(self, leasequeue: Harness) -> None:
        for name in ("a", "b"):
            tasks.limited_sleeper.enqueue(name)
        assert (drained(leasequeue), drained(leasequeue, advance=True)) == (["suspended"] * 2, ["completed"] * 2)
        assert Group.objects.count() == 4
        leasequeue.freeze()
        workflow = chain(tasks.sleeper.si("x"), tasks.doubler.si(2)).enqueue()
        assert drained(leasequeue) == ["suspended"]
        assert drained(leasequeue, advance=True) == ["suspended", "completed", "completed"]
        assert (workflow.status.completed, workflow.status.total) == (2, 2)


@pytest.mark.parametrize(("name", "units", "text"), [
    ("", {"hours": 1}, "name of a step"), ("a", {"weeks": "one"}, "units must be those of timedelta"),
    ("a", {"moons": 1}, "units must be those of timedelta"), ("a", {"days": -1}, "number of seconds"),
    ("a", {"days": 40_000}, "the time in ms"),
])  # fmt: skip
def test_sleeps_that_make_no_sense(job: LeasedJob, name: str, units: Any, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        JobControl(job, NODE).sleep(name, **units)
    assert not JobStep.objects.exists()


class TestEvents:
    def test_an_event_wakes_all_of_its_project_that_wait_for_it_or_wait_later(self, leasequeue: Harness) -> None:
        results = [tasks.waiter.enqueue("packed:42"), tasks.waiter.enqueue("packed:42")]
        other = tasks.waiter.enqueue("packed:43")
        assert (drained(leasequeue), drained(leasequeue)) == (["suspended"] * 3, [])
        assert emit("packed:42", project="other")
        assert drained(leasequeue) == []
        assert emit("packed:42", {"parcel": 7})
        assert drained(leasequeue) == ["completed"] * 2
        assert [result.wait() for result in results] == [{"parcel": 7}] * 2
        other.refresh()
        assert not other.is_finished
        assert emit("packed", [1])
        assert not emit("packed", [2])
        assert emit("others", project="other")
        results = [tasks.waiter.enqueue("packed"), tasks.waiter.enqueue("others")]
        assert (drained(leasequeue), results[0].wait()) == (["completed", "suspended"], [1])

    def test_names_that_the_queue_itself_emits_are_refused(self, job: LeasedJob) -> None:
        with pytest.raises(InvalidOption, match=r"must not begin with '\$'"):
            JobControl(job, NODE).wait_for("$result:1")

    def test_it_ends_with_its_timeout(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        suspend(job, suspending(job, "wait_for", "packed", timeout=5))
        clock.advance(seconds=5)
        job = one()
        with pytest.raises(EventTimeout, match="'packed' did not come"):
            JobControl(job, NODE).wait_for("packed", timeout=5)
        emit("packed")
        with pytest.raises(EventTimeout):
            JobControl(job, NODE).wait_for("packed", timeout=5)

    def test_one_that_is_emitted_while_the_job_goes_to_wait(self, job: LeasedJob) -> None:
        control = suspending(job, "wait_for", "packed")
        emit("packed", "now")
        suspend(job, control)
        engine.run(wake_waiting([job.seq]))
        assert JobControl(one(), NODE).wait_for("packed") == "now"

    def test_only_the_wait_at_which_it_stands_wakes_it(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        emit("heard", 0)
        suspend(job, suspending(job, "wait_for", "old", timeout=5))
        Job.objects.all().run_now()
        job = one()
        control = suspending(job, "wait_for", "new")
        emit("old", 1)
        suspend(job, control)
        engine.run(wake_waiting([job.seq]))
        duty(MissedEvents())
        assert Job.objects.get().state == "delayed"
        until = JobStep.objects.get(event="new").until
        Job.objects.all().run_now()
        job = one()
        assert JobControl(job, NODE).wait_for("heard") == 0, "a wait that is over forgets none"
        suspend(job, suspending(job, "wait_for", "new"))
        assert JobStep.objects.get(event="new").until == until
        emit("new", 2)
        job = one()
        assert [JobControl(job, NODE).wait_for(name) for name in ("new", "old")] == [2, 1]

    def test_names_and_payloads(self, job: LeasedJob, settings: Any) -> None:
        for name in ("x" * 512, "a#b", "ü" * 150):
            emit(name, name)
            assert JobControl(job, NODE).wait_for(name) == name
        settings.LEASEQUEUE = {"MAX_PAYLOAD_BYTES": 100}
        refused: list[tuple[type[Exception], tuple[Any, ...], dict[str, Any]]] = [
            (PayloadTooLarge, ("packed", "x" * 101), {}), (InvalidOption, ("packed", {1}), {}),
            (InvalidOption, ("packed",), {"retention": -1}),
            *((InvalidOption, (name,), {}) for name in ("", "x" * 513, "$mine", "a\x00")),
        ]  # fmt: skip
        for error, args, options in refused:
            with pytest.raises(error):
                emit(*args, **options)
        assert EmittedEvent.objects.count() == 3


@pytest.mark.django_db(transaction=True)
class TestMeetings:
    def test_an_emit_that_goes_on_is_looked_for_again(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        control = suspending(job, "wait_for", "packed")
        with transaction.atomic():
            emit("packed", 1)

            def goes_to_wait() -> None:
                suspend(job, control)
                engine.run(wake_waiting([job.seq]))

            with ThreadResult(goes_to_wait) as waits:
                waits.value()
        assert Job.objects.get().available_at == clock.now + timedelta(seconds=1)
        clock.advance(seconds=1)
        assert JobControl(one(), NODE).wait_for("packed") == 1

    def test_who_waits_for_another_event_is_not_held_up(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        suspend(job, suspending(job, "wait_for", "mine"))
        with transaction.atomic():
            emit("other")
            with ThreadResult(lambda: emit("mine")) as emits:
                assert emits.value()
        assert JobControl(one(), NODE).wait_for("mine") is None

    def test_rolled_back_it_has_not_happened(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            emit("packed")
            raise RuntimeError
        assert async_to_sync(aemit)("packed", 1)
        assert not emit("packed", 2)

    def test_the_reaper_wakes_what_has_missed_its_event(self, job: LeasedJob, clock: engine_clock.Clock) -> None:
        control = suspending(job, "wait_for", "packed")
        emit("packed", 3)  # before the job is given back, and nobody looks then
        suspend(job, control)
        duty(MissedEvents())
        assert JobControl(one(), NODE).wait_for("packed") == 3

    def test_one_that_sleeps_expires_like_a_delayed_one(self, clock: engine_clock.Clock) -> None:
        make("work", ttl_ms=3_600_000)
        put(1)
        job = one()
        suspend(job, suspending(job, "sleep", "deep", hours=2))
        make("other", lease_ms=86_400_000)
        put(1, "other")
        stays = one("other")
        JobControl(stays, NODE).step("a", int)
        clock.advance(hours=1)
        duty(Expiry())
        assert Job.objects.get().pk == stays.seq
        duty(JobSteps())
        assert JobStep.objects.get().seq == stays.seq, "of jobs that are gone no step is left"

    def test_it_is_kept_for_its_time_and_forgotten_by_the_reaper(self, clock: engine_clock.Clock) -> None:
        assert emit("packed", 1, retention=timedelta(hours=1))
        clock.advance(hours=1)
        assert emit("packed", 2, retention=10)
        assert EmittedEvent.objects.get().payload == 2
        emit("b", retention=20)
        clock.advance(seconds=15)
        duty(forget_events)
        assert EmittedEvent.objects.get().name == "b"


@pytest.mark.usefixtures("_frozen")
@pytest.mark.django_db(transaction=True)
class TestOthers:
    def test_another_task_is_started_once_and_waited_for_as_a_workflow_is(self, leasequeue: Harness) -> None:
        result = tasks.parent.enqueue(4)
        assert drained(leasequeue) == ["suspended", "completed", "completed"]
        assert (result.wait(), tasks.doubler.jobs.count()) == (8, 1)
        good, bad = tasks.flow_parent.enqueue(1, 2), tasks.flow_parent.using(max_attempts=1).enqueue(3, -1)
        drained(leasequeue)
        bad.refresh()
        assert (good.wait(), bad.status) == ([2, 4], TaskResultStatus.FAILED)
        assert bad.errors[-1].exception_class is JobFailed
        assert "negative" in bad.errors[-1].traceback

    def test_a_workflow_is_not_started_as_a_task_is(self, job: LeasedJob) -> None:
        with pytest.raises(InvalidOption, match=r"start\(\) takes a signature.* Enqueue workflows in atomic steps"):
            JobControl(job, NODE).start(chain(tasks.doubler.s(1), tasks.doubler.s()))  # type: ignore[arg-type]

    def test_one_after_the_other(self, leasequeue: Harness) -> None:
        result = tasks.parent_of_two.enqueue(1, 2)
        assert drained(leasequeue) == ["suspended", "completed", "suspended", "completed", "completed"]
        assert result.wait() == [2, 4]
        assert not JobStep.objects.filter(event__isnull=False).exists()

    def test_its_failure_is_raised_at_every_try(self, leasequeue: Harness, caplog: pytest.LogCaptureFixture) -> None:
        result = tasks.parent.using(max_attempts=2).enqueue(-1)
        drained(leasequeue, advance=True)
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert [error.exception_class for error in result.errors] == [JobFailed, JobFailed]
        assert "no longer knows" not in caplog.text

    def test_it_keeps_its_slot_where_its_limit_says_so(self, leasequeue: Harness) -> None:
        """The other one starts when it has ended; sleeping costs no starts of the rate, whose next is in a quarter."""
        results = [tasks.keeping_sleeper.enqueue(name) for name in ("a", "b")]
        assert drained(leasequeue) == ["suspended"]
        assert differences() == []
        began = leasequeue.clock.now
        assert drained(leasequeue, advance=True) == ["suspended", "completed", "suspended", "suspended", "completed"]
        assert leasequeue.clock.now - began == timedelta(minutes=15 + 2)
        assert [result.wait() for result in results] == ["a", "b"]
        assert not Member.objects.filter(taken=True).exists()

    def test_it_keeps_its_slot_without_a_rate(self, leasequeue: Harness) -> None:
        task = tasks.keeping_sleeper.using(limit=Limit("plain", concurrency=1, while_suspended=True))
        for name in ("a", "b"):
            task.enqueue(name)
        assert drained(leasequeue) == ["suspended"]
        assert drained(leasequeue, advance=True) == ["suspended", "completed", "suspended", "suspended", "completed"]
        with pytest.raises(InvalidTask, match="said by the task itself"):
            tasks.sleeper.using(limit=Limit("x", concurrency=1, while_suspended=True))
        with pytest.raises(InvalidOption, match=r"sets control\.keeps_slot"):
            Limit("x", concurrency=1, while_suspended=True).of_payload({})

    def test_what_is_kept_passes_the_check_and_a_cancel_frees_a_slot(self, leasequeue: Harness) -> None:
        tasks.sleeper.enqueue()
        tasks.waiter.enqueue("e")
        assert drained(leasequeue) == ["suspended"] * 2
        assert differences() == []
        tasks.keeping_sleeper.enqueue("a")
        second = tasks.keeping_sleeper.enqueue("b")
        assert (drained(leasequeue), drained(leasequeue)) == (["suspended"], [])
        Job.objects.filter(available_at__lt=HELD).cancel()
        leasequeue.advance(minutes=30)
        assert [ran.payload["args"] for ran in leasequeue.drain()] == [["b"]]
        assert not second.is_finished


@pytest.mark.usefixtures("_frozen")
@pytest.mark.django_db(transaction=True)
class TestAtomicTasks:
    def test_its_rows_its_jobs_and_its_end_are_one(self, leasequeue: Harness) -> None:
        lost = tasks.booker.using(max_attempts=1).enqueue("lost", "fails")
        assert drained(leasequeue) == ["dead"]
        lost.refresh()
        assert lost.status == TaskResultStatus.FAILED
        assert not tasks.doubler.jobs.exists()
        kept = tasks.booker.enqueue("kept")
        assert drained(leasequeue) == ["completed", "completed"]
        assert (kept.wait(), kept.attempts, Group.objects.get().name) == ("kept", 1, "kept")

    def test_a_lease_that_is_lost_and_a_coroutine(self, leasequeue: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "meanwhile", lambda: leasequeue.advance(hours=1))
        tasks.booker.enqueue("late", "late")
        (ran,) = leasequeue.drain()[:1]
        assert ran.state == "lost"
        assert not Group.objects.exists()

        async def coroutine() -> None:
            pass

        with pytest.raises(InvalidTask, match="plain functions"):
            task(atomic=True)(coroutine)


def test_code_that_changes_while_jobs_sleep(leasequeue: Harness, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    result = tasks.changing.enqueue()
    assert drained(leasequeue) == ["suspended"]
    monkeypatch.setattr(tasks, "versions", lambda: ["new", "b"])
    assert drained(leasequeue, advance=True) == ["completed"]
    assert result.wait() == ["NEW", "B"]
    (line,) = [record.getMessage() for record in caplog.records if "no longer knows" in record.getMessage()]
    assert line.endswith("ignores: a, b#2")


def test_each_call_of_a_decorated_function_is_a_step(leasequeue: Harness) -> None:
    results = [tasks.reader.enqueue(3), tasks.async_reader.enqueue(2)]
    leasequeue.crash_after("fetched#2")
    assert drained(leasequeue) == ["crashed", "completed", "completed"]
    assert [result.wait() for result in results] == [["page 0", "page 1", "page 2"], ["page 0", "page 1"]]
    assert (Group.objects.count(), JobStep.objects.filter(name__startswith="fetch#").count()) == (3, 1)
    assert async_to_sync(tasks.afetched)(7) == "page 7", "outside of a task it is a function"


@pytest.mark.parametrize("name", ["before", "cool off", "cool off#2"])
def test_a_crash_behind_each_step(leasequeue: Harness, name: str) -> None:
    """The time is kept before the place is given up: who dies in between does not sleep twice."""
    clock = leasequeue.freeze()
    begin = clock.now
    tasks.sleeper.enqueue()
    leasequeue.crash_after(name)
    went = drained(leasequeue, advance=True)
    assert (went.count("crashed"), went.count("suspended"), went[-1]) == (1, 2, "completed")
    assert clock.now - begin == timedelta(hours=30, minutes=1)
    assert Group.objects.count() == 1


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_a_worker_runs_them_all() -> None:
    results = [
        tasks.async_sleeper.enqueue("go", 0.3), tasks.waiter.enqueue("go"), tasks.parent.enqueue(21),
        tasks.booker.enqueue("booked"),
    ]  # fmt: skip
    options: dict[str, Any] = {"queues": ["default"], "concurrency": 2}
    with working(TaskHandler(), reaper=True, **options), working(TaskHandler(), **options) as worker:
        eventually(lambda: JobStep.objects.filter(event="go").count() == 1)
        emit("go", "gone")
        assert [result.wait(timeout=120) for result in results] == ["gone", "gone", 42, "booked"]
        assert all(result.attempts == 1 for result in results)
        assert worker.state.figures.lost == 0
    assert Group.objects.get().name == "booked"
    assert not Attempt.objects.exists()
