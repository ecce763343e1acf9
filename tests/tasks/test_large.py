"""Large arguments and return values of Django tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_leasequeue import engine
from django_leasequeue.engine import Failure, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.models import JobStep
from django_leasequeue.tasks.api import TaskResultStatus, task_backends
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import JobControl
from tests.engine.helpers import NODE, make, one, put
from tests.large import BIG, away, files, large_settings, reap
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.worker.support import working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("task", [samples.echo, samples.aecho], ids=["threads", "loop"])
def test_a_task(storage: Path, task: Any) -> None:
    with away(), pytest.raises(LargeStorageError):
        samples.echo.enqueue({"text": BIG})
    result = task.enqueue({"text": BIG})
    assert (len(files(storage)), task_backends["default"].get_result(result.id).args) == (1, [{"text": BIG}])
    with working(TaskHandler()):
        eventually(lambda: result.refresh() or result.is_finished, "it is done")
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.args, result.return_value, len(files(storage))) == ([{"text": BIG}], {"text": BIG}, 2)


def test_a_step(storage: Path, clock: Clock) -> None:
    """Its value goes into the storage and comes back from there, and is removed with the job."""
    make("work", lease_ms=3_600_000, result_ttl_ms=0)
    put(1)
    job = one()
    control = JobControl(job, NODE)
    assert control.step("fetch", lambda: BIG) == BIG
    with control.atomic_step("block") as step:
        step.value = [BIG]
    assert len(files(storage)) == 2
    engine.run(engine.release([Release(job.seq, job.token, 0, Failure("E", "no"))], NODE))
    job = one()
    with away(), pytest.raises(LargeStorageError):
        JobControl(job, NODE).step("fetch", str)
    control = JobControl(job, NODE)
    assert control.step("fetch", str) == BIG
    assert async_to_sync(control.astep)("block", str) == [BIG]
    with away(), pytest.raises(LargeStorageError):
        control.step("other", lambda: BIG)
    assert set(JobStep.objects.values_list("name", "number")) == {("fetch", 1), ("block", 2)}
    engine.run(engine.ack([job.seq], NODE))
    clock.advance(hours=24)
    reap()
    assert files(storage) == []
