"""The pytest fixture ``leasequeue`` and the unittest mixin, as a host project uses them."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.test import TestCase, override_settings

from django_leasequeue import Queue, engine
from django_leasequeue.conf import process
from django_leasequeue.engine import clock, pool
from django_leasequeue.exceptions import InvalidOption, MaxRetries, NotSerializable, TransactionLeftOpen, WaitTimeout
from django_leasequeue.notify import get_listener
from django_leasequeue.queue.base import find_serializer, known_serializer
from django_leasequeue.tasks import FailForGood, Limit, RetryLater, task
from django_leasequeue.testing import Harness, LeaseQueueTestMixin, harness
from django_leasequeue.testing.plugin import leasequeue as fixture
from tests.support.environment import python
from tests.tasks import samples
from tests.worker import rude_tasks as rude

sent: list[Any] = []


@task(max_attempts=2, backoff=60)
def send_mail(to: str, subject: str = "") -> str:
    if to == "nobody":
        raise ValueError("no such address")
    sent.append((to, subject))
    return f"sent to {to}"


@task
async def count(to: int) -> int:
    sent.append(to)
    return to


@task
def chain(left: int) -> None:
    sent.append(left)
    if left:
        chain.enqueue(left - 1)


@pytest.fixture(autouse=True)
def _nothing_sent() -> Any:
    sent.clear()
    yield
    sent.clear()


@pytest.fixture(
    params=[
        pytest.param("in a transaction", marks=pytest.mark.django_db),
        pytest.param("outside", marks=pytest.mark.django_db(transaction=True)),
    ]
)
def database(request: pytest.FixtureRequest) -> str:
    """Each test of this file that asks for it runs in both kinds of tests."""
    return str(request.param)


@task(max_attempts=1)
def leaves() -> None:
    sys.exit("no")


@task(max_attempts=1)
async def aleaves() -> None:
    sys.exit("no")


def mails() -> Queue:
    return Queue("mails", preset="jobqueue")


class TestDrain:
    def test_runs_what_jobs_enqueue_and_async_tasks_and_some_queues(self, database: str, leasequeue: Harness) -> None:
        leasequeue.handle("mails", lambda job, control: control.set_progress({"done": 3}))
        mails().enqueue(1, key="id")
        chain.enqueue(3)
        count.enqueue(7)
        assert [ran.queue for ran in leasequeue.drain("mails")] == ["mails"]
        assert mails().get_status("id").progress == {"done": 3}  # type: ignore[union-attr]  # it is there
        assert sent == []
        assert len(leasequeue.drain()) == 5
        assert sent == [3, 7, 2, 1, 0]

    def test_runs_jobs_of_a_queue_with_what_it_is_given(self, database: str, leasequeue: Harness) -> None:
        leasequeue.handle("mails", lambda job: job.payload["n"] * 2)
        receipt = mails().enqueue({"n": 4}, key="id")
        [ran] = leasequeue.drain()
        assert (ran.key, ran.payload, ran.result) == ("id", {"n": 4}, 8)
        assert mails().get_result(receipt) == 8
        queue = Queue("packed", preset="jobqueue", serializer="msgpack")
        leasequeue.handle(queue, lambda job: {1: job.payload})
        queue.enqueue(b"\x00", key="id")
        leasequeue.assert_enqueued(queue, b"\x00")
        assert [ran.result for ran in leasequeue.drain()] == [{1: b"\x00"}]
        assert queue.get_result("id") == {1: b"\x00"}

    def test_an_error_is_logged_and_answered_or_raised(self, database: str, leasequeue: Harness, caplog: Any) -> None:
        send_mail.using(backoff=0).enqueue("nobody")
        [ran] = leasequeue.drain()[:1]
        assert ran.state == "failing"
        assert isinstance(ran.error, ValueError)
        assert "no such address" in caplog.text
        send_mail.enqueue("nobody")
        with pytest.raises(ValueError, match="no such address"):
            leasequeue.drain(raise_errors=True)

    @pytest.mark.parametrize("task", [leaves, aleaves])
    def test_a_task_that_exits_has_failed_as_in_a_worker(self, database: str, leasequeue: Harness, task: Any) -> None:
        result = task.enqueue()
        assert [ran.state for ran in leasequeue.drain()] == ["dead"]
        result.refresh()
        assert result.errors[0].exception_class is SystemExit
        task.enqueue()
        with pytest.raises(SystemExit):
            leasequeue.drain(raise_errors=True)

    @pytest.mark.parametrize("serializer", ["json", "msgpack"])
    def test_a_result_that_cannot_be_written_fails_at_once(
        self, database: str, leasequeue: Harness, serializer: str
    ) -> None:
        queue = Queue("odd", preset="jobqueue", serializer=serializer)
        leasequeue.handle(queue, lambda job: {"a": [object()]})
        queue.enqueue(1)
        (ran,) = leasequeue.drain()
        assert (ran.state, type(ran.error)) == ("failed", NotSerializable)
        if serializer == "json":
            assert str(ran.error) == "the result has an object of type object at ['a'][0]: return JSON."

    @pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
    def test_ctrl_c_and_the_failure_of_a_test_end_the_draining(
        self, database: str, leasequeue: Harness, error: type[BaseException]
    ) -> None:
        def ends(job: Any) -> None:
            raise error

        leasequeue.handle("mails", ends)
        mails().enqueue(1)
        with pytest.raises(error):
            leasequeue.drain()

    def test_retries_and_delayed_jobs_wait_for_the_clock(self, database: str, leasequeue: Harness) -> None:
        leasequeue.freeze(datetime(2030, 1, 1, tzinfo=UTC))
        result = send_mail.enqueue("nobody")
        count.using(run_after=timedelta(seconds=60)).enqueue(1)
        assert [ran.state for ran in leasequeue.drain()] == ["failing"]
        assert leasequeue.drain() == []
        assert leasequeue.advance(seconds=60) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
        assert sorted(ran.state for ran in leasequeue.drain()) == ["completed", "dead"]
        result.refresh()
        assert len(result.errors) == 2

    def test_how_handlers_fail(self, database: str, leasequeue: Harness) -> None:
        def handler(job: Any) -> str:
            Queue("log").enqueue(job.payload)
            if job.payload == "give up":
                raise FailForGood("no use")
            if job.payload == "later":
                raise RetryLater(60)
            if job.payload == "bad":
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1/0")
            return "done"

        leasequeue.handle("mails", handler)
        mails().enqueue_many(["give up", "later", "bad", "good"])
        assert {(item.payload, item.state) for item in leasequeue.drain("mails")} == {
            ("give up", "failed"), ("later", "failing"), ("bad", "failing"), ("bad", "dead"), ("good", "completed"),
        }  # fmt: skip
        leasequeue.assert_enqueued("log", "give up", count=1)  # what a failed job wrote stays, as with a worker
        with pytest.raises(AssertionError, match=r"leasequeue.handle\('log'"):
            leasequeue.drain()
        assert {job.deliveries for job in Queue("log").claim(10)} == {1}, "they were not started"

    def test_an_ended_lease_is_lost_and_a_loop_ends(self, database: str, leasequeue: Harness, monkeypatch: Any) -> None:
        leasequeue.handle("mails", lambda job: leasequeue.advance(minutes=10) if job.deliveries == 1 else None)
        mails().enqueue(1)
        assert [item.state for item in leasequeue.drain()] == ["lost", "completed"]
        monkeypatch.setattr(harness, "MAX_JOBS", 20)
        leasequeue.handle("mails", lambda job: mails().enqueue(1))
        mails().enqueue(1)
        with pytest.raises(AssertionError, match="ran 20 jobs"):
            leasequeue.drain()

    @pytest.mark.django_db(transaction=True)
    async def test_from_async_tests(self, leasequeue: Harness) -> None:
        leasequeue.handle("mails", lambda job: job.payload)
        await mails().aenqueue(5)
        assert [ran.result for ran in await leasequeue.adrain()] == [5]
        await sync_to_async(lambda: connection.close())()  # noqa: PLW0108  (that of the other thread)


@pytest.mark.parametrize("task", [rude.leave, rude.aleave])
def test_a_task_that_leaves_a_transaction_open_fails_as_in_a_worker(
    task: Any, database: str, leasequeue: Harness
) -> None:
    task.enqueue("block")
    count.enqueue(7)
    assert [(ran.state, type(ran.error)) for ran in leasequeue.drain()] == [
        ("dead", TransactionLeftOpen), ("completed", type(None)),
    ]  # fmt: skip
    assert not Group.objects.exists()


class TestAssertions:
    def test_tasks(self, database: str, leasequeue: Harness) -> None:
        send_mail.enqueue("a@example.org", subject="Hi")
        send_mail.enqueue("b@example.org")
        found: Any = leasequeue.assert_enqueued(send_mail, "a@example.org", subject="Hi")
        assert found.name.endswith("send_mail")
        leasequeue.assert_enqueued(send_mail, count=2)
        with pytest.raises(AssertionError, match=r"found 0[\s\S]*b@example\.org"):
            leasequeue.assert_enqueued(send_mail, "c@example.org")
        with pytest.raises(AssertionError, match="expected 1 of"):
            leasequeue.assert_enqueued(send_mail, count=1)
        with pytest.raises(AssertionError):
            leasequeue.assert_enqueued(count)
        leasequeue.drain()  # jobs that ran count
        assert leasequeue.assert_enqueued(send_mail, "b@example.org").ran
        send_mail.enqueue(("a", "b"))  # type: ignore[arg-type]  # tuples are lists in the database
        leasequeue.assert_enqueued(send_mail, ("a", "b"))
        assert [job.ran for job in leasequeue.enqueued()] == [True, True, False]

    def test_queues(self, database: str, leasequeue: Harness) -> None:
        mails().enqueue({"to": "a"}, key="1", tag="x")
        mails().enqueue({"to": ("b", "c")}, key="2", delay_ms=1_000)
        assert leasequeue.assert_enqueued("mails", {"to": "a"}, tag="x").key == "1"
        assert leasequeue.assert_enqueued(mails(), key="2").payload == {"to": ["b", "c"]}
        leasequeue.assert_enqueued("mails", {"to": ("b", "c")})
        leasequeue.assert_enqueued("mails", count=2)
        leasequeue.assert_enqueued("mails", {"to": "c"}, count=0)
        with pytest.raises(AssertionError, match="found 0"):
            leasequeue.assert_enqueued("mails", {"to": ("b", "c")}, key="1")
        with pytest.raises(TypeError):
            leasequeue.assert_enqueued("mails", 1, 2)

    def test_nothing_also_after_a_transaction_that_is_undone(self, database: str, leasequeue: Harness) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            mails().enqueue(1)
            raise ZeroDivisionError
        leasequeue.assert_nothing_enqueued()
        mails().enqueue(1)
        leasequeue.assert_nothing_enqueued("others")
        with pytest.raises(AssertionError, match="there are 1"):
            leasequeue.assert_nothing_enqueued()


def by_name(project: str, queue: str) -> str:
    return queue if queue == "far" else "default"


def test_jobs_of_two_databases_may_have_one_number(far: str, leasequeue: Harness) -> None:
    with override_settings(LEASEQUEUE={"DATABASES": ["default", far], "ROUTER": f"{__name__}.by_name"}):
        near = mails().enqueue("near")
        with connections[far].cursor() as cursor:
            cursor.execute("SELECT setval('leasequeue_job_seq_seq', %s, false)", [near.seq])
        leasequeue.handle("mails", sent.append)
        leasequeue.drain("mails")
        assert Queue("far").enqueue("far").seq == near.seq
        enqueued = [(job.queue, job.payload, job.ran) for job in leasequeue.enqueued()]
        assert enqueued == [("mails", "near", True), ("far", "far", False)]


class TestWaiting:
    @pytest.mark.django_db
    def test_in_a_transaction_the_caller_runs_the_jobs_and_gets_their_errors(self, leasequeue: Harness) -> None:
        def handler(job: Any) -> int:
            if job.payload < 0:
                raise ValueError("boom")
            return job.payload * 2

        leasequeue.handle("mails", handler)
        for _ in range(2):
            assert mails().enqueue_and_wait(21, key="id") == 42
        assert not get_listener()._listening
        with pytest.raises(MaxRetries, match="boom"):
            mails().enqueue_and_wait(-1)
        with pytest.raises(WaitTimeout):  # nothing could run it
            mails().enqueue_and_wait(1, delay_ms=1_000)

    @pytest.mark.django_db
    def test_without_the_fixture_it_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="fixture 'leasequeue'"):
            mails().enqueue_and_wait(1)

    @pytest.mark.django_db(transaction=True)
    def test_outside_of_transactions_it_waits_unless_the_test_says_so(self, leasequeue: Harness) -> None:
        leasequeue.handle("mails", lambda job: job.payload)
        with pytest.raises(WaitTimeout):
            mails().enqueue_and_wait(1, timeout=0.1)
        leasequeue.always = True
        assert mails().enqueue_and_wait(2) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("serializer", ["msgpack", "json"])
def test_what_the_database_said_in_one_test_is_not_known_in_the_next(serializer: str) -> None:
    Queue("made", serializer=serializer).create()
    found = Queue("made")
    assert engine.run(find_serializer(found)).name == serializer
    known = known_serializer(found)
    assert known.name == serializer


@pytest.mark.django_db
def test_a_crash_after_a_step_that_never_came_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"crash_after\('chrage'\)"), Harness() as harness:
        send_mail.enqueue("ann@example.com")
        harness.crash_after("chrage")
        harness.drain()


def test_the_mixin_switches_as_the_plugin_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "switches", process.Switches())
    with Harness():
        assert pool.in_thread()
    assert not pool.in_thread()


def test_the_clock_stops_when_it_is_asked_to(database: str, leasequeue: Harness) -> None:
    mails().enqueue(1)
    leasequeue.freeze()
    [job] = mails().claim()
    assert job.claimed_at == leasequeue.clock.now
    leasequeue.advance(seconds=31)
    [again] = mails().claim()
    assert again.deliveries == 2


LIMITED = samples.add.using(limit=Limit("one", concurrency=1, rate=1, per=60))


def test_a_drain_that_advances_the_clock_passes_rates(database: str, leasequeue: Harness) -> None:
    began = leasequeue.freeze().now
    LIMITED.enqueue_many((number,) for number in range(3))
    assert [ran.state for ran in leasequeue.drain()] == ["completed"]
    assert [ran.state for ran in leasequeue.drain(advance=True)] == ["completed"] * 2
    assert leasequeue.clock.now - began >= timedelta(seconds=60)


def test_a_drain_that_advances_the_clock_ends_where_others_hold_or_pause(database: str, leasequeue: Harness) -> None:
    LIMITED.enqueue_many((number,) for number in range(3))
    paused = Queue("paused")
    paused.enqueue(1, delay_ms=60_000)
    paused.pause()
    [job] = Queue("default").claim(lease_ms=86_400_000)
    assert leasequeue.drain(advance=True) == []
    Queue("default").ack(job)
    assert [ran.state for ran in leasequeue.drain(advance=True)] == ["completed"] * 2


def test_after_the_test_the_clock_goes_on_and_what_waits_waits() -> None:
    assert clock.current() is None
    assert datetime.now(UTC) - clock.now() < timedelta(seconds=5)
    assert process.switches.inline is None


class TestUnittest(LeaseQueueTestMixin, TestCase):
    def test_nothing_is_left_of_other_tests(self) -> None:
        self.leasequeue.assert_nothing_enqueued()

    async def test_async_in_a_test_case(self) -> None:
        self.leasequeue.handle("mails", lambda job: job.payload + 1)
        assert await mails().aenqueue_and_wait(1) == 2
        assert await (await count.aenqueue(3)).await_result() == 3


def test_the_plugin_is_found_by_its_entry_point_and_loads_no_django(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.get_plugin("leasequeue") is not None
    assert fixture is not None
    code = (
        "import sys; import django_leasequeue.testing.plugin;"
        " sys.exit(any(name.split('.')[0] in ('django', 'psycopg') for name in sys.modules))"
    )
    assert python("-c", code).returncode == 0
