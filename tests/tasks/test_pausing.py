"""A paused task: its jobs go back unstarted until it is resumed, and other jobs go on."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_leasequeue import engine, tasks
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.jobs.pausing import list_paused, make_due, pause_task, resume_task
from django_leasequeue.enums import JobFlag
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Delayed, Job, JobStatus, PausedTask
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import starts
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.helpers import NODE, claim
from tests.worker.support import Threaded, burst, working

ADD = samples.add.module_path


def names(project: str = "") -> list[str]:
    return [each.name for each in engine.run(list_paused(project))]


def give_back(seconds: float) -> None:
    releases = [engine.Release(job.seq, job.token, int(seconds * 1_000)) for job in claim(size=100)]
    engine.run(engine.release(releases, NODE, unstarted=True))


@pytest.mark.django_db
def test_a_task_is_paused_once_and_resumed_once(clock: Clock) -> None:
    assert tasks.pause(samples.add)
    assert not tasks.pause(ADD)
    clock.advance(seconds=90)
    (found,) = engine.run(list_paused())
    assert (found.name, found.project, found.paused_by, found.seconds) == (ADD, "", "", 90)
    assert tasks.resume(ADD)
    assert not tasks.resume(samples.add)
    assert not PausedTask.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_async_twins_do_the_same() -> None:
    async def both() -> list[bool]:
        return [await tasks.apause(samples.add), await tasks.apause(ADD), await tasks.aresume(ADD)]

    assert asyncio.run(both()) == [True, False, True]


@pytest.mark.django_db
def test_projects_have_their_own_pauses() -> None:
    assert tasks.pause(ADD, project="a")
    assert names("a") == [ADD]
    assert names() == []
    assert not tasks.resume(ADD, project="b")


@pytest.mark.django_db
@pytest.mark.parametrize(("task", "says"), [
    ("", "the name of a task must be 1 to 512 bytes"), ("x" * 513, "the name of a task must be 1 to 512 bytes"),
    (3, "the name of a task must be text; it is a int"), ("a\0", "without NUL"),
])  # fmt: skip
def test_what_is_no_task_is_refused(task: Any, says: str) -> None:
    for act in (tasks.pause, tasks.resume):
        with pytest.raises(InvalidOption, match=says):
            act(task)


@pytest.mark.django_db
def test_the_number_of_paused_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.engine.jobs.pausing.MOST", 2)
    for name in ("shop.a", "shop.b"):
        tasks.pause(name)
    with pytest.raises(InvalidOption, match="At most 2 tasks of a project are paused"):
        tasks.pause("shop.c")


@pytest.mark.django_db
def test_a_resume_makes_due_what_went_back_and_leaves_other_delays(clock: Clock) -> None:
    samples.add.enqueue(1)
    samples.echo.enqueue(1)
    give_back(600)
    samples.add.using(run_after=timedelta(seconds=100)).enqueue(2)
    later = Job.objects.latest("seq")
    tasks.pause(samples.add)
    tasks.resume(samples.add)
    (job,) = claim(size=10)
    engine.run(engine.ack([job.seq], NODE))
    assert job.name == ADD
    waiting = dict(Delayed.objects.values_list("seq", "flags"))
    assert waiting.pop(later.seq) & JobFlag.PUT_OFF == 0
    assert [flags & JobFlag.PUT_OFF > 0 for flags in waiting.values()] == [True]
    clock.advance(seconds=100)
    assert [job.seq for job in claim(size=10)] == [later.seq]


@pytest.mark.django_db
def test_a_resume_leaves_a_job_that_was_rescheduled_meanwhile(clock: Clock) -> None:
    once = samples.add.using(key="once", on_conflict="reschedule")
    once.enqueue(1)
    give_back(600)
    assert not once.using(run_after=timedelta(seconds=100)).enqueue(1).created
    engine.run(make_due(ADD, ""))
    assert claim() == []
    clock.advance(seconds=100)
    assert len(claim()) == 1


@pytest.mark.django_db
def test_a_resume_looks_through_all_that_went_back(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.engine.jobs.pausing.BATCH", 3)
    samples.echo.enqueue_many((number,) for number in range(5))
    samples.add.enqueue_many((number,) for number in range(5))
    give_back(600)
    engine.run(make_due(ADD, ""))
    assert [job.name for job in claim(size=10)] == [ADD] * 5


@pytest.mark.django_db
def test_a_job_that_was_put_off_loses_the_mark_when_it_is_due(clock: Clock) -> None:
    samples.add.enqueue(1)
    give_back(5)
    clock.advance(seconds=5)
    (job,) = claim()
    assert (job.deliveries, job.flags & JobFlag.PUT_OFF) == (1, 0)


@pytest.mark.slow  # a worker of its own
@pytest.mark.django_db(transaction=True)
def test_jobs_of_a_paused_task_wait_beside_others() -> None:
    samples.add.enqueue_many((number,) for number in range(300))
    words = samples.echo.enqueue_many((number,) for number in range(5))
    tasks.pause(samples.add)
    threaded = burst(TaskHandler(), concurrency=2)
    assert samples.calls == []
    assert all(word.wait(timeout=5) == number for number, word in enumerate(words))
    assert threaded.state.figures.returned == 300
    waiting = Job.objects.filter(task=ADD)
    assert set(waiting.values_list("state", "deliveries")) == {(JobStatus.DELAYED, 0)}


@pytest.mark.slow  # a worker of its own
@pytest.mark.django_db(transaction=True)
def test_a_running_worker_hears_of_a_pause_and_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "FIRST", 300.0)  # only the resume makes it due
    with working(TaskHandler(), concurrency=1) as threaded:
        assert samples.add.enqueue(1).wait(timeout=10) == 1
        with transaction.atomic():
            tasks.pause(samples.add)
        eventually(lambda: ADD in threaded.worker._fetcher._paused.since, "the worker has read the pause")
        waiting = samples.add.enqueue(2)
        eventually(Delayed.objects.exists, "the job went back")
        assert samples.echo.enqueue("other").wait(timeout=10) == "other"
        tasks.resume(samples.add)
        assert waiting.wait(timeout=30) == 2
    waiting.refresh()
    assert waiting.attempts == 1


@pytest.mark.slow  # a worker of its own
@pytest.mark.django_db(transaction=True)
def test_jobs_claimed_ahead_do_not_start_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on = threading.Event(), threading.Event()

    handler = TaskHandler()
    run = handler.run

    def hold(job: Any, control: Any) -> str | None:
        began.set()
        assert goes_on.wait(10)
        return run(job, control)

    monkeypatch.setattr(handler, "run", hold)
    samples.add.enqueue_many((number,) for number in range(5))
    with working(handler, concurrency=1, prefetch=10) as threaded:
        assert began.wait(10)
        eventually(lambda: threaded.state.buffer.waiting > 0, "a job is claimed ahead")
        tasks.pause(samples.add)
        eventually(lambda: Delayed.objects.count() == 4, "all others went back")
        goes_on.set()
        eventually(lambda: threaded.state.figures.completed == 1, "the running one ended")
    assert len(samples.calls) == 1


@pytest.mark.django_db
def test_a_job_goes_back_for_as_long_as_the_task_has_been_paused(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    state = Threaded(TaskHandler()).state
    known = starts.PausedTasks(state, None, None)  # type: ignore[arg-type]
    samples.add.enqueue(1)
    (job,) = claim()
    now = starts.time.monotonic()
    monkeypatch.setattr(starts.time, "monotonic", lambda: now)
    for age, delay in ((0, 5_000), (90, 90_000), (86_400, 600_000)):
        known.since = {ADD: now - age}
        assert known.sort_out([job]) == []
        assert state.ended.pop()[4] == pytest.approx(delay, abs=1)
    known.since = {"other": now}
    assert known.sort_out([job]) == [job]


@pytest.mark.django_db
def test_a_worker_makes_due_what_it_gave_back_while_the_task_was_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Link:
        run = staticmethod(engine.run)

    worker = Threaded(TaskHandler()).worker
    known = starts.PausedTasks(worker.state, Link(), worker._coroutines)  # type: ignore[arg-type]
    engine.run(pause_task(ADD))
    assert known.read() == []
    engine.run(resume_task(ADD))
    for _ in range(2):  # also at a second reading right after the first
        known.read()
        samples.add.enqueue(1)
        give_back(600)
    known.read()
    assert [job.name for job in claim(size=10)] == [ADD] * 2
    monkeypatch.setattr(starts, "SETTLED", -1.0)
    known.read()
    assert known._resumed == {}
