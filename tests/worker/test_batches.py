"""Batch tasks in a worker: jobs run together, and each has an end of its own."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.enums import JobState
from django_leasequeue.models import Job, JobEvent, LiveJob, StoredJob
from django_leasequeue.tasks import pause, resume
from django_leasequeue.tasks.api import TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import ExitCode
from tests.support.waiting import eventually
from tests.tasks import batch_samples as samples
from tests.worker.processes import TASKS, Start, finished
from tests.worker.support import Threaded, take_away, working

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = pytest.mark.parametrize("task", [samples.mixed, samples.amixed], ids=["thread", "loop"])


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    samples.runs.clear()
    samples.free.clear()


def worker(**options: Any) -> Threaded:
    return working(TaskHandler(), queues=["default"], **{"concurrency": 2, **options})


def ended(*results: Any) -> None:
    eventually(lambda: finished(*results))


def worked_off(task: Any, calls: Any) -> list[Any]:
    """Enqueue these calls, and let a worker run them; return their results."""
    results: list[Any] = task.enqueue_many(calls)
    with worker():
        ended(*results)
    return results


@BOTH
def test_each_job_of_a_run_has_its_own_end(task: Any) -> None:
    words = ["ok", "fail", "for good", "no json", *range(96)]
    good, failed, for_good, no_json, *others = worked_off(task, ((word,) for word in words))
    assert good.return_value == [good.id, 1, "ok"]
    assert [other.return_value for other in others] == [[other.id, 1, n] for n, other in enumerate(others)]
    assert all(result.attempts == 1 and len(result.worker_ids) == 1 for result in (good, *others))
    assert (failed.status, failed.attempts) == (TaskResultStatus.FAILED, 2), "it alone was tried again"
    assert failed.errors[0].exception_class is ValueError
    assert (for_good.status, for_good.attempts) == (TaskResultStatus.FAILED, 1)
    assert "cannot be kept as its result" in no_json.errors[0].traceback
    assert [len(run) for run in samples.runs] == [100, 1]


@BOTH
def test_an_error_of_the_run_is_that_of_jobs_without_an_answer(task: Any) -> None:
    answered, unanswered, raises = worked_off(task, [("ok",), ("nothing",), ("raise",)])
    assert answered.status == TaskResultStatus.SUCCESSFUL
    assert [raises.attempts, unanswered.attempts] == [2, 2]
    trace = raises.errors[0].traceback
    assert raises.errors[0].exception_class is KeyError
    assert "batch_samples.py" in trace.splitlines()[1], "the frames above are not shown"


def test_a_job_without_an_answer_is_done_without_a_value() -> None:
    results = worked_off(samples.tens, ((n,) for n in range(10)))
    assert [result.return_value for result in results] == [None] * 10
    assert samples.runs == [list(range(10))], "a full batch waits no longer"


def test_the_pause_of_a_task_reaches_those_that_wait_and_leaves_other_batches_whole() -> None:
    blocked = samples.blocks.enqueue()
    with worker(concurrency=1) as threaded:
        eventually(threaded.state.running, "the thread is busy")
        tens = samples.tens.enqueue_many((n,) for n in range(15))  # ten that wait for a thread, five for more
        others = samples.mixed.enqueue_many((n,) for n in range(20))
        eventually(lambda: len(threaded.state.held) == 36, "all are claimed ahead")
        pause(samples.tens)
        eventually(lambda: len(threaded.state.held) == 21, "the paused ones are back")
        samples.free.set()
        ended(blocked, *others)
        assert samples.runs == [list(range(20))]
        samples.tens.enqueue_many((n,) for n in range(15, 20))
        resume(samples.tens)
        ended(*tens)
    assert [len(run) for run in samples.runs] == [20, 10, 10]


def test_only_jobs_with_the_same_argument_run_together() -> None:
    calls = [{"tenant": n % 3, "n": n} for n in range(12)]
    worked_off(samples.by_tenant, calls)
    assert sorted(samples.runs, key=lambda run: run[0]["tenant"]) == [
        [call for call in calls if call["tenant"] == tenant] for tenant in range(3)
    ]


@pytest.mark.parametrize("task", [samples.sleeps, samples.asleeps], ids=["thread", "loop"])
def test_a_timeout_is_that_of_the_run_and_spares_answered_jobs(task: Any) -> None:
    first, *others = worked_off(task, [()] * 3)
    assert first.return_value == "before"
    for other in others:
        assert other.status == TaskResultStatus.FAILED
        assert "timeout of 0.2 s" in other.errors[0].traceback


@pytest.mark.slow  # a run that goes on
def test_a_run_that_outlives_its_hard_timeout_fails_all_its_jobs() -> None:
    results = samples.stubborn.enqueue_many([()] * 3)
    with worker(timeout_grace=0.1) as threaded:
        assert threaded.join() is ExitCode.RECYCLE
    ended(*results)
    assert all("HardTimeout" in result.errors[0].exception_class_path for result in results)


@pytest.mark.slow  # a run that goes on
def test_a_run_that_is_given_up_frees_the_places_of_its_jobs() -> None:
    results = samples.stubborn.enqueue_many([()] * 3)
    threaded = worker(timeout_grace=0.1, concurrency=1)
    threaded.state.timekeeper.abandon_run = threaded.worker._threads.abandon_run
    with threaded:
        ended(*results)
        assert not threaded.state.journal._together
    assert all(result.status == TaskResultStatus.FAILED for result in results)


def test_a_run_that_leaves_a_transaction_open_fails_all_its_jobs() -> None:
    results = worked_off(samples.leaves_transaction, [()] * 3)
    assert all("TransactionLeftOpen" in result.errors[0].exception_class_path for result in results)


def test_what_belongs_to_one_job_is_refused_in_a_run_of_many() -> None:
    results = worked_off(samples.steps, [("step",), ("sleep",), ("progress",), ("replace",), ("job",)])
    assert all("task of its own" in result.return_value for result in results)


def test_a_limit_bounds_how_many_jobs_of_a_key_run_together() -> None:
    worked_off(samples.limited, ({"customer": 1} for _ in range(7)))
    assert max(len(run) for run in samples.runs) == 3


@pytest.mark.parametrize("task", [samples.tens, samples.waits], ids=["thread", "loop"])
def test_a_stop_gives_back_jobs_that_wait_for_others_uncounted(task: Any) -> None:
    results = task.enqueue_many((n,) for n in range(3))
    with worker() as threaded:
        eventually(lambda: threaded.state.batches.waiting == 3)
        began = time.monotonic()
        threaded.stop()
        assert time.monotonic() - began < 30, "it does not wait for more"
    assert not samples.runs
    assert list(LiveJob.objects.values_list("state", "deliveries")) == [(0, 0)] * 3
    with worker():
        eventually(lambda: LiveJob.objects.filter(state=JobState.LEASED).count() == 3)
        more = task.enqueue_many((n,) for n in range(3, 10))
        ended(*results, *more)


def test_one_job_that_is_cancelled_leaves_the_others() -> None:
    results = samples.until_lost.enqueue_many((n,) for n in range(3))
    with worker():
        eventually(lambda: samples.runs)
        assert results[1].cancel(running=True)
        ended(results[0], results[2])
    assert [results[0].return_value, results[2].return_value] == [False, False]
    assert not StoredJob.objects.filter(key=results[1].id).exists()


@pytest.mark.slow  # a round of the keeper
def test_a_lost_lease_drops_the_outcome_of_its_job_alone() -> None:
    results = samples.until_lost.enqueue_many((n,) for n in range(2))
    with worker():
        eventually(lambda: samples.runs)
        take_away(Job.objects.get(key=results[0].id).pk, "default")
        ended(results[1])
    assert results[1].return_value is False


@pytest.mark.slow  # a worker that aborts
def test_a_hurried_stop_ends_a_run_in_the_loop_and_its_jobs_come_back() -> None:
    samples.auntil_stopped.enqueue_many((n,) for n in range(3))
    with worker() as threaded:
        eventually(lambda: samples.runs)
        assert len(threaded.state.running()) == 3
        threaded.state.ask_hurry("the test")
        threaded.join()
    assert LiveJob.objects.filter(state=0).count() == 3


@pytest.mark.slow
@pytest.mark.chaos
def test_after_a_kill_each_job_runs_again_alone(start: Start, tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    results = samples.kills_first.enqueue_many((str(tmp_path),) for _ in range(20))
    first = start(*TASKS, "--queues", "default")
    assert first.wait() == -signal.SIGKILL
    start(*TASKS, "--queues", "default")
    ended(*results)
    runs = [line.split() for line in (tmp_path / "runs").read_text().splitlines()]
    assert runs == [["20", "1"], *[["1", "2"]] * 20], "all were started, so each is suspected"
    assert all(result.attempts == 2 for result in results)
    assert JobEvent.objects.filter(kind=5).count() == 20
