"""Arguments that JSON does not have, through the codecs of ``LEASEQUEUE["TASK_CODECS"]``."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from django_leasequeue import Queue, conf
from django_leasequeue.admin.job_search import arguments
from django_leasequeue.models import Job
from django_leasequeue.tasks import Limit, chain, task
from django_leasequeue.tasks.arguments import decode, encode
from django_leasequeue.testing import Harness
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db

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
        assert keep.get_result(result.id).args[0] == encode(value)
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


def test_what_is_refused(codecs: None) -> None:
    with pytest.raises(ValueError, match="stands for a uuid"):
        keep.enqueue({"a": [{"$uuid": 1}]})
    with pytest.raises(TypeError, match="must be JSON"):
        keep.enqueue(object())
    Queue("default").enqueue({"args": [{"$decimal": "much"}]}, name=keep.module_path, max_deliveries=1)
    assert run_one() == "dead"
    assert "no decimal: 'much'" in str(Job.objects.get().error)
