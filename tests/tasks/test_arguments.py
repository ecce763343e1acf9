"""Arguments of calls: wrong, encoded and large ones; return values that are large, or not kept."""

import functools
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync

from django_leasequeue import Queue, conf, engine
from django_leasequeue.admin.job_list import arguments
from django_leasequeue.engine import Failure, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.models import Job, JobResult, JobStep, LiveJob
from django_leasequeue.tasks import Limit, chain, group, task
from django_leasequeue.tasks.api import TaskResultStatus, task_backends
from django_leasequeue.tasks.arguments import decode, encode
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from tests.engine.helpers import NODE, make, one, put
from tests.large import BIG, away, files, large_settings, reap
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.helpers import run_one
from tests.worker.support import working

pytestmark = pytest.mark.django_db


@task
def keywords(first: int, *, second: int, **rest: int) -> None: ...


@task
def anything(*args: Any) -> None: ...


def without_its_first(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function("given", *args, **kwargs)

    return called


@task
@without_its_first
def decorated(given: str, word: str) -> str:
    return given + word


@pytest.mark.parametrize(("declared", "args", "kwargs", "says"), [
    (samples.add, (), {}, r"missing a required argument: 'first'. It takes \(first.*second.*= 0\)"),
    (samples.add, (1, 2, 3), {}, "too many positional arguments"),
    (samples.add, (1,), {"third": 3}, "unexpected keyword argument 'third'"),
    (samples.add, (1,), {"first": 1}, "multiple values for argument 'first'"),
    (samples.with_context, (), {}, r"missing a required argument: 'word'. It takes \(word"),
    (samples.with_context, ("a", "b"), {}, "too many positional arguments"),
    (samples.plain, (), {}, "missing a required argument: 'value'"),
    (keywords, (1,), {}, "missing a required argument: 'second'|'second'"),
])  # fmt: skip
def test_wrong_arguments_are_refused(declared: Any, args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says) as told:
        declared.enqueue(*args, **kwargs)
    assert str(told.value).startswith(f"{declared.module_path} cannot be called so: ")
    assert "\n" not in str(told.value)
    assert not LiveJob.objects.exists()


def test_one_wrong_call_of_many_refuses_all_and_right_ones_are_taken() -> None:
    with pytest.raises(TypeError, match="cannot be called so"):
        samples.add.enqueue_many([(1,), (1, 2, 3)])
    with pytest.raises(TypeError, match="too many positional arguments"):
        async_to_sync(samples.aecho.aenqueue)(1, 2)
    assert not LiveJob.objects.exists()
    samples.add.enqueue(first=1)
    samples.add.enqueue(1, second=2)
    samples.with_context.enqueue("word")
    keywords.enqueue(1, second=2, third=3)
    anything.enqueue(1, 2, 3)
    anything.enqueue()
    decorated.enqueue("word")
    assert LiveJob.objects.count() == 7


ID = UUID("0b3c7a52-68a4-4b6e-9d0c-51d0a3d7c001")
VALUES: dict[str, tuple[Any, ...]] = {
    "uuid": (ID,),
    "datetime": (datetime(2026, 11, 25, 12, 30, 0, 1, tzinfo=UTC), datetime(2026, 11, 25)),  # noqa: DTZ001
    "date": (date(2026, 2, 28),),
    "decimal": (Decimal("1.20"), Decimal("-1E+3"), Decimal("Infinity")),
}
ALL = tuple(VALUES)
seen: list[Any] = []


@task
def keep(*args: Any, **kwargs: Any) -> str:
    seen.append((args, kwargs))
    return "kept"


@pytest.fixture
def codecs(settings: Any) -> None:
    settings.LEASEQUEUE = {"TASK_CODECS": ALL}
    seen.clear()


@pytest.mark.parametrize("name", ALL)
def test_each_comes_back_as_it_was(codecs: None, name: str, leasequeue: Harness) -> None:
    for value in VALUES[name]:
        result = keep.enqueue(value, [1, {"in": (value, None)}], plain={"$other": 1}, named=value)
        leasequeue.assert_enqueued(keep, value, [1, {"in": [value, None]}], plain={"$other": 1}, named=value)
        assert result.wait() == "kept"
        args, kwargs = seen.pop()
        assert (list(args), kwargs) == ([value, [1, {"in": [value, None]}]], {"plain": {"$other": 1}, "named": value})
        assert [type(args[0]), repr(args[0])] == [type(value), repr(value)]
        for found in (result, keep.get_result(result.id)):
            assert (found.args, found.kwargs) == (list(args), kwargs)
        assert Job.objects.get(key=result.id).args[0] == encode(value)
        assert set(encode(value)) == {f"${name}"}


@pytest.mark.parametrize("name", ALL)
def test_off_unless_named(settings: Any, name: str) -> None:
    assert conf.settings.TASK_CODECS == ()
    for others in ((), tuple(other for other in ALL if other != name)):
        settings.LEASEQUEUE = {"TASK_CODECS": others}
        for value in VALUES[name]:
            with pytest.raises(TypeError, match="TASK_CODECS"):
                keep.enqueue(value)
            assert decode({f"${name}": "1"}) == {f"${name}": "1"}


def test_in_workflows_keys_and_limits(codecs: None, leasequeue: Harness) -> None:
    assert chain(keep.s(ID), keep.s(day=date(2026, 1, 2))).enqueue().wait() == "kept"
    assert seen == [((ID,), {}), (("kept",), {"day": date(2026, 1, 2)})]
    limit = Limit("one", key=lambda value: f"{value:%Y}", concurrency=1)
    limited = keep.using(limit=limit, key=str)
    first, again = limited.enqueue(date(2026, 1, 2)), limited.enqueue(date(2026, 1, 2))
    assert (first.id, again.created) == (again.id, False)
    assert limited.enqueue(date(2026, 1, 3)).wait() == first.wait() == "kept"


def test_people_see_the_text_and_queries_the_object(codecs: None) -> None:
    keep.enqueue(ID, price=Decimal("1.20"))
    job = Job.objects.get(args__0={"$uuid": str(ID)})
    assert arguments([(job.pk, "default", job.task)], values=True) == {job.pk: f'"{ID}", price="1.20"'}


def test_what_is_refused(codecs: None, settings: Any) -> None:
    with pytest.raises(ValueError, match="stands for a uuid"):
        keep.enqueue({"a": [{"$uuid": 1}]})
    with pytest.raises(TypeError, match="must be JSON"):
        keep.enqueue(object())
    Queue("default").enqueue({"args": [{"$decimal": "much"}]}, key="id", name=keep.module_path, max_deliveries=1)
    assert run_one() == "dead"
    assert "no decimal: 'much'" in str(Job.objects.get().error)
    assert keep.get_result("id").args == [{"$decimal": "much"}], "it can be looked at"


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


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path):
        yield tmp_path


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [samples.echo, samples.aecho], ids=["threads", "loop"])
def test_a_task_with_large_ones(storage: Path, task: Any) -> None:
    with away(), pytest.raises(LargeStorageError):
        samples.echo.enqueue({"text": BIG})
    result = task.enqueue({"text": BIG})
    assert (len(files(storage)), task_backends["default"].get_result(result.id).args) == (1, [{"text": BIG}])
    with working(TaskHandler()):
        eventually(lambda: result.refresh() or result.is_finished, "it is done")
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.args, result.return_value, len(files(storage))) == ([{"text": BIG}], {"text": BIG}, 2)


@pytest.mark.django_db(transaction=True)
def test_a_step_with_a_large_value(storage: Path, clock: Clock) -> None:
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
