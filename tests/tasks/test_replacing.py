"""Tasks that replace themselves by another call."""

from typing import Any

import pytest

from django_leasequeue.exceptions import JobCancelled, JobFailed
from django_leasequeue.models import StoredJob
from django_leasequeue.tasks import chain, chord, group
from django_leasequeue.tasks.api import TaskResultDoesNotExist, TaskResultStatus
from django_leasequeue.testing import Harness
from tests.tasks import flow_samples as flow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def oracle(tmp_path: Any) -> Any:
    with flow.watch(tmp_path) as watched:
        yield watched


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (flow.become.s("double", 4), 8),
        (flow.abecome.s(4), 8),
        (flow.become.s("chain", 4), 16),
        (flow.become.s("group", 1, 2), [2, 4]),
        (flow.become.s("chord", 1, 2), 6),
        (flow.become.s("become", "become", "double", 3), 6),
    ],
)
def test_its_value_is_that_of_what_replaces_it(leasequeue: Harness, call: Any, value: Any, oracle: Any) -> None:
    result = call.enqueue()
    assert result.wait() == value
    after = chain(call, flow.given.s("next")).enqueue()
    assert after.wait() == [value, "next"]
    assert group(flow.double.s(5), call).enqueue().wait() == [10, value]
    assert chord([call, call], flow.given.s()).enqueue().wait() == [[value, value]]
    runs = sum(run.key == "become" for run in oracle.runs())
    assert runs in (0, 5, 15), "each function ran once, however often its job was claimed"


@pytest.mark.parametrize("call", ["fail", "become"])
def test_a_failure_is_its_own_and_is_not_tried_again(leasequeue: Harness, call: str) -> None:
    args = ("no",) if call == "fail" else ("fail", "no")
    result = flow.become.using(backoff=0).enqueue(call, *args)
    after = chain(flow.become.s(call, *args), flow.double.s()).enqueue()
    leasequeue.drain()
    with pytest.raises(JobFailed, match="FailForGood: no"):
        result.wait()
    result.refresh()
    assert len(result.errors) == 1
    assert [member.state for member in after.members()] == ["failed", "cancelled"]
    assert after.members()[0].error_type == "django_leasequeue.tasks.exceptions.FailForGood"


@pytest.mark.parametrize("args", [("sleep",), ("become", "sleep")])
def test_who_cancels_it_cancels_what_replaces_it(leasequeue: Harness, args: Any) -> None:
    alone, inside = flow.become.enqueue(*args), group([flow.become.s(*args)]).enqueue()
    leasequeue.drain()
    assert StoredJob.objects.count() == 2 * (len(args) + 1)
    assert alone.cancel()
    assert inside.cancel() == 1
    assert StoredJob.objects.count() == 0
    with pytest.raises(TaskResultDoesNotExist):
        alone.refresh()


def test_what_replaces_it_is_cancelled_by_itself(leasequeue: Harness) -> None:
    result = flow.become.enqueue("sleep")
    leasequeue.drain()
    assert flow.sleeper.jobs.cancel() == 1
    leasequeue.drain()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[-1].exception_class is JobCancelled


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (flow.become.using(max_attempts=1).s("nothing"), "takes a signature, such as"),
        (flow.become_atomic.using(max_attempts=1).s(), "is atomic and replaces itself"),
        (flow.deeper.using(max_attempts=1).s(101), "100 calls have replaced one another"),
    ],
)
def test_what_does_not_go(leasequeue: Harness, call: Any, says: str) -> None:
    result = call.enqueue()
    leasequeue.drain(advance=True)
    result.refresh()
    assert says in result.errors[-1].traceback
