"""Our statements on Django's connection: all that a host has put around it sees them, and nothing of it is bypassed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.postgresql.base import Cursor, DatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext, override_settings
from pytest_django import DjangoDbBlocker

from django_leasequeue import Limit, Queue, engine, signals
from django_leasequeue.engine import NewJob, exchange
from django_leasequeue.engine.django_executor import is_plain
from django_leasequeue.engine.jobs.read import get_jobs
from django_leasequeue.engine.pool import close_pools
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Job
from tests.engine.helpers import NODE, claim, enqueue, make, one, put, run
from tests.support.databases import database_alias
from tests.support.heard import hearing
from tests.tasks.samples import add

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_statement_is_seen_by_the_log_with_its_parameters_and_by_wrappers() -> None:
    make("work")
    heard: list[str] = []

    def listen(execute: Any, sql: str, *args: Any) -> Any:
        heard.append(sql)
        return execute(sql, *args)

    with CaptureQueriesContext(connection) as seen, connection.execute_wrapper(listen):
        enqueue(NewJob(data={"order": "A-17"}))
        engine.run(engine.ack([one().seq], NODE))
        put(300)
    shown = [query["sql"] for query in seen.captured_queries]
    assert sum("INSERT INTO leasequeue_job" in sql and "A-17" in sql for sql in shown) == 1
    for statements in (shown, heard):
        assert any("leasequeue_ready" in sql and "SKIP LOCKED" in sql for sql in statements)
        assert any("DELETE FROM leasequeue_claim" in sql for sql in statements)
        assert any(sql.startswith("COPY leasequeue_job") for sql in statements)
    assert Job.objects.count() == 300


def test_one_enqueue_is_one_query(django_assert_num_queries: Any) -> None:
    add.enqueue(1, 2)
    with django_assert_num_queries(1):
        add.enqueue(1, 2)
    with transaction.atomic(), django_assert_num_queries(1):
        add.enqueue(1, 2)


class Forbidden(Exception): ...


def forbid(*_: Any) -> Any:
    raise Forbidden


@pytest.mark.parametrize("count", [1, 300])
def test_a_wrapper_that_forbids_queries_lets_none_of_ours_pass(count: int) -> None:
    make("work")
    with connection.execute_wrapper(forbid), pytest.raises(Forbidden):
        put(count)
    assert claim() == []


@pytest.mark.parametrize("around", [nullcontext, transaction.atomic], ids=["alone", "atomic"])
def test_the_same_rows_come_either_way(around: Callable[[], Any], settings: Any) -> None:
    make("work", max_deliveries=3)
    jobs = [NewJob(data={"é": [1, None, "\\"]}, key="k%s"), NewJob(body=b"\0\xff", name="50%(b)s"), NewJob()]
    with around():
        with CaptureQueriesContext(connection):
            seqs = [item.seq for item in enqueue(*jobs)]
            by_cursor = engine.run(get_jobs(seqs))
        assert engine.run(get_jobs(seqs)) == by_cursor
        assert [job.created_at.utcoffset().total_seconds() for job in by_cursor] == [0, 0, 0]
    with around(), CaptureQueriesContext(connection):
        leased = claim(3)
        assert [(job.data, job.body) for job in leased] == [(job.data, job.body) for job in jobs]
        engine.run(engine.nack([leased[2].seq], NODE))
        engine.run(engine.ack([job.seq for job in leased[:2]], NODE))


class Watching(DatabaseWrapper):
    """A backend as of django-tenants: it sets the session's state when a cursor is made."""

    def _cursor(self, name: str | None = None) -> Any:
        cursor = super()._cursor(name)
        self.cursors = getattr(self, "cursors", 0) + 1
        return cursor


class Patched(CursorWrapper): ...


def test_only_a_connection_that_is_plainly_djangos_is_taken_past_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connections["default"]
    connection.ensure_connection()
    assert is_plain(connection)
    with connection.execute_wrapper(forbid):
        assert not is_plain(connection)
    with CaptureQueriesContext(connection):
        assert not is_plain(connection)
    with override_settings(DEBUG=True):
        assert not is_plain(connection)
    with monkeypatch.context() as patch:  # as the debug toolbar does
        patch.setattr(connection, "cursor", connection.cursor)
        assert not is_plain(connection)
    with monkeypatch.context() as patch:  # as Sentry does
        patch.setattr(CursorWrapper, "execute", lambda self, sql, params=None: None)
        assert not is_plain(connection)
    with monkeypatch.context() as patch:  # as OpenTelemetry does

        class Traced(Cursor): ...

        patch.setattr(connection.connection, "cursor_factory", Traced)
        assert not is_plain(connection)
    with monkeypatch.context() as patch:
        patch.setattr(connection, "__class__", Watching)
        assert not is_plain(connection)
    assert is_plain(connection)


