"""Enqueueing: what becomes of a call in the database, sync and async."""

import uuid
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.test import TestCase, override_settings
from django.utils import timezone

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.jobs.results import status
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.exceptions import BatchTooLarge, InvalidOption, PayloadTooLarge
from django_leasequeue.models import EventKind, Job, JobEvent, JobState, LiveJob, Queue, StoredJob
from django_leasequeue.tasks import LeaseQueueBackend, task
from django_leasequeue.tasks import backend as backend_module
from django_leasequeue.tasks import calls as calls_module
from django_leasequeue.tasks.api import InvalidTask, TaskResultStatus, task_backends
from django_leasequeue.tasks.results import new_end, new_ends
from tests.tasks import samples
from tests.tasks.django_api import BACKEND

pytestmark = pytest.mark.django_db


class Closed(LeaseQueueBackend):
    closed = False

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        if self.closed:
            raise InvalidTask("closed")


def the_job() -> LiveJob:
    return LiveJob.objects.get()


class InTestCase(TestCase):
    def test_a_call_becomes_a_job(self) -> None:
        result = samples.add.enqueue(1, second=2)
        job = the_job()
        assert job.key == result.id
        assert uuid.UUID(result.id).version == 8
        assert (job.name, job.data) == ("tests.tasks.samples.add", {"args": [1], "kwargs": {"second": 2}})
        assert (job.state, job.rank, job.meta, job.max_deliveries) == (JobState.READY, 0, None, None)
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"second": 2})
        assert result.enqueued_at == job.created_at
        assert (result.task, result.backend, result.errors, result.worker_ids) == (samples.add, "default", [], [])

    def test_tries_belong_to_the_job_what_using_changed_travels_with_it_and_queues_are_made(self) -> None:
        samples.fail_twice.enqueue()
        samples.fail_twice.using(max_attempts=9, timeout=2.5, backoff=[1, 2]).enqueue()
        plain, changed = LiveJob.objects.order_by("seq")
        assert (plain.max_deliveries, plain.meta) == (2, None)
        assert (changed.max_deliveries, changed.meta) == (9, {"timeout": 2.5, "backoff": [1, 2]})
        samples.add.using(queue_name="mail").enqueue(1)
        queue = Queue.objects.get(name="mail")
        assert (queue.project, queue.dead_letter, queue.exhaust_at) == ("", "self", "release")
        assert queue.lease_ms == PRESETS["django"]["lease_ms"]
        assert queue.result_ttl_ms == PRESETS["django"]["result_ttl_ms"]

    def test_json_is_normalised_as_django_does(self) -> None:
        result = samples.echo.enqueue(({"a": (1, b"x")},))
        assert the_job().data == {"args": [[{"a": [1, "x"]}]]}
        assert result.args == [[{"a": [1, "x"]}]]
        samples.echo.enqueue()
        assert LiveJob.objects.latest("seq").data is None, "no arguments cost nothing"


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(("value", "error", "says"), [
    (object(), TypeError, r"arguments of tests\.tasks\.samples\.echo must be JSON"), (ENDLESS, ValueError, "JSON"),
    ({1, 2}, TypeError, "must be JSON"), (datetime(2030, 1, 1, tzinfo=UTC), TypeError, "dates and decimals as text"),
    (b"\xff", ValueError, "must be JSON"), (float("nan"), InvalidOption, "must be JSON"),
    ("nul \x00", InvalidOption, r"U\+0000"), ("\ud800", InvalidOption, "must be JSON"),
    ("x" * 200, PayloadTooLarge, "reference"),
])  # fmt: skip
@override_settings(LEASEQUEUE={"MAX_PAYLOAD_BYTES": 100})
def test_arguments_that_are_too_large_or_not_json_are_refused(value: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        samples.echo.enqueue(value)
    with pytest.raises(error, match=says):
        samples.echo.enqueue_many([(1,), (value,)])
    assert not StoredJob.objects.exists()


def test_a_task_that_no_worker_would_find_is_refused() -> None:
    def work() -> None:
        return None

    work.__module__, work.__qualname__ = "__main__", "work"
    with pytest.raises(InvalidTask, match=r"No worker could run this task.*samples\._hidden.*not a task"):
        samples.renamed.enqueue(1)
    with pytest.raises(InvalidTask, match="script or shell"):
        task(work).enqueue()
    assert not StoredJob.objects.exists()


def mixed(count: int) -> list[Any]:
    """Calls of two tasks in turns."""
    return [((samples.echo, samples.plain)[number % 2], (number,), {}) for number in range(count)]


class TestMany:
    def test_many_calls_of_several_tasks_and_queues(self) -> None:
        calls = [
            (samples.add, (1,), {}),
            (samples.echo.using(queue_name="other", priority=3), (), {"value": 2}),
            (samples.plain, (3,), {}),
        ]
        results = task_backends["default"].enqueue_many(calls)  # type: ignore[attr-defined]
        found = {job.key: (job.queue.name, job.name.rpartition(".")[2], -job.rank) for job in StoredJob.objects.all()}
        assert [found[result.id] for result in results] == [
            ("default", "add", 0), ("other", "echo", 3), ("default", "plain", 0),
        ]  # fmt: skip

    def test_more_than_one_statement_holds_is_still_one_call_in_order(self) -> None:
        first = samples.echo.enqueue("first")
        with override_settings(LEASEQUEUE={"MAX_ENQUEUE": 150}):
            results = task_backends["default"].enqueue_many(mixed(400))  # type: ignore[attr-defined]
        jobs = list(StoredJob.objects.exclude(key=first.id).order_by("seq"))
        assert [job.data["args"][0] for job in jobs] == list(range(400))
        assert [job.key for job in jobs] == [result.id for result in results]
        assert all(result.enqueued_at for result in results)

    @pytest.mark.django_db(transaction=True)
    def test_all_or_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        samples.echo.enqueue("first")
        ends = iter([*(new_end() for _ in range(250)), *(["refused"] * 250)])
        monkeypatch.setattr(backend_module, "new_ends", lambda: ends)
        with override_settings(LEASEQUEUE={"MAX_ENQUEUE": 200}), pytest.raises(InvalidOption, match="id_end"):
            task_backends["default"].enqueue_many(mixed(400))  # type: ignore[attr-defined]
        assert StoredJob.objects.count() == 1

    @pytest.mark.django_db(transaction=True)
    def test_all_or_none_of_a_tasks_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        samples.echo.enqueue("first")
        answers = iter([[], RuntimeError("the second part")])

        def new_results(*args: Any) -> list[Any]:
            if isinstance(answer := next(answers), Exception):
                raise answer
            return answer

        monkeypatch.setattr(calls_module, "new_results", new_results)
        monkeypatch.setattr(calls_module, "MOST", 150)
        with pytest.raises(RuntimeError, match="second part"):
            samples.echo.enqueue_many((number,) for number in range(300))
        assert StoredJob.objects.count() == 1

    @pytest.mark.django_db(transaction=True)
    def test_a_cap_that_is_set_between_two_parts_doubles_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        samples.echo.enqueue("first")
        new_results = calls_module.new_results

        def capped(*args: Any) -> list[Any]:
            Queue.objects.update(cap_records=1)
            return new_results(*args)

        monkeypatch.setattr(calls_module, "new_results", capped)
        monkeypatch.setattr(calls_module, "MOST", 150)
        samples.echo.enqueue_many((number,) for number in range(300))
        assert [job.data["args"] for job in StoredJob.objects.order_by("seq")[1:]] == [[n] for n in range(300)]

    @pytest.mark.parametrize("count", [1, 150])
    def test_what_a_task_declares_is_on_each_job(self, count: int) -> None:
        declared = samples.echo.using(priority=3, max_attempts=4, expires=60, timeout=5, tags={"order": 7})
        for _ in range(2):  # the first one of a priority takes the general way
            results = declared.enqueue_many((f"\\{number}",) for number in range(count))
        jobs = list(LiveJob.objects.order_by("seq"))
        assert len(jobs) == 2 * count
        for job in jobs:
            assert (job.rank, job.max_deliveries, job.state) == (-3, 4, JobState.READY)
            assert job.meta == {"timeout": 5, "$tags": {"order": 7}}
            assert job.expires_at - job.created_at == timedelta(seconds=60)
        assert [job.key for job in jobs[count:]] == [result.id for result in results]
        assert jobs[-1].data == {"args": [f"\\{count - 1}"]}
        assert Job.objects.filter(tags__order=7).count() == 2 * count
        added = JobEvent.objects.filter(kind=EventKind.ENQUEUED)
        assert {str(event.detail) for event in added} == {"{'tags': {'order': 7}}"}

    def test_what_is_no_set_of_arguments_is_refused_and_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for wrong in (1, "word", b"word", None):
            with pytest.raises(TypeError, match="a tuple such as"):
                samples.echo.enqueue_many([wrong])  # type: ignore[list-item]  # what is refused is just this
        monkeypatch.setattr(backend_module, "MAX_MANY", 3)
        with pytest.raises(BatchTooLarge, match="at most 3"):
            samples.echo.enqueue_many([(1,)] * 4)
        assert not StoredJob.objects.exists()


class AsyncInTestCase(TestCase):
    async def test_calls_become_jobs(self) -> None:
        result = await samples.aecho.aenqueue("word")
        many = await samples.aecho.aenqueue_many([("a",), {"value": "b"}])
        jobs = [job async for job in StoredJob.objects.order_by("seq")]
        assert [job.key for job in jobs] == [result.id, *(item.id for item in many)]
        assert [job.data for job in jobs] == [{"args": ["word"]}, {"args": ["a"]}, {"kwargs": {"value": "b"}}]
        assert result.enqueued_at == jobs[0].created_at
        with pytest.raises(SynchronousOnlyOperation):
            samples.add.enqueue(1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
async def test_async_calls_outside_of_a_transaction(settings: Any) -> None:
    result = await samples.aecho.aenqueue("word")
    many = await samples.aecho.aenqueue_many((number,) for number in range(250))
    assert (await samples.aecho.aget_result(many[-1].id)).args == [249]
    settings.LEASEQUEUE = {"ASYNC": "native", "MAX_ENQUEUE": 150}
    with pytest.raises(InvalidOption, match="must be JSON"):
        await samples.aecho.aenqueue_many([*((number,) for number in range(300)), (float("nan"),)])
    jobs = [job async for job in StoredJob.objects.order_by("seq")]
    assert [job.key for job in jobs] == [result.id, *(item.id for item in many)]


def test_backends_are_remembered_unless_they_are_the_default_and_projects_are_kept_apart() -> None:
    tenant = {"BACKEND": BACKEND, "OPTIONS": {"project": "tenant-1"}}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND}, "tenant": tenant}):
        samples.add.using(backend="tenant").enqueue(1)
    assert the_job().meta == {"backend": "tenant"}
    assert Queue.objects.values_list("project", "name").get() == ("tenant-1", "default")
    assert engine.run(engine.claim("default", "worker", 1, strict=False)) == []
    assert len(engine.run(engine.claim("default", "worker", 1, project="tenant-1"))) == 1


