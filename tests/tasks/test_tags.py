"""Tags of tasks and workflows, and what inherits them."""

from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Job
from django_leasequeue.tasks import Workflow, chain, chord, current, current_workflow, group, task
from django_leasequeue.tasks.api import InvalidTask
from django_leasequeue.testing import Harness

pytestmark = pytest.mark.django_db


@task
def leaf(*_: Any) -> Any:
    control = current()
    assert control is not None
    return control.job.meta["$tags"]


@task
async def aleaf(*_: Any) -> Any:
    return await leaf.using(tags={"by": "aleaf"}).aenqueue() and None


@task(tags={"kind": "tree"})
def spread(*_: Any) -> Any:
    leaf.enqueue()
    leaf.using(tags={"customer": 8}).enqueue()
    leaf.enqueue_many([()])
    aleaf.enqueue()
    Queue("plain").enqueue("p")
    return current().job.meta["$tags"]  # type: ignore[union-attr]


@task
def grow(*_: Any) -> None:
    workflow = current_workflow()
    workflow.add(leaf.s())
    workflow.enqueue()


def tagged(**tags: Any) -> int:
    return Job.objects.filter(tags__contains=tags).count()


def test_what_a_task_enqueues_has_its_tags(leasequeue: Harness) -> None:
    leasequeue.handle("plain", str)
    result = spread.using(tags={"customer": 7}).enqueue()
    assert result.task.tags == {"kind": "tree", "customer": 7}  # type: ignore[attr-defined]
    assert result.wait() == {"kind": "tree", "customer": 7}
    leasequeue.drain()
    assert leaf.jobs.filter(tags={"kind": "tree", "customer": 7}).count() == 2
    assert tagged(kind="tree", customer=8) == 1
    assert tagged(kind="tree", by="aleaf", customer=7) == 1
    assert Job.objects.in_queue("plain").get().tags == {"kind": "tree", "customer": 7}
    assert Job.objects.filter(tags__isnull=True).count() == 0
    leaf.enqueue()
    assert Job.objects.filter(tags__isnull=True).count() == 1
    assert spread.get_result(result.id).task.tags == {"kind": "tree", "customer": 7}  # type: ignore[attr-defined]


@pytest.mark.parametrize("made", [
    chain(spread.s(), leaf.s(), tags={"customer": 7}), group(spread.s(), leaf.s(), tags={"customer": 7}),
    chord([spread.s()], leaf.s(), tags={"customer": 7}),
])  # fmt: skip
def test_a_workflow_and_all_that_comes_of_it(leasequeue: Harness, made: Any) -> None:
    leasequeue.handle("plain", str)
    made.enqueue()
    leasequeue.drain()
    assert tagged(customer=7) == Job.objects.count() - 1
    assert tagged(customer=8) == 1


def test_added_steps_and_on_failure(leasequeue: Harness) -> None:
    workflow = Workflow(tags={"customer": 7}, on_failure=leaf.s())
    workflow.add(grow.using(tags={"customer": 9, "own": True}).s())
    result = workflow.enqueue()
    assert list(result.wait().values()) == [None, {"customer": 9, "own": True}]
    assert (tagged(customer=7), tagged(customer=9, own=True)) == (0, 2)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidTask, match="letter"):
        task(tags={"a b": 1})(leaf.func)
    with pytest.raises(InvalidOption, match="tags are a dict"):
        chain(leaf.s(), tags=[1]).enqueue()  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="outermost"):
        chain(chain(leaf.s(), tags={"a": 1}), leaf.s()).enqueue()
