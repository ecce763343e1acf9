"""Suspects run beside the others, each in a process of its own, and take nobody with them."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.enums import EventKind, JobFlag, JobState
from django_leasequeue.models import Job, JobEvent, LiveJob, Ready
from django_leasequeue.tasks import isolation
from django_leasequeue.tasks.api import TaskResultStatus, task_signals
from django_leasequeue.tasks.handler import TaskHandler
from tests.engine.helpers import run
from tests.support.waiting import eventually
from tests.worker import suspect_tasks as tasks
from tests.worker.processes import TASKS, Start, alive
from tests.worker.support import expire, working
from tests.worker.suspect_tasks import processes

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]  # each suspect is a new process

QUEUE = "default"


@pytest.fixture(autouse=True)
def _no_process_stays(own_directory: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of this test either, and no memory of one that was refused."""
    monkeypatch.setattr(isolation, "_refused_until", 0.0)
    yield
    end_idle()


def end_idle() -> None:
    while isolation._idle:
        isolation._idle.pop().kill()


def done(*results: Any) -> bool:
    return Job.objects.filter(key__in=[result.id for result in results], state="completed").count() == len(results)


def flags_of(result: Any) -> int:
    return int(Ready.objects.get(seq=Job.objects.get(key=result.id).pk).flags)


@pytest.mark.sample
@pytest.mark.parametrize("task", [tasks.until, tasks.auntil], ids=["thread", "coroutine"])
def test_as_many_suspects_run_at_once_as_there_are_threads(tmp_path: Path, task: Any) -> None:
    folder = str(tmp_path)
    suspects = [task.enqueue(folder, f"suspect-{number}") for number in range(3)]
    expire(QUEUE, 3)
    innocents = [tasks.innocent.enqueue(folder, f"innocent-{number}") for number in range(40)]
    with working(TaskHandler(), queues=[QUEUE], concurrency=3) as worker:
        eventually(lambda: len(list(tmp_path.glob("suspect-*"))) == 3, "all three run at once")
        running = [control.job for control, _ in worker.state.running()]
        assert all(job.flags & JobFlag.SUSPECT for job in running)
        assert worker.worker.report()[1]["suspects"] == 3
        assert worker.worker.report()[1]["alone_seconds"] == 0
        (tmp_path / "go").write_text("")
        eventually(lambda: done(*suspects, *innocents))
    found = {pid for number in range(3) for pid in processes(tmp_path, f"suspect-{number}")}
    assert len(found) == 3, "each has a process"
    assert os.getpid() not in found
    assert {pid for number in range(40) for pid in processes(tmp_path, f"innocent-{number}")} == {os.getpid()}


@pytest.mark.parametrize("task", [tasks.until, tasks.auntil], ids=["thread", "coroutine"])
def test_a_long_suspect_holds_one_thread_and_nobody_else(tmp_path: Path, task: Any) -> None:
    suspect = task.enqueue(str(tmp_path), "suspect")
    expire(QUEUE, 1)
    innocents = [tasks.innocent.enqueue(str(tmp_path), f"innocent-{number}") for number in range(100)]
    with working(TaskHandler(), queues=[QUEUE], concurrency=2):
        eventually(lambda: done(*innocents), "they end while the suspect goes on")
        assert not done(suspect)
        (tmp_path / "go").write_text("")
        eventually(lambda: done(suspect))
    assert JobEvent.objects.filter(kind=EventKind.RELEASED).count() == 0


@pytest.mark.sample
@pytest.mark.chaos
@pytest.mark.parametrize("task", [tasks.poison, tasks.apoison], ids=["thread", "coroutine"])
def test_a_poison_task_ends_one_worker_and_then_only_processes_of_its_own(
    start: Start, tmp_path: Path, task: Any
) -> None:
    before = [tasks.innocent.enqueue(str(tmp_path), f"a-{number}") for number in range(30)]
    poison = task.enqueue(str(tmp_path), "poison")
    after = [tasks.innocent.enqueue(str(tmp_path), f"b-{number}") for number in range(60)]
    arguments = (*TASKS, "--concurrency", "4", "--queues", QUEUE)
    workers = [start(*arguments)]

    def over() -> bool:
        if not workers[-1].running:  # what an operator's init system does
            workers.append(start(*arguments))
        poison.refresh()
        return poison.status is TaskResultStatus.FAILED and done(*before, *after)

    eventually(over, "all have ended", 480)  # after five starts of a process
    workers[-1].ends()
    assert len(workers) == 2
    found = processes(tmp_path, "poison")
    assert len(found) == 4, "each attempt had a process of its own"
    assert workers[0].pid in found
    assert workers[1].pid not in found
    kinds = [error.exception_class_path.rsplit(".", 1)[-1] for error in poison.errors]
    assert kinds == ["LeaseLost", *["ProcessDied"] * 3]
    extra = 0
    for name, results in (("a", before), ("b", after)):
        for number, result in enumerate(results):
            started = len(processes(tmp_path, f"{name}-{number}"))
            deliveries = Job.objects.get(key=result.id).deliveries
            # What had ended when the worker died, and of which the database did not know, runs again.
            assert started <= deliveries <= 2
            extra += deliveries - started
    assert extra <= 4, "one that died before its first line looks as if it had not started"


