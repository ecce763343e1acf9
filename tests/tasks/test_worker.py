"""The door and ``manage.py runworker`` in a process of its own; and the door without Django's apps."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from django_leasequeue.tasks.api import TaskResultStatus
from tests.tasks import samples


@pytest.mark.slow
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
    manage = str(Path(settings.BASE_DIR) / "manage.py")
    done = subprocess.run(
        [sys.executable, manage, "runworker", "--burst", "--queues", "default", "--concurrency", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=subprocess_env, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout

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


@pytest.mark.slow
def test_declaring_tasks_loads_no_model() -> None:
    """They are declared while Django is still loading apps."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "no model was loaded"), done.stderr