def test_a_task_is_checked_again_under_other_settings_and_by_a_hosts_own_check(monkeypatch: pytest.MonkeyPatch) -> None:
    samples.echo.enqueue()
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["mail"]}}):
        with pytest.raises(InvalidTask, match="default"):
            samples.echo.enqueue()
    with override_settings(TASKS={"default": {"BACKEND": f"{__name__}.Closed", "QUEUES": []}}):
        samples.echo.enqueue()
        monkeypatch.setattr(Closed, "closed", True)
        with pytest.raises(InvalidTask, match="closed"):
            samples.echo.enqueue()


@override_settings(USE_TZ=False)
def test_without_time_zones_times_are_naive_in_the_hosts_zone() -> None:
    with timezone.override("Asia/Tokyo"):
        at = datetime(2040, 1, 1, 9)  # noqa: DTZ001  (naive is what USE_TZ = False means)
        with override_settings(TIME_ZONE="Asia/Tokyo"):
            result = samples.add.using(run_after=at).enqueue(1)
    assert result.enqueued_at.tzinfo is None
    stored = LiveJob.objects.values_list("available_at", flat=True).get()
    assert stored is not None


def test_ids_are_version_8_uuids_of_their_number_and_random_bits() -> None:
    text = engine.make_id(0x123456789ABCDE, new_end())
    parsed = uuid.UUID(text)
    assert (str(parsed), parsed.version, parsed.variant) == (text, 8, uuid.RFC_4122)
    assert text.startswith("01234567-89ab-8cde-")
    ids = [uuid.UUID(engine.make_id(1, end)).int for end in islice(new_ends(), 20_000)]
    assert len(set(ids)) == len(ids)
    ones, zeros = reduce(or_, ids), reduce(or_, (~value for value in ids))
    random_bits = (1 << 62) - 1
    assert (ones & random_bits, zeros & random_bits) == (random_bits, random_bits)
    for job in (NewJob(id_end="x"), NewJob(id_end=new_end(), key="k")):
        with pytest.raises(InvalidOption, match="id_end"):
            engine.run(engine.enqueue("work", [job]))


@pytest.mark.parametrize("count", [1, 2, 150])
def test_the_engine_makes_the_id_of_the_number(count: int) -> None:
    ends = [new_end() for _ in range(count)]
    answers = engine.run(engine.enqueue("work", [NewJob(id_end=end) for end in ends]))
    ids = [engine.make_id(answer.seq, end) for answer, end in zip(answers, ends, strict=True)]
    rows = StoredJob.objects.order_by("seq").values_list("key", "generated")
    assert list(rows) == [(key, True) for key in ids]
    found = {line.key: line.seq for line in engine.run(status("work", keys=ids))}
    assert [found[key] for key in ids] == [answer.seq for answer in answers]
    assert engine.run(status("work", keys=[engine.make_id(answers[0].seq, new_end())])) == [], "of another end"
