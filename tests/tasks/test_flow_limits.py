"""Limits of tasks: how many run at once and start in a time. What counts them is no table of ours: files."""

import pickle
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import LimitValues
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import FlowTurn, JobResult, LimitKey, StoredJob
from django_leasequeue.models import Limit as LimitRow
from django_leasequeue.tasks import Limit, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker.held import START
from tests.support.pages import run_page
from tests.support.waiting import eventually
from tests.tasks import django_api, flow_samples, samples
from tests.tasks.helpers import NODE, claim
from tests.worker.support import working

pytestmark = pytest.mark.django_db

ONE = Limit("customer:{first}", concurrency=1)
add = samples.add.using(limit=ONE)


def values_of(count: int = 1) -> list[Any]:
    jobs = claim(size=count)
    engine.run(engine.finish([engine.Ending(job.seq, job.token) for job in jobs], NODE))
    return [job.data["args"] for job in jobs]


class TestEnqueueing:
    def test_the_key_is_made_of_the_arguments_as_the_function_names_them(self, clock: Clock) -> None:
        add.enqueue(1)
        add.enqueue(first=1, second=5)
        add.using(limit=Limit("{second:02d} {{of}} {first}", concurrency=1, name="both")).enqueue(3)
        claim(size=10)
        assert sorted(LimitKey.objects.values_list("key", flat=True)) == ["00 {of} 3", "customer:1"]
        assert sorted(LimitRow.objects.values_list("name", flat=True)) == ["both", "customer:{first}"]

    def test_a_function_makes_the_key_or_lets_a_call_go(self, clock: Clock) -> None:
        limit = Limit(
            "odd {numbers}", concurrency=1, key=lambda first, second=0: f"odd {second}" if first % 2 else None
        )
        for number in (1, 2, 3, 4):
            samples.add.using(limit=limit).enqueue(number)
        assert [job.data["args"] for job in claim(size=10)] == [[1], [2], [4]]
        assert LimitRow.objects.get().name == "odd {numbers}"

    def test_calls_of_enqueue_many_and_of_other_tasks_beside_them(self, clock: Clock, settings: Any) -> None:
        results = [async_to_sync(add.aenqueue)(1, 0), *async_to_sync(add.aenqueue_many)([(2, 0), (1, 1)])]
        samples.add.enqueue(5)
        assert all(result.status == TaskResultStatus.READY for result in results)
        assert [values_of(10), values_of(10)] == [[[1, 0], [2, 0], [5]], [[1, 1]]]
        settings.LEASEQUEUE = {"MAX_ENQUEUE": 2}  # several statements are one call
        add.enqueue_many((number // 2, number) for number in range(6))
        assert [values_of(10), values_of(10)] == [[[0, 0], [1, 2], [2, 4]], [[0, 1], [1, 3], [2, 5]]]

    def test_no_time_is_told_that_nobody_gave_and_djangos_backends_take_no_notice(self, clock: Clock) -> None:
        again = samples.add.get_result(add.enqueue(1).id)
        assert (again.status, again.task.run_after) == (TaskResultStatus.READY, None)
        later = clock.now + timedelta(seconds=10)
        result = add.using(run_after=later).enqueue(1)
        assert samples.add.get_result(result.id).task.run_after == later
        with override_settings(TASKS={"default": {"BACKEND": django_api.IMMEDIATE}}):
            assert add.enqueue(1, 2).return_value == 3


class TestRefused:
    @pytest.mark.parametrize(("options", "says"), [
        ({}, "limits nothing"), ({"rate": 1, "per": 1, "fair": True}, "a fair limit needs concurrency"),
        ({"concurrency": 0}, "concurrency must be"), ({"concurrency": True}, "concurrency must be"),
        ({"rate": 5}, "both rate and per"), ({"per": 5}, "both rate and per|limits nothing"),
        ({"rate": 5, "per": 0.01}, "per, in milliseconds, must be"),
        ({"rate": 5, "per": -1}, "per must be a number of seconds"),
        ({"rate": 5, "per": "a minute"}, "per must be a number of seconds"),
        ({"rate": 0, "per": 5}, "rate must be"), ({"rate": 1, "per": 5, "burst": -1}, "burst must be"),
        ({"concurrency": 1, "key": "customer"}, "key must be a function"),
        ({"concurrency": 1, "name": ""}, "the name of a limit"),
    ])  # fmt: skip
    def test_what_is_no_limit(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidOption, match=says):
            Limit("api", **options)

    def test_limits_and_keys_are_compared_shown_and_pickled(self) -> None:
        limit = Limit("{a}:{b}-{c}", concurrency=1)
        values = [("x:y", "z", "-"), ("x", "y:z", "-"), ("x%3Ay", "z", "-"), ("x:y", "z-", "")]
        keys = [limited.key for a, b, c in values if (limited := limit.of_payload({"a": a, "b": b, "c": c}))]
        assert len(set(keys)) == 4
        plain = Limit("tenant:{a}", concurrency=1).of_payload({"a": "x:y%"})
        assert plain is not None
        assert plain.key == "tenant:x:y%"
        assert Limit("api", rate=1, per=10) == Limit("api", rate=1, per=timedelta(seconds=10))
        assert hash(ONE) != hash(Limit("api", concurrency=1))
        assert repr(Limit("api", rate=1, per=10, burst=2)) == "Limit('api', rate=1, per_ms=10000, burst=2)"
        assert pickle.loads(pickle.dumps(ONE)) == ONE

    @pytest.mark.parametrize(("template", "says"), [
        ("{third}", "names 'third', which is no argument"), ("{first", "is no template"), ("{}", "names ''"),
    ])  # fmt: skip
    def test_a_template_that_fits_no_call(self, template: str, says: str) -> None:
        with pytest.raises(InvalidTask, match=says):
            samples.add.using(limit=Limit(template, concurrency=1))
        with pytest.raises(InvalidTask, match=says):
            task(limit=Limit(template, concurrency=1))(samples.add.func)

    @pytest.mark.parametrize(("limit", "args", "says"), [
        (Limit("{first}", concurrency=1), ("",), "the key of a limit must be 1 to 512 bytes"),
        (Limit("{first}", concurrency=1), ("x" * 513,), "the key of a limit must be 1 to 512 bytes"),
        (Limit("{first[name]}", concurrency=1), (5,), "cannot be made of these arguments"),
        (Limit("k", concurrency=1, key=lambda first: first), (5,), "the key of a limit must be text"),
    ])  # fmt: skip
    def test_a_key_that_is_none_writes_nothing(self, limit: Limit, args: tuple[Any, ...], says: str) -> None:
        limited = samples.add.using(limit=limit)
        for call in (lambda: limited.enqueue(*args), lambda: limited.enqueue_many([("good",), args])):
            with pytest.raises(InvalidTask, match=says):
                call()
        assert not StoredJob.objects.exists()
        assert not FlowTurn.objects.exists()


class TestWorkers:
    def test_one_at_a_time_for_each_customer(self, test_dsn: str, oracle: flow_samples.Oracle) -> None:
        calls = [(f"c{number % 10}", number, 0.01) for number in range(100)]
        flow_samples.for_customer.enqueue_many(calls)
        flow_samples.seen.enqueue_many(("free", number, 0.01) for number in range(20))
        with working(TaskHandler(), queues=["default"], concurrency=4):
            with working(TaskHandler(), queues=["default"], concurrency=4):
                eventually(lambda: len(oracle.runs()) == 120, "all have run", 90)
        for customer in {key for key, _, _ in calls}:
            assert oracle.most_at_once(customer) == 1
            mine = [run.value for run in oracle.runs() if run.key == customer]
            assert mine == sorted(mine)
        assert Counter(run.key for run in oracle.runs())["free"] == 20

    def test_what_is_prepared_too_long_begins_the_next_time(self, test_dsn: str, oracle: flow_samples.Oracle) -> None:
        class Slow(TaskHandler):
            def _arguments(self, *args: Any) -> Any:
                time.sleep(2 * START)
                return super()._arguments(*args)

        flow_samples.seen.using(limit=Limit("k", rate=100, per=1)).enqueue_many(("k", n, 0.0) for n in range(2))
        with working(Slow(), queues=["default"], concurrency=2) as threaded:
            eventually(lambda: len(oracle.runs()) == 2, "each was late once, and began then")
            assert threaded.state.figures.returned >= 2
        assert set(JobResult.objects.values_list("deliveries", flat=True)) == {1}

    @pytest.mark.slow
    def test_workers_hear_of_a_limit_that_changes(self, test_dsn: str, oracle: flow_samples.Oracle) -> None:
        flow_samples.seen.using(limit=Limit("k", concurrency=1)).enqueue_many(("k", n, 0.2) for n in range(30))
        with working(TaskHandler(), queues=["default"], concurrency=4):
            eventually(lambda: len(oracle.runs()) >= 2, "some have run", 90)
            assert oracle.most_at_once() == 1
            engine.run(engine.set_limits([LimitValues("k", concurrency=4)]))
            eventually(lambda: oracle.most_at_once() > 1, "several run at once", 90)

    @pytest.mark.slow
    @pytest.mark.parametrize("queues", [["busy", "paced"], ["*"]])
    def test_a_rate_starts_beside_a_queue_that_never_ends(
        self, queues: list[str], test_dsn: str, oracle: flow_samples.Oracle
    ) -> None:
        seconds = 4
        flow_samples.seen.using(queue_name="busy").enqueue_many([("plain", n, 0.1) for n in range(400)])
        paced = flow_samples.seen.using(queue_name="paced", limit=Limit("calls", rate=12, per=2))
        paced.enqueue_many(("rated", n, 0.0) for n in range(60))
        with working(TaskHandler(), queues=queues, concurrency=2):
            eventually(lambda: len(oracle.runs()) > 0, "it has begun", 90)
            time.sleep(seconds)
        runs = oracle.runs()
        rated = [run.began for run in runs if run.key == "rated"]
        # On a machine with nothing else to do 0.9 and more.
        assert len(rated) >= 0.5 * 12 / 2 * seconds
        assert max(sum(first <= at < first + 2 for at in rated) for first in rated) <= 12
        assert len(runs) - len(rated) >= 20, "the others go on"


@pytest.mark.slow
def test_the_page_about_limits(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    leasequeue.freeze()
    names = run_page("how-to/limits.md", monkeypatch)
    called: list[Any] = []
    leasequeue.handle("calls", lambda job: called.append(job.payload))
    ran = leasequeue.drain()
    assert [call if isinstance(call, bytes) else call["number"] for call in called] == [
        "555-1", "555-2", "555-3", b"raw",
    ]  # fmt: skip
    assert [run.result for run in ran if run.result] == ["7 new address", "7 new card", "8 new address"]
    assert names["sync_customer"].limit.values == LimitValues("customer:{customer_id}", 1)
    from shop.partner import cancel_order, send_order  # type: ignore[import-not-found]

    engine.run(engine.set_limits([LimitValues("partner-api", rate=50, per_ms=10_000)]))
    send_order.enqueue(1)
    cancel_order.enqueue(2)
    assert len(leasequeue.drain()) == 1
    leasequeue.advance(seconds=0.21)
    assert len(leasequeue.drain()) == 1
    from shop.reports import report  # type: ignore[import-not-found]

    report.enqueue_many([("large", number) for number in range(20)])
    report.enqueue("small")
    ran = [run.result for run in leasequeue.drain()]
    assert ran.index("small 0") <= 8
    assert [run for run in ran if run != "small 0"] == [f"large {number}" for number in range(20)]