def test_one_that_fails_is_no_suspect_any_more_and_one_whose_process_died_is(tmp_path: Path) -> None:
    failing = tasks.fail.enqueue(str(tmp_path), "failing")
    dying = tasks.poison.enqueue(str(tmp_path), "dying")
    expire(QUEUE, 2)
    with working(TaskHandler(), queues=[QUEUE], max_jobs=2) as worker:
        worker.join()
    assert (len(processes(tmp_path, "failing")), len(processes(tmp_path, "dying"))) == (1, 1)
    assert not flags_of(failing) & JobFlag.SUSPECT
    assert flags_of(dying) & JobFlag.SUSPECT


def test_what_is_given_back_unstarted_stays_what_it_was(tmp_path: Path) -> None:
    suspects = [tasks.innocent.enqueue(str(tmp_path), f"suspect-{number}") for number in range(2)]
    expire(QUEUE, 2)
    innocents = [tasks.innocent.enqueue(str(tmp_path), f"innocent-{number}") for number in range(3)]
    worker = working(TaskHandler(), queues=[QUEUE], concurrency=1)
    state = worker.state
    jobs = engine.run(engine.claim(QUEUE, state.node, 5))
    assert len({job.token for job in jobs}) == 1, "one claim has both kinds"
    state.held.update({job.seq: job for job in jobs})
    state.give_back(jobs, unstarted=True)
    state.ask_stop("the test")
    with worker:
        worker.join()
    assert [flags_of(result) & JobFlag.SUSPECT for result in [*suspects, *innocents]] == [32, 32, 0, 0, 0]
    assert list(LiveJob.objects.order_by("seq").values_list("deliveries", flat=True)) == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("how", ["cancel", "timeout", "hurry"])
def test_what_ends_the_run_of_a_suspect_kills_its_process(tmp_path: Path, how: str) -> None:
    task = tasks.until.using(timeout=2, max_attempts=2) if how == "timeout" else tasks.until
    result = task.enqueue(str(tmp_path), "suspect", "never")
    expire(QUEUE, 1)
    with working(TaskHandler(), queues=[QUEUE]):
        pid, *_ = eventually(lambda: processes(tmp_path, "suspect"))
        assert pid != os.getpid()
        if how == "cancel":
            assert result.cancel(running=True)
        if how != "hurry":
            eventually(lambda: not alive(pid))
    eventually(lambda: not alive(pid))
    if how == "timeout":
        result.refresh()
        assert result.errors[-1].exception_class_path == "django_leasequeue.worker.control.JobTimeout"
    if how == "hurry":
        assert flags_of(result) & JobFlag.SUSPECT, "it has not run to its end"


def test_steps_and_signals_are_those_of_any_run(tmp_path: Path) -> None:
    result = tasks.durable.enqueue(str(tmp_path), "durable")
    expire(QUEUE, 1)
    ended: list[str] = []

    def heard(task_result: Any, **_: Any) -> None:
        ended.append(task_result.id)

    task_signals.task_finished.connect(heard)
    try:
        with working(TaskHandler(), queues=[QUEUE]):
            first, last = result.wait(60)
            eventually(lambda: ended == [result.id], "the worker's process sends the signal")
    finally:
        task_signals.task_finished.disconnect(heard)
    # At its sleep it has run to an end, and is no suspect any more.
    assert first != os.getpid()
    assert last == os.getpid()
    assert processes(tmp_path, "durable") == [os.getpid()]


