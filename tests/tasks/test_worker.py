"""The door and ``manage.py runworker`` in a process of its own, or without Django's apps; tasks in such processes."""

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.test import override_settings

from django_leasequeue.exceptions import InvalidOption, JobFailed
from django_leasequeue.models import Job
from django_leasequeue.tasks import chain, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist, TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.tasks.isolation import run_isolated
from django_leasequeue.testing import Harness
from django_leasequeue.worker.control import JobControl
from tests.support.environment import BASE_DIR, python
from tests.support.waiting import eventually
from tests.tasks import isolated_samples as isolated
from tests.tasks import samples
from tests.worker.processes import alive
from tests.worker.support import a_job, working

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.sample
def test_tasks_of_all_kinds_are_worked_off(subprocess_env: dict[str, str]) -> None:
    sums = samples.add.enqueue_many((number, number) for number in range(150))
    word = samples.aecho.enqueue({"word": ["ü", None]})
    context, acontext = samples.with_context.enqueue("x"), samples.awith_context.enqueue("x")
    plain = samples.plain.enqueue(21)
    good = [*sums, word, context, acontext, plain]
    failing, failed = samples.fail_twice.enqueue(), samples.fail_for_good.enqueue()
    once = samples.fail.using(max_attempts=1).enqueue("only try")
    unserialisable = samples.returns_object.using(max_attempts=1).enqueue()
    slow = [task.using(timeout=0.2, max_attempts=1).enqueue() for task in (samples.sleeps, samples.asleeps)]
    words = ("runworker", "--burst", "--queues", "default", "--concurrency", "2")
    done = python(BASE_DIR / "manage.py", *words, env=subprocess_env)
    assert done.returncode == 0, done.stderr
    for result in [*good, failing, failed, once, unserialisable, *slow]:
        result.refresh()
    assert [result.return_value for result in sums] == [2 * number for number in range(150)]
    assert word.return_value == {"word": ["ü", None]}
    assert context.return_value == acontext.return_value == [1, "x", True]
    assert plain.return_value == 42
    assert all(result.attempts == 1 and result.worker_ids[0] for result in good)
    assert (failing.status, failing.attempts) == (TaskResultStatus.READY, 1)
    assert failed.status == once.status == unserialisable.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in once.errors] == [ValueError]
    assert once.errors[0].traceback.splitlines()[1].lstrip().startswith("File ")
    assert "samples.py" in once.errors[0].traceback.splitlines()[1]
    assert "cannot be kept as its result" in unserialisable.errors[0].traceback
    for result in slow:
        assert result.status == TaskResultStatus.FAILED
        assert issubclass(result.errors[0].exception_class, Exception)
        assert "timeout of 0.2 s" in result.errors[0].traceback


PROGRAM = """
import sys
from django.conf import settings

settings.configure(
    TASKS={"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "OPTIONS": {"preset": "django"}}},
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
import django_leasequeue.tasks as door

@door.task(max_attempts=3, backoff="exponential", timeout=5)
def work():
    pass

work.using(priority=3, timeout=2)
import django_leasequeue.engine, django_leasequeue.engine.queues.presets, django_leasequeue.engine.queues.routing
loaded = sorted(name for name in sys.modules if name.startswith("django_leasequeue.models"))
assert not loaded, loaded
print("no model was loaded")
"""


def test_declaring_tasks_loads_no_model() -> None:
    """They are declared while Django is still loading apps."""
    done = python("-c", PROGRAM)
    assert (done.returncode, done.stdout.strip()) == (0, "no model was loaded"), done.stderr


@pytest.mark.sample
def test_results_steps_tags_and_atomic_ones() -> None:
    chained, coroutine = chain(isolated.pid.s(), isolated.pid.s()).enqueue(), isolated.apid.enqueue()
    nap, write, chatter = isolated.nap.enqueue(), isolated.write.enqueue("isolated"), isolated.chatter.enqueue()
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
    result = isolated.fail.enqueue(how)
    with working(TaskHandler(), queues=["default"]), pytest.raises(JobFailed, match=says):
        result.wait(60)
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == [kind] * attempts
    assert "django_leasequeue/tasks/isolat" not in result.errors[0].traceback or how in ("exit", "signal", "fork")


@pytest.mark.parametrize("how", ["cancel", "timeout", "hurry", "lost"])
def test_what_ends_a_run_kills_its_process(tmp_path: Path, how: str) -> None:
    timed = isolated.report.using(timeout=600, max_attempts=1) if how == "timeout" else isolated.report
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
            timekeeper = worker.state.timekeeper
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
    result = isolated.pid.enqueue()
    leasequeue.drain()
    assert result.wait() == [os.getpid()]
    with pytest.raises(InvalidTask, match="isolate must be true or false"):
        task(isolate="yes")(len)
    with override_settings(SETTINGS_MODULE=None), pytest.raises(InvalidOption, match="its settings from a module"):
        run_isolated(a_job(), JobControl(a_job(), "node"), "")
