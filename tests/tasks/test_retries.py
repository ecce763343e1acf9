"""No retries for a task that wants none, whatever its queue; and none so fast that they keep a worker busy."""

from datetime import timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Delayed
from django_leasequeue.tasks.api import TaskResultStatus, task_backends
from tests.tasks import samples
from tests.tasks.helpers import run_one

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
