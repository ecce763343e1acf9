"""Jobs whose task a worker does not find: in a rolling deploy another one has its code."""

import logging
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import LeasedJob, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.enums import JobState
from django_leasequeue.models import Attempt, Job, LiveJob
from django_leasequeue.tasks.exceptions import NotATask, TaskNotFound
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.run import RETRY, UNSTARTED, Entry, failed
from tests.support.waiting import eventually
from tests.tasks.helpers import NODE, claim
from tests.worker.processes import TASKS, starting

NEW = "tests.tasks.samples.of_the_next_release"


def put(name: str | None = NEW, **options: Any) -> None:
    engine.run(engine.enqueue("default", [NewJob(name=name, max_deliveries=1, **options)]))


def try_once(handler: TaskHandler) -> tuple[LeasedJob, Entry]:
    """Run what is ready as a worker does, without settling it."""
    (job,) = claim()
    control = JobControl(job, NODE)
    with pytest.raises(TaskNotFound) as caught:
        handler.run(job, control)
    return job, failed(handler, job, control, caught.value)


def give_back(job: LeasedJob, delay_ms: int) -> None:
    engine.run(engine.release([engine.Release(job.seq, job.token, delay_ms)], NODE, unstarted=True))


@pytest.mark.django_db
def test_an_unknown_task_goes_back_uncounted_until_the_grace_is_over(clock: Clock, settings: Any) -> None:
    settings.LEASEQUEUE = {"WORKER": {"UNKNOWN_TASK_DELAY": 30, "UNKNOWN_TASK_GRACE": 60}}
    put()
    for _ in range(2):
        # Each time another process: what counts is the job's first claim.
        job, entry = try_once(TaskHandler())
        assert (entry[0], entry[4], job.deliveries) == (UNSTARTED, 30_000, 1)
        give_back(job, 30_000)
        assert not claim()
        clock.advance(seconds=30)
    _, (kind, _, _, failure, _) = try_once(TaskHandler())
    assert kind == RETRY
    assert failure.type == "django_leasequeue.tasks.exceptions.TaskNotFound"
    assert "Was it renamed or removed, or does this worker run older code" in failure.message


@pytest.mark.django_db
def test_without_a_grace_an_unknown_task_fails_at_once(settings: Any) -> None:
    settings.LEASEQUEUE = {"WORKER": {"UNKNOWN_TASK_GRACE": 0}}
    put()
    assert try_once(TaskHandler())[1][0] == RETRY


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["failed", "redriven"])
def test_a_job_that_ran_before_gets_the_whole_grace(clock: Clock, how: str) -> None:
    put()
    (job,) = claim()
    clock.advance(seconds=1)
    failure = engine.Failure("ValueError", "the first attempt")
    engine.run(engine.release([engine.Release(job.seq, job.token, 0, failure)], NODE))
    if how == "failed":
        engine.run(engine.configure("default", preset="django", exhaust_at="claim"))
    clock.advance(days=2)
    Job.objects.filter(pk=job.seq).retry()
    handler = TaskHandler()
    job, entry = try_once(handler)
    assert entry[0] == UNSTARTED
    give_back(job, 0)
    clock.advance(seconds=600)
    assert try_once(handler)[1][0] == RETRY


@pytest.mark.django_db
def test_a_job_that_is_no_task_goes_back_for_ever_and_is_said_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    handler = TaskHandler()
    put(None)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            job, entry = try_once(handler)
            assert (entry[0], job.deliveries) == (UNSTARTED, 1)
            give_back(job, 0)
            clock.advance(days=1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "None is not the path of a task" in line
    assert "Let its consumer claim from 'default', and leave that queue out of --queues" in line
    with pytest.raises(NotATask):
        TaskHandler(inside=True).run(claim()[0], JobControl(job, NODE))


SETTINGS = """
from testproject.settings import *
LEASEQUEUE = {"WORKER": {"UNKNOWN_TASK_DELAY": 0.2}, "TASK_MODULES": ["next_release"]}
"""
MODULE = """
from django_leasequeue.tasks import task

@task(max_attempts=1)
def greet(name):
    return "hello " + name
"""


@pytest.mark.slow  # two worker processes
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_in_a_rolling_deploy_the_next_release_runs_what_an_old_worker_gave_back(
    subprocess_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "next_release.py").write_text(MODULE)
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "short_delay.py").write_text(SETTINGS)
    subprocess_env["PYTHONPATH"] += f":{tmp_path / 'settings'}"
    subprocess_env["DJANGO_SETTINGS_MODULE"] = "short_delay"
    put("next_release.greet", key="greeting", data={"args": ["Ada"]})
    arguments = (*TASKS, "--queues", "default")
    with starting(subprocess_env) as start:
        old = start(*arguments)
        old.says("next_release.greet")
        eventually(lambda: LiveJob.objects.filter(state=JobState.DELAYED, deliveries=0).exists(), "it went back")
        subprocess_env["PYTHONPATH"] += f":{tmp_path}"
        new = start(*arguments)
        eventually(lambda: Job.objects.filter(key="greeting", state="completed").exists(), "the next release ran it")
        assert old.running
        assert new.running
        assert old.text.count("A job is given back") == 1
    assert not Attempt.objects.exists()
