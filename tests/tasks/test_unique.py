"""Unique tasks: one job to a key, for how long, and what becomes of the one that is there."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_leasequeue import engine, signals
from django_leasequeue.engine.django_executor import DjangoExecutor
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import JobCancelled
from django_leasequeue.models import LiveJob, StoredJob, UniqueKey
from django_leasequeue.reaper.duties import UniqueKeys
from django_leasequeue.reaper.duty import DutyRun
from django_leasequeue.tasks import Limit, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_leasequeue.testing import Harness
from tests.support.heard import connected
from tests.support.pages import run_page
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.helpers import claim, run_one

pytestmark = pytest.mark.django_db

add, index_document, send_invoice = samples.add, samples.index_document, samples.send_invoice
invoice = add.using(key="invoice-7")
ONE_AT_A_TIME = Limit("unique-tests", concurrency=1)
backend: Any = task_backends["default"]
LOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def at_once(call: Callable[[int], Any], arguments: Iterable[int]) -> list[Any]:
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadResult(partial(call, argument))) for argument in arguments]
        return [thread.value() for thread in threads]


class TestOneJobToAKey:
    def test_a_second_call_gives_the_result_that_is_there(self) -> None:
        first = invoice.enqueue(1)
        again = invoice.enqueue(2)
        assert (first.created, again.created, again.id) == (True, False, first.id)
        assert (again.args, again.status, again.enqueued_at) == ([1], TaskResultStatus.READY, first.enqueued_at)
        assert LiveJob.objects.count() == 1
        claim()
        assert invoice.enqueue(2).status is TaskResultStatus.RUNNING
        # What is looked up was made by another call.
        assert add.get_result(first.id).created is None

    def test_the_key_is_made_of_the_arguments(self) -> None:
        first = index_document.enqueue(3)
        assert UniqueKey.objects.get().key == "index-3-en"
        made = [send_invoice.enqueue(order=5), send_invoice.enqueue(5), send_invoice.enqueue(6)]
        assert [result.created for result in made] == [True, False, True]
        # A function that returns None gives the call no key.
        assert [send_invoice.enqueue(5, copy=True).created for _ in range(2)] == [True, True]
        assert index_document.enqueue(document=3, language="de").id != first.id
        add.using(key="{first}-{nothing}").enqueue(1)
        assert UniqueKey.objects.filter(key="{first}-{nothing}").exists(), "braces mean nothing in using"

    def test_many_calls_at_once_of_several_tasks_and_queues(self) -> None:
        there = send_invoice.enqueue(2)
        results = send_invoice.enqueue_many([(1,), (2,), (3,), (1,), {"order": 3}, {"order": 9, "copy": True}])
        assert [result.created for result in results] == [True, False, True, False, False, True]
        assert results[1].id == there.id
        assert [results[3].id, results[4].id] == [results[0].id, results[2].id]
        assert [result.args or result.kwargs["order"] for result in results] == [[1], [2], [3], [1], [3], 9]
        assert LiveJob.objects.count() == 4
        other = invoice.using(queue_name="mail")
        called = [(invoice, 1), (other, 2), (add, 3), (invoice, 4), (other, 5)]
        results = backend.enqueue_many([(task, (number,), {}) for task, number in called])
        assert [result.created for result in results] == [True, True, True, False, False]
        assert [results[3].id, results[4].id] == [results[0].id, results[1].id]
        assert [result.args for result in results] == [[1], [2], [3], [1], [2]]

    def test_plain_calls_ask_for_nothing_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[str] = []
        fetch = DjangoExecutor.fetch
        monkeypatch.setattr(
            DjangoExecutor, "fetch", lambda self, name, params: sent.append(name) or fetch(self, name, params)
        )
        add.enqueue(1)
        assert sent
        assert not [name for name in sent if "unique" in name]
        assert not UniqueKey.objects.exists()
        invoice.enqueue(1)
        assert [name for name in sent if "unique" in name]


class TestHowLong:
    def test_using_has_the_last_word_and_the_result_is_there_as_long_as_the_key_holds(self, clock: Any) -> None:
        assert index_document.using(unique_for=5).unique_until is None
        assert index_document.using(unique_for=5).using(unique_until="end").unique_for is None
        assert index_document.using(unique_for=timedelta(minutes=1)).unique_for == 60.0
        engine.run(engine.create("default", preset="django", result_ttl_ms=0))
        hourly = invoice.using(unique_for=3_600)
        first = hourly.enqueue(1)
        run_one()
        clock.advance(seconds=3_599)
        assert hourly.enqueue(2).id == invoice.enqueue(3).id == first.id, "the first call says how long"

    def test_keys_of_jobs_that_are_gone_are_removed(self) -> None:
        invoice.enqueue(1).cancel()
        kept = send_invoice.enqueue(5)
        UniqueKeys()(DutyRun(connection.connection, "default"))
        assert UniqueKey.objects.get().key == "invoice-5"
        assert send_invoice.enqueue(5).id == kept.id


class TestConflicts:
    def test_replace_gives_a_waiting_task_the_new_arguments(self, leasequeue: Harness) -> None:
        first = index_document.enqueue(1, text="old")
        second = index_document.enqueue(1, text="new")
        assert second.created
        with pytest.raises(TaskResultDoesNotExist):
            first.refresh()
        with pytest.raises(JobCancelled):
            first.wait(60)
        assert (second.wait(), samples.calls) == ("new", ["new"])

    def test_one_call_of_many_comes_to_what_single_calls_come_to(self, clock: Any) -> None:
        calls = [{"document": 1, "text": str(number)} for number in range(10)]
        results = index_document.enqueue_many(calls)
        assert [result.created for result in results] == [False] * 9 + [True]
        assert {result.id for result in results} == {results[9].id}
        assert results[0].kwargs["text"] == "9"
        again = index_document.enqueue_many(calls)
        assert again[9].created
        assert LiveJob.objects.get().key == again[0].id
        soon, late = (clock.now + timedelta(seconds=seconds) for seconds in (5, 50))
        moved = invoice.using(on_conflict="reschedule")
        made = backend.enqueue_many([(moved.using(run_after=at), (1,), {}) for at in (soon, late)])
        assert [result.created for result in made] == [True, False]
        assert LiveJob.objects.get(key=made[0].id).available_at == late

    def test_a_task_that_waits_for_a_limit_is_replaced(self, leasequeue: Harness) -> None:
        first = add.using(limit=ONE_AT_A_TIME).enqueue(1)
        once = invoice.using(limit=ONE_AT_A_TIME, on_conflict="replace")
        claim()
        waits, new = once.enqueue(2), once.enqueue(3)
        assert (new.created, waits.id != new.id) == (True, True)
        assert set(LiveJob.objects.values_list("key", flat=True)) == {first.id, new.id}

    def test_its_limit_says_when_a_rescheduled_task_starts(self, leasequeue: Harness) -> None:
        later = invoice.using(limit=ONE_AT_A_TIME, on_conflict="reschedule")
        first = later.using(run_after=leasequeue.clock.now + timedelta(seconds=60)).enqueue(1)
        assert (leasequeue.drain(), later.enqueue(2).id) == ([], first.id)
        assert [ran.payload for ran in leasequeue.drain()] == [{"args": [1]}]
        # One that waits for its limit alone stays where it is.
        waits = later.enqueue(3)
        assert later.using(run_after=leasequeue.clock.now + timedelta(seconds=60)).enqueue(4).id == waits.id
        assert [ran.payload for ran in leasequeue.drain()] == [{"args": [3]}]


class TestBadKeys:
    def test_the_key_is_of_its_queue_and_project(self) -> None:
        assert invoice.enqueue(1).created
        assert invoice.using(queue_name="mail").enqueue(1).created
        assert samples.echo.using(key="invoice-7").enqueue(1).created is False
        engine.run(engine.create("default", project="acme", preset="django"))
        job = engine.NewJob(unique_key="invoice-7")
        (answer,) = engine.run(engine.enqueue("default", [job], project="acme"))
        assert answer.status == "queued"

    @pytest.mark.parametrize("key", ["", "é" * 257, "k" * 513, "a\x00b", 7, "\ud800"])
    def test_a_bad_key_is_refused_before_anything_is_written(self, key: Any) -> None:
        with pytest.raises(InvalidTask):
            add.using(key=key)
        with pytest.raises(InvalidTask):
            samples.echo.using(key=lambda value=None: key).enqueue_many([(1,), (2,)])
        assert not StoredJob.objects.exists()
        assert not UniqueKey.objects.exists()

    @pytest.mark.parametrize(("options", "said"), [
        ({"key": "a{order}"}, "order"), ({"key": "a{"}, "template"), ({"key": "a{0}"}, "no argument"),
        ({"key": 7}, "key must be"), ({"key": "k", "unique_until": "never"}, "unique_until"),
        ({"key": "k", "unique_for": 0}, "unique_for"), ({"key": "k", "unique_for": "soon"}, "unique_for"),
        ({"key": "k", "unique_for": 1, "unique_until": "end"}, "one of them"),
        ({"key": "k", "on_conflict": "forget"}, "on_conflict"),
    ])  # fmt: skip
    def test_what_cannot_be_is_refused_where_it_is_declared(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidTask, match=said):
            task(**options)(samples._hidden)

    def test_arguments_and_options_that_make_no_key_are_refused(self) -> None:
        with pytest.raises(InvalidTask, match="give the task one"):
            add.using(unique_for=5).enqueue(1)
        long = add.using(key="é" * 256)  # of 512 bytes
        assert long.enqueue(1).id == long.enqueue(2).id
        strange = task(key="{value[id]}")(samples.echo.func)
        with pytest.raises(InvalidTask, match="cannot be made"):
            strange.enqueue({"no": "id"})
        with pytest.raises(InvalidTask, match="1 to 512 bytes"):
            strange.enqueue({"id": ""})
        assert strange.enqueue({"id": 3}).created


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_who_comes_while_the_first_is_not_committed_waits_for_what_becomes_of_it(self) -> None:
        add.enqueue(0).cancel()
        for commits in (True, False):
            second = ThreadResult(lambda: invoice.enqueue(2))
            with transaction.atomic(), connect("default") as own:
                first = invoice.enqueue(1)
                second.__enter__()
                eventually(lambda own=own: own.execute(LOCKED).fetchone() is not None, "it waits for a lock")
                transaction.set_rollback(not commits)
            result = second.value()
            assert (result.created, result.id == first.id) == (not commits, commits)
            assert LiveJob.objects.get().key == result.id
            assert run_one() == "completed"

    def test_signals_tell_of_new_jobs_only(self) -> None:
        told: list[Any] = []
        with connected(signals.enqueued, lambda key, **_: told.append(key)):
            first = invoice.enqueue(1)
            invoice.enqueue(2)
        assert told == [first.id]

    @pytest.mark.slow
    def test_a_hundred_replacing_calls_from_ten_threads_run_once(self) -> None:
        add.enqueue(0).cancel()
        start = threading.Barrier(10, timeout=60)

        def call(thread: int) -> list[tuple[str, str]]:
            start.wait()
            made = [(f"{thread}-{n}", index_document.enqueue(1, text=f"{thread}-{n}")) for n in range(10)]
            assert all(result.created for _, result in made)
            return [(result.id, text) for text, result in made]

        made = dict(pair for pairs in at_once(call, range(10)) for pair in pairs)
        assert len(made) == 100
        job = LiveJob.objects.get()
        assert run_one() == "completed"
        assert samples.calls == [made[str(job.key)]]

    @pytest.mark.slow
    def test_a_claim_and_a_replacement_never_both_have_the_job(self, test_dsn: str) -> None:
        once = invoice.using(on_conflict="replace")
        add.enqueue(0).cancel()
        seen = set()
        with psycopg.connect(test_dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
            executor = engine.ConnectionExecutor(other)
            for number in range(200):
                first = once.enqueue(number)
                line = threading.Barrier(2, timeout=30)

                def take(line: threading.Barrier = line) -> list[engine.LeasedJob]:
                    line.wait()
                    return executor.run(engine.claim("default", "claimer"))

                taken = pool.submit(take)
                line.wait()
                second = once.enqueue(-number)
                jobs = taken.result(30) or executor.run(engine.claim("default", "claimer"))
                seen.add((second.created, jobs[0].key == second.id))
                # Exactly one job is there, and it is the one that the second call was told of.
                assert [job.key for job in jobs] == [second.id]
                assert (second.id == first.id) is not second.created
                assert executor.run(engine.ack([job.seq for job in jobs], "claimer")).ok
                assert not LiveJob.objects.exists()

    @pytest.mark.parametrize("many", [True, False])
    def test_calls_with_same_keys_make_one_job_and_do_not_wait_for_each_other(self, settings: Any, many: bool) -> None:
        settings.LEASEQUEUE = {"MAX_ENQUEUE": 10}
        add.enqueue(0).cancel()
        start = threading.Barrier(4, timeout=60)

        def call(step: int) -> list[Any]:
            found: list[Any] = []
            for number in range(5):
                start.wait()
                orders = [(100 * number + order,) for order in range(60 if many else 15)][::step]
                one_by_one = (send_invoice.enqueue(*order) for order in orders)
                found += send_invoice.enqueue_many(orders) if many else one_by_one
            return found

        made = at_once(call, (1, -1, 1, -1))
        assert len({tuple(sorted(result.id for result in results)) for results in made}) == 1
        assert sum(result.created for results in made for result in results) == LiveJob.objects.count() == len(made[0])


def test_the_page_about_unique_tasks(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    names = run_page("how-to/unique-tasks.md", monkeypatch)
    assert (names["first"].created, names["again"].created) == (True, False)
    assert names["again"].id == names["first"].id
    assert names["mail"].created
    assert names["newest"].created
    leasequeue.advance(seconds=6)
    assert [ran.payload["args"] for ran in leasequeue.drain()] == [[7], [7], [3, "abc"]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("native")
async def test_the_async_twins_do_the_same() -> None:
    first = await invoice.aenqueue(1)
    again = await invoice.aenqueue(2)
    assert (first.created, again.created, again.id) == (True, False, first.id)
    many = await send_invoice.aenqueue_many([(1,), (1,)])
    assert [result.created for result in many] == [True, False]
    assert (await invoice.using(on_conflict="replace").aenqueue(3)).created
    assert await LiveJob.objects.acount() == 2
