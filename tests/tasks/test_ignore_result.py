"""Tasks whose return values are not kept."""

from typing import Any

import pytest

from django_leasequeue.models import JobResult
from django_leasequeue.tasks import chain, group, task
from django_leasequeue.tasks.api import InvalidTask
from django_leasequeue.testing import Harness

pytestmark = pytest.mark.django_db


@task(ignore_result=True)
def ignored(value: Any = None) -> Any:
    return object() if value is None else value


@task
def kept(value: Any = None) -> Any:
    return [value]


@task(ignore_result=True)
async def aignored() -> int:
    return 1


@task(ignore_result=True, atomic=True)
def atomic() -> int:
    return 1


@pytest.mark.parametrize("given", [ignored, aignored, atomic, kept.using(ignore_result=True)])
def test_the_value_is_none(given: Any, leasequeue: Harness) -> None:
    result = given.enqueue()
    assert result.wait() is None
    assert JobResult.objects.get().result is None
    assert given.get_result(result.id).task.ignore_result is True
    assert result.status == "SUCCESSFUL"


def test_a_call_may_keep_it_and_steps_take_none(leasequeue: Harness) -> None:
    assert ignored.using(ignore_result=False).enqueue(3).wait() == 3
    assert chain(ignored.s(1), kept.s()).enqueue().wait() == [None]
    assert group(kept.s(1).using(ignore_result=True), kept.s(2)).enqueue().wait() == [None, [2]]
    with pytest.raises(InvalidTask, match="ignore_result must be true or false"):
        kept.using(ignore_result=1)  # type: ignore[arg-type]
