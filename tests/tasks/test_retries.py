"""No retries for a task that wants none, whatever its queue; and none so fast that they keep a worker busy."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Delayed
from django_leasequeue.tasks import task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends
from tests.tasks import samples
from tests.tasks.helpers import NODE, claim, run_one

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("preset", ["django", "topics", "jqueue", "codeq"])
def test_no_retries_in_any_queue(preset: str) -> None:
    engine.run(engine.create("default", preset=preset))
    enqueued = samples.fail.using(max_attempts=1).enqueue()
    run_one()
    assert run_one() is None
    result = task_backends["default"].get_result(enqueued.id)
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert [error.exception_class for error in result.errors] == [ValueError]


@pytest.mark.parametrize("backoff", [0, [0], [0, 0.001]], ids=repr)
def test_retries_without_a_delay_do_not_spin(clock: Clock, backoff: float | list[float]) -> None:
    engine.run(engine.create("default", preset="django", max_deliveries=0))
    samples.fail.using(backoff=backoff).enqueue()
    end, runs = clock.now + timedelta(seconds=10), 0
    while clock.now < end:
        assert run_one() == "failing"
        runs += 1
        assert runs < 1_000, "it spins"
        for delayed in Delayed.objects.all():
            clock.now = delayed.available_at
    assert runs <= 22


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("ValueError", "failing"),
        ("ConnectionError", "failing"),
        ("RetryLater", "failing"),
        ("UnicodeError", "failed"),
        ("KeyError", "failed"),
    ],
)
def test_exceptions_that_are_tried_again_and_those_that_are_not(name: str, ends: str) -> None:
    samples.fail_with.using(max_attempts=3).enqueue(name)
    assert run_one() == ends


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"autoretry_for": (5,)}, "autoretry_for takes exception classes"),
        ({"dont_retry_for": "ValueError"}, "dont_retry_for takes exception classes"),
        ({"expires": 0}, "expires must be more than 0"),
        ({"expires": -1}, "expires must be a number of seconds from 0"),
        ({"expires": 1e300}, "expires must be 0.001 to"),
    ],
)
def test_what_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        task(**options)(samples.echo.func)  # type: ignore[call-overload]


def test_a_call_that_is_not_started_in_time_is_removed(clock: Clock) -> None:
    short = samples.echo.using(expires=timedelta(minutes=1))
    started, late, kept = short.enqueue(1), short.enqueue(2), samples.echo.enqueue(3)
    (running,) = claim()
    clock.advance(seconds=61)
    (job,) = claim()
    assert (running.key, job.key) == (started.id, kept.id)
    assert engine.run(engine.finish([engine.Ending(running.seq, running.token)], NODE)).ok == []
    with pytest.raises(TaskResultDoesNotExist):
        late.refresh()
