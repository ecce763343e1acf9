"""What Django says of tasks and of enqueueing them, tried on this backend through Django's own names."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, override_settings

from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks import LeaseQueueBackend
from django_leasequeue.tasks.api import Task
from tests.tasks import django_api, samples
from tests.tasks.django_api import BACKEND, InvalidTask, InvalidTaskBackend, tasks
from tests.tasks.helpers import run_one


def module_level() -> None:
    return None


class TestDefinition:
    def test_the_decorator_with_and_without_arguments_and_their_defaults(self) -> None:
        for made in (tasks.task(module_level), tasks.task()(module_level), tasks.task(priority=1)(module_level)):
            assert isinstance(made, Task)
            assert (made.func, made.name) == (module_level, "module_level")
        plain = tasks.task(module_level)
        assert (plain.priority, plain.queue_name, plain.backend) == (0, "default", "default")
        assert (plain.takes_context, plain.run_after) == (False, None)
        assert (django_api.send.priority, django_api.send.queue_name) == (2, "emails")
        assert django_api.tell_context.takes_context
        with override_settings(TASKS={alias: {"BACKEND": BACKEND} for alias in ("default", "reserve")}):
            assert tasks.task(backend="reserve")(module_level).backend == "reserve"

    def test_run_after_is_not_for_the_decorator(self) -> None:
        from django_leasequeue.tasks import task

        with pytest.raises(TypeError, match="run_after"):
            tasks.task(run_after=datetime(2040, 1, 1, tzinfo=UTC))(module_level)
        with pytest.raises(TypeError, match="run_after"):
            task(run_after=datetime(2040, 1, 1, tzinfo=UTC))  # type: ignore[call-overload]  # just this is refused

    def test_using_gives_another_task_and_the_first_cannot_be_changed(self) -> None:
        at = datetime(2040, 1, 1, tzinfo=UTC)
        with override_settings(TASKS={alias: {"BACKEND": BACKEND, "QUEUES": []} for alias in ("default", "reserve")}):
            changed = django_api.double.using(priority=10, queue_name="other", run_after=at, backend="reserve")
            assert changed.using(priority=None) == changed
        assert (changed.priority, changed.queue_name, changed.run_after) == (10, "other", at)
        assert (changed.backend, changed.func) == ("reserve", django_api.double.func)
        first = django_api.double
        with pytest.raises(FrozenInstanceError):
            first.priority = 5
        assert (first.priority, first.queue_name, first.run_after, first.backend) == (0, "default", None, "default")

    @pytest.mark.parametrize("priority", [-100, 0, 100, 5.0])
    @pytest.mark.django_db
    def test_priorities_from_minus_100_to_100_are_kept(self, priority: float) -> None:
        result = django_api.double.using(priority=priority).enqueue(1)
        assert tasks.default_task_backend.get_result(result.id).task.priority == priority
        assert -LiveJob.objects.get().rank == priority

    @pytest.mark.parametrize("priority", [-101, 101, 2.5, "5", float("nan"), [1]])
    def test_other_priorities_are_refused(self, priority: Any) -> None:
        for refuse in (tasks.task(priority=priority), lambda _: django_api.double.using(priority=priority)):
            with pytest.raises(InvalidTask, match="priority must be a whole number"):
                refuse(module_level)

    def test_the_backend_must_be_one_of_the_settings(self) -> None:
        with pytest.raises(InvalidTaskBackend, match="nowhere"):
            _ = tasks.task_backends["nowhere"]
        with pytest.raises(InvalidTaskBackend, match="nowhere"):
            django_api.double.using(backend="nowhere")

    @pytest.mark.parametrize("declared", [{}, {"QUEUES": ["default"]}])
    def test_the_queue_must_be_one_of_the_settings(self, declared: dict[str, Any]) -> None:
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, **declared}}):
            assert tasks.default_task_backend.queues == {"default"}
            assert django_api.double.using(queue_name="default").queue_name == "default"
            with pytest.raises(InvalidTask, match="emails"):
                django_api.double.using(queue_name="emails")
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
            assert django_api.double.using(queue_name="emails").queue_name == "emails"
        for name in (7, None, ["default"]):
            with pytest.raises(InvalidTask, match="queue_name must be a text"):
                tasks.task(queue_name=name)(module_level)


class TestRunAfter:
    @pytest.mark.django_db
    def test_a_timedelta_counts_from_the_enqueue_also_without_time_zones(self, clock: Clock) -> None:
        task = django_api.double.using(run_after=timedelta(minutes=5))
        assert task.run_after == clock.now + timedelta(minutes=5), "a forecast"
        clock.advance(minutes=1)
        assert task.enqueue(1).task.run_after == clock.now + timedelta(minutes=5)
        with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):  # 12:00 in UTC is 21:00 in Tokyo
            task = django_api.double.using(run_after=timedelta(hours=1))
        assert task.run_after == datetime(2030, 1, 1, 22, 1)  # noqa: DTZ001

    @pytest.mark.parametrize("given", [timedelta(hours=2), datetime(2030, 1, 1, 14, tzinfo=UTC)])
    @pytest.mark.django_db
    def test_no_task_runs_before_its_time(self, clock: Clock, given: Any) -> None:
        result = django_api.double.using(run_after=given).enqueue(4)
        clock.advance(hours=1, minutes=59)
        assert run_one() is None
        clock.advance(minutes=1)
        assert run_one() == "completed"
        result.refresh()
        assert result.return_value == 8
        assert result.started_at >= datetime(2030, 1, 1, 14, tzinfo=UTC)

    @pytest.mark.parametrize(("given", "says"), [
        (datetime(2040, 1, 1), "aware"),  # noqa: DTZ001  (just this is refused)
        (date(2040, 1, 1), "run_after must be a datetime"),
        ("5", "run_after must be a datetime, .* a timedelta or a number of seconds; it is '5'"),
        (-1, "a number of seconds"),
        (timedelta.max, "too far away"),
        (timedelta(days=36_900), "at most 100 years"),
    ])  # fmt: skip
    def test_what_is_no_aware_time_is_refused(self, given: Any, says: str) -> None:
        with pytest.raises(InvalidTask, match=says):
            django_api.double.using(run_after=given)
        with pytest.raises(InvalidTask, match="run_after must be a datetime"):  # Django's own class takes no other
            samples.plain.using(run_after=timedelta(hours=1))  # type: ignore[arg-type]  # just this is refused


@pytest.mark.django_db
class TestEnqueueing:
    def test_arguments_are_passed_on_also_by_the_backends_method(self) -> None:
        backend = tasks.task_backends["default"]
        for result in (
            django_api.send.enqueue("a@example.com", subject="News"),
            backend.enqueue(task=django_api.send, args=["a@example.com"], kwargs={"subject": "News"}),
        ):
            assert (result.args, result.kwargs, result.status) == (["a@example.com"], {"subject": "News"}, "READY")
            assert run_one("emails") == "completed"
            assert backend.get_result(result_id=result.id).return_value == "News to a@example.com"

    @pytest.mark.parametrize(("given", "arrives"), [
        ((1, 2), "[1, 2]"), ({1: "a"}, "{'1': 'a'}"), (b"x", "'x'"), (None, "None"), (1.0, "1.0"),
    ])  # fmt: skip
    def test_arguments_go_through_json_and_back(self, given: Any, arrives: str) -> None:
        result = django_api.describe.enqueue(given)
        run_one()
        result.refresh()
        assert result.return_value == arrives

    def test_a_tuple_arrives_as_a_list(self) -> None:
        result = django_api.index_by.using(max_attempts=1).enqueue((1, 2))
        assert run_one() == "dead"
        result.refresh()
        assert result.status == "FAILED"
        assert result.errors[0].exception_class is TypeError
        assert "unhashable type: 'list'" in result.errors[0].traceback

    def test_a_task_that_is_not_valid_any_more_is_refused_when_it_is_enqueued(self) -> None:
        task = django_api.double.using(queue_name="gone")
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}):
            for enqueue in (task.enqueue, lambda number: tasks.default_task_backend.enqueue(task, (number,), {})):
                with pytest.raises(InvalidTask, match="gone"):
                    enqueue(1)
            with pytest.raises(InvalidTask, match="gone"):
                tasks.default_task_backend.validate_task(task)
        assert not LiveJob.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("enqueue", [
    lambda: transaction.on_commit(partial(django_api.double.enqueue, number=1)), lambda: django_api.double.enqueue(1),
])  # fmt: skip
def test_a_task_enqueued_on_commit_or_in_a_transaction_is_there_after_it(enqueue: Callable[[], Any]) -> None:
    def jobs() -> Any:
        return other.execute("SELECT count(*) FROM leasequeue_job").fetchone()

    with connect("default") as other:
        with transaction.atomic():
            enqueue()
            assert jobs() == (0,)
        assert jobs() == (1,)


class TestBackend:
    def test_it_is_one_of_djangos_and_says_what_it_supports(self) -> None:
        backend = tasks.default_task_backend
        assert isinstance(tasks.task_backends["default"], LeaseQueueBackend)
        assert issubclass(LeaseQueueBackend, django_api.base_backend)
        assert (backend.supports_defer, backend.supports_async_task) == (True, True)
        assert (backend.supports_get_result, backend.supports_priority) == (True, True)

    def test_its_options_are_those_of_the_settings_and_it_must_be_there(self) -> None:
        for params, options in (({}, {}), ({"OPTIONS": {"project": "tenant-1"}}, {"project": "tenant-1"})):
            with override_settings(TASKS={"default": {"BACKEND": BACKEND, **params}}):
                assert tasks.default_task_backend.options == options
        with override_settings(TASKS={"default": {"BACKEND": "django_leasequeue.tasks.NoBackend"}}):
            with pytest.raises(InvalidTaskBackend, match="NoBackend"):
                _ = tasks.task_backends["default"]

    @override_settings(TASKS={"default": {"BACKEND": django_api.DUMMY}})
    def test_tasks_of_ours_are_kept_by_djangos_dummy_backend(self) -> None:
        samples.add.enqueue(1, second=2)
        samples.add.using(run_after=timedelta(hours=1), priority=3, max_attempts=2).enqueue(3)
        assert [result.args for result in tasks.default_task_backend.results] == [[1], [3]]
        assert {result.status for result in tasks.default_task_backend.results} == {"READY"}
        tasks.default_task_backend.clear()
        assert tasks.default_task_backend.results == []


class Async(TestCase):
    async def test_aenqueue_of_task_and_backend(self) -> None:
        backend = tasks.default_task_backend
        made: list[Callable[[], Any]] = [
            lambda: django_api.send.aenqueue("a@example.com", subject="News"),
            lambda: backend.aenqueue(task=django_api.send, args=["a@example.com"], kwargs={"subject": "News"}),
        ]
        for enqueue in made:
            result = await enqueue()
            assert (result.args, result.kwargs) == (["a@example.com"], {"subject": "News"})
            assert (await backend.aget_result(result_id=result.id)).id == result.id

    async def test_aenqueue_refuses_what_enqueue_refuses(self) -> None:
        task = django_api.adouble.using(queue_name="gone")
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}):
            with pytest.raises(InvalidTask, match="gone"):
                await task.aenqueue(1)
        with pytest.raises(TypeError, match="must be JSON"):
            await django_api.adouble.aenqueue({1, 2})
