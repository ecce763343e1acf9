"""Tasks in processes of their own: what they return, how they fail, and that nothing is left of them."""

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.test import override_settings

from django_leasequeue.exceptions import InvalidOption, JobFailed
from django_leasequeue.models import Job
from django_leasequeue.tasks import chain, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.tasks.isolation import run_isolated
from django_leasequeue.testing import Harness
from django_leasequeue.worker.control import JobControl
from tests.support.waiting import eventually
from tests.tasks import isolated_samples as samples
from tests.worker.support import a_job, working

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


@pytest.mark.sample
def test_results_steps_tags_and_atomic_ones() -> None:
    chained, coroutine = chain(samples.pid.s(), samples.pid.s()).enqueue(), samples.apid.enqueue()
    nap, write, chatter = samples.nap.enqueue(), samples.write.enqueue("isolated"), samples.chatter.enqueue()
    with working(TaskHandler(), queues=["default"], concurrency=2):
        last, before = chained.wait(60)
        found = {last, before[0], coroutine.wait(60), *nap.wait(60)}
        assert len(found) == 5, "a process for each run"
        assert os.getpid() not in found
        assert chatter.wait(60) == "done"
        assert write.wait(60) == Group.objects.get(name="isolated").pk
        eventually(lambda: Job.objects.filter(tags__customer=7).count() == 2)


@pytest.mark.parametrize(("how", "kind", "says", "attempts"), [
    ("value", "builtins.ValueError", "no", 2), ("good", "django_leasequeue.tasks.exceptions.FailForGood", "no", 1),
    ("exit", "django_leasequeue.tasks.isolation.ProcessDied", "exit status 3", 2),
    ("signal", "django_leasequeue.tasks.isolation.ProcessDied", "signal 11", 2),
    ("fork", "django_leasequeue.tasks.isolation.ProcessDied", "signal 11", 2),
])  # fmt: skip
def test_failures(how: str, kind: str, says: str, attempts: int) -> None:
    result = samples.fail.enqueue(how)
    with working(TaskHandler(), queues=["default"]), pytest.raises(JobFailed, match=says):
        result.wait(60)
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == [kind] * attempts
    assert "isolation.py" not in result.errors[0].traceback or how in ("exit", "signal", "fork")


@pytest.mark.parametrize("how", ["cancel", "timeout", "hurry", "lost"])
def test_what_ends_a_run_kills_its_process(tmp_path: Path, how: str) -> None:
    timed = samples.report.using(timeout=600, max_attempts=1) if how == "timeout" else samples.report
    result = timed.enqueue(str(tmp_path))
    with working(TaskHandler(), queues=["default"]) as worker:
        eventually((tmp_path / "pids").exists)
        found = [int(word) for word in (tmp_path / "pids").read_text(encoding="utf-8").split()]
        assert all(map(alive, found))
        if how == "cancel":
            eventually(lambda: result.job is not None and result.job.progress == "half")
            assert result.cancel(running=True)
        if how == "lost":
            (control,) = [slot.control for slot in worker.state.slots if slot.control is not None]
            control.abort("lease_lost")
        if how == "timeout":
            timekeeper = worker.worker._timekeeper
            (alarm,) = timekeeper._alarms.values()
            alarm.soft_at = 0
            timekeeper.expect(alarm)
        if how != "hurry":
            eventually(lambda: not any(map(alive, found)))
    eventually(lambda: not any(map(alive, found)))
    if how == "cancel":
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
    if how == "timeout":
        result.refresh()
        assert result.errors[0].exception_class_path == "django_leasequeue.worker.control.JobTimeout"


def test_a_test_runs_it_in_its_own_process_and_what_does_not_go(leasequeue: Harness) -> None:
    result = samples.pid.enqueue()
    leasequeue.drain()
    assert result.wait() == [os.getpid()]
    with pytest.raises(InvalidTask, match="isolate must be true or false"):
        task(isolate="yes")(len)
    with override_settings(SETTINGS_MODULE=None), pytest.raises(InvalidOption, match="its settings from a module"):
        run_isolated(a_job(), JobControl(a_job(), "node"), "")