def test_a_process_runs_suspects_one_after_the_other_while_they_leave_nothing_behind(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"plain": tasks.innocent, "coroutine": tasks.ainnocent}
    kinds |= {"thread": tasks.leaves_thread, "child": tasks.leaves_child}
    for kind, task in kinds.items():
        results = [task.enqueue(str(tmp_path), f"{kind}-{number}") for number in range(5)]
        expire(QUEUE, 5)
        with working(TaskHandler(), queues=[QUEUE], concurrency=1):
            eventually(lambda: done(*results), kind, 480)  # noqa: B023  (it is over before the next one)
        found = {pid for number in range(5) for pid in processes(tmp_path, f"{kind}-{number}")}
        assert os.getpid() not in found
        assert len(found) == (1 if kind in ("plain", "coroutine") else 5), kind
        end_idle()


def test_a_killed_worker_takes_the_processes_of_its_suspects_with_it(start: Start, tmp_path: Path) -> None:
    tasks.until.enqueue(str(tmp_path), "suspect")
    expire(QUEUE, 1)
    worker = start(*TASKS, "--queues", QUEUE)
    (pid,) = eventually(lambda: processes(tmp_path, "suspect"))
    worker.send(signal.SIGKILL)
    worker.wait()
    eventually(lambda: not alive(pid))


def test_of_a_worker_that_hangs_the_suspect_ends_with_its_lease(start: Start, tmp_path: Path) -> None:
    result = tasks.until.enqueue(str(tmp_path), "suspect")
    engine.run(engine.configure(QUEUE, preset="django", lease_ms=4_000))
    expire(QUEUE, 1)
    worker = start(*TASKS, "--queues", QUEUE)
    (pid,) = eventually(lambda: processes(tmp_path, "suspect"))
    time.sleep(4)  # renewed meanwhile
    assert alive(pid)
    worker.send(signal.SIGSTOP)
    eventually(lambda: not alive(pid), "no other delivery finds it", 10)
    assert LiveJob.objects.get().state == JobState.LEASED, "it ended before its lease did"
    # Else the worker may renew it still, and the process has died before its time.
    eventually(
        lambda: run("SELECT bool_and(deadline < clock_timestamp()) FROM leasequeue_claim")[0][0], "it is over", 10
    )
    worker.send(signal.SIGCONT)
    (tmp_path / "go").write_text("")
    eventually(lambda: done(result))
    result.refresh()
    assert not [error for error in result.errors if "ProcessDied" in error.exception_class_path]
    worker.ends()


class TestNoProcess:
    def test_the_system_refuses_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        (tmp_path / "go").write_text("")
        suspect = tasks.until.enqueue(str(tmp_path), "suspect")
        expire(QUEUE, 1)
        with working(TaskHandler(), queues=[QUEUE]):
            eventually(lambda: done(suspect), "it runs alone in the worker after that")
        assert processes(tmp_path, "suspect") == [os.getpid()]
        said = [record.getMessage() for record in caplog.records]
        assert any("no process can be had for it: [Errno 11]" in line for line in said)
        assert any(line.startswith("A suspect runs alone") for line in said)
        assert Job.objects.get(key=suspect.id).deliveries == 2, "the delivery that found no process does not count"

    @pytest.mark.parametrize("task", [tasks.until, tasks.auntil], ids=["thread", "coroutine"])
    def test_settings_that_no_process_can_read(self, tmp_path: Path, task: Any) -> None:
        (tmp_path / "go").write_text("")
        suspect = task.enqueue(str(tmp_path), "suspect")
        expire(QUEUE, 1)
        with override_settings(SETTINGS_MODULE=None), working(TaskHandler(), queues=[QUEUE]):
            eventually(lambda: done(suspect))
        assert processes(tmp_path, "suspect") == [os.getpid()]

    def test_a_process_that_cannot_start_costs_no_delivery(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(isolation, "REFUSED", 0.0)
        monkeypatch.setenv("PYTHONHOME", "/nonexistent")
        suspect = tasks.until.enqueue(str(tmp_path), "suspect")
        expire(QUEUE, 1)
        with working(TaskHandler(), queues=[QUEUE]):
            job = eventually(lambda: LiveJob.objects.filter(state=1).first(), "it was given back")
            assert (job.deliveries, processes(tmp_path, "suspect")) == (1, [])
        suspect.refresh()
        assert not [error for error in suspect.errors if "ProcessDied" in error.exception_class_path]