@pytest.mark.parametrize("spoilt", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_prepared_statements_that_are_gone_raise_nowhere(spoilt: str) -> None:
    queue = Queue("work")
    calls: dict[str, Callable[[], Any]] = {
        "enqueue": lambda: queue.enqueue(1),
        "enqueue_many": lambda: queue.enqueue_many(range(150)),
        "claim": lambda: queue.claim(1),
        "counts": lambda: engine.run(engine.counts("work")),
        "list_jobs": lambda: engine.run(engine.list_jobs("work")),
        "info": lambda: engine.run(engine.get("work")),
        "purge": lambda: engine.run(engine.purge("work", size=1)),
        "task": lambda: add.enqueue(1, 2),
        "tasks": lambda: add.enqueue_many([{"first": 1}] * 150),
    }
    for call in calls.values():
        for _ in range(4):
            call()
    for name, call in calls.items():
        connection.cursor().execute(spoilt)
        for _ in range(3):
            try:
                call()
            except Exception as error:
                raise AssertionError(f"{name} after {spoilt}") from error


def test_an_open_pipeline_of_the_hosts_stores_what_is_answered() -> None:
    make("work")
    add.enqueue(1, 2)
    before = Job.objects.count()
    with connection.connection.pipeline():
        put()
        add.enqueue(1, 2)
        job = one()
        with pytest.raises(InvalidOption, match="in a pipeline"):
            put(300)
    with transaction.atomic(), connection.connection.pipeline(), pytest.raises(InvalidOption, match="go by COPY"):
        enqueue(NewJob(priority=1), *[NewJob(max_deliveries=3)] * 300)
    assert job.deliveries == 1
    assert Job.objects.count() == before + 2


@pytest.fixture(params=["repeatable read", "serializable"])
def isolated(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An alias whose sessions begin with another isolation level, as a role's setting does it."""
    given = connections["default"].settings_dict
    level = request.param.replace(" ", "\\ ")
    options = {**given["OPTIONS"], "options": f"-c default_transaction_isolation={level}"}
    with database_alias("isolated", {**given, "OPTIONS": options}), django_db_blocker.unblock():
        yield "isolated"
        connections["isolated"].close()


def at_once(count: int, work: Callable[[], Any]) -> list[BaseException]:
    start = threading.Barrier(count)

    def begin() -> None:
        start.wait()
        try:
            work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return [error for ended in [threads.submit(begin) for _ in range(count)] if (error := ended.exception())]


def test_another_isolation_level_fails_no_call_that_is_its_own_transaction(isolated: str) -> None:
    with connections[isolated].cursor() as cursor:
        cursor.execute("SHOW default_transaction_isolation")
        assert cursor.fetchone()[0] != "read committed"
    queue = Queue("fresh", using=isolated)
    assert at_once(6, lambda: queue.enqueue(1)) == []
    assert at_once(6, lambda: [(queue.enqueue(key), queue.claim(1)) for key in range(10)]) == []
    assert queue.counts().in_flight == 60

    async def ask() -> None:
        await asyncio.gather(*(queue.aenqueue(1) for _ in range(20)))
        await close_pools()

    asyncio.run(ask())


def test_signals_wait_for_the_commit_where_a_host_manages_transactions_by_hand() -> None:
    make("work")
    with hearing({"enqueued": signals.enqueued}) as heard:
        for end, count in ((connection.rollback, 0), (connection.commit, 1)):
            connection.set_autocommit(False)
            try:
                (seq,) = put()
                end()
            finally:
                connection.set_autocommit(True)
            assert [info["seq"] for _, info in heard] == [seq] * count


@contextmanager
def undone_once(place: int, code: str) -> Iterator[list[str]]:
    """Undo the transaction before the statement of this place; yield the statements that were sent."""
    seen: list[str] = []

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        if len(seen) == place + 1:
            execute(f"DO $$BEGIN RAISE EXCEPTION 'undone' USING ERRCODE = '{code}'; END$$", None, many, context)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield seen


@pytest.mark.parametrize("code", ["26000", "40P01", "40001"])
@pytest.mark.parametrize("place", [0, 2])
def test_a_call_whose_transaction_is_undone_is_made_again(code: str, place: int) -> None:
    queue = Queue("work", preset="jobqueue")
    queue.create()
    calls: dict[str, Callable[[], Any]] = {
        "many": lambda: queue.enqueue_many(iter(range(150))),
        "limited": lambda: [queue.enqueue(1, limit=Limit("line", concurrency=1))],
        "unique": lambda: [queue.enqueue(1, key="one", unique_until="end")],
        "unique task": lambda: [add.using(queue_name="work", key="two").enqueue(1, 2)],
    }
    for name, call in calls.items():
        before = Job.objects.count()
        with undone_once(place, code):
            answers = call()
        added = Job.objects.count() - before
        assert (name, added) == (name, len(answers))


@pytest.mark.skipif(not exchange.ENABLED, reason="LEASEQUEUE_EXCHANGE=off: nothing is prepared")
def test_prepared_statements_that_are_gone_raise_nowhere_in_a_transaction_of_ours() -> None:
    connection.close()  # one whose statements were gone before prepares none in transactions
    queue = Queue("work")
    for _ in range(6):
        queue.enqueue_many(range(150))
    assert run("SELECT name FROM pg_prepared_statements")
    run("DISCARD ALL")
    assert len(queue.enqueue_many(range(150))) == 150
    assert queue.counts().ready == 7 * 150


@pytest.mark.parametrize("place", [3, 6, 9])
def test_a_claim_whose_transaction_is_undone_is_made_again(place: int) -> None:
    queue = Queue("narrow", preset="jobqueue", concurrency=5)
    queue.enqueue_many(range(9))
    with undone_once(place, "40P01") as seen:
        assert [job.payload for job in queue.claim(9)] == [0, 1, 2, 3, 4]
    assert len(seen) > place + 1
    assert (queue.counts().ready, queue.counts().in_flight) == (4, 5)
