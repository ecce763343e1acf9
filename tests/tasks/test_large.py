"""Large arguments and return values of Django tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.tasks.api import TaskResultStatus, task_backends
from django_leasequeue.tasks.handler import TaskHandler
from tests.large import BIG, away, files, large_settings
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
    result = task.enqueue({"text": BIG})
    assert len(files(storage)) == 1
    assert task_backends["default"].get_result(result.id).args == [{"text": BIG}]
    with working(TaskHandler()):
        eventually(lambda: result.refresh() or result.is_finished, "it is done")
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.args, result.return_value) == ([{"text": BIG}], {"text": BIG})
    assert len(files(storage)) == 2


def test_away_at_enqueue() -> None:
    with away(), pytest.raises(LargeStorageError):
        samples.echo.enqueue({"text": BIG})
