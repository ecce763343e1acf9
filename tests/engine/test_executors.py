"""One operation, four ways to run it: all must do the same; and what a session of ours is set to."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from django_leasequeue import engine, sql
from django_leasequeue.engine import AsyncConnectionExecutor, NewJob, django_executor, exchange, pool
from django_leasequeue.engine.django_executor import DjangoExecutor
from django_leasequeue.engine.jobs.read import get_jobs
from django_leasequeue.engine.operation import AUTONOMOUS, Statements, operation
from django_leasequeue.engine.pool import connection_parameters
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.spark.database import resolve
from django_leasequeue.sql import paths, statement
from tests.engine.helpers import NODE, claim, make, own_connection, put, run
from tests.engine.story import check, story, tell
from tests.support.databases import database_alias
from tests.support.temporary_server import TemporaryServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
@pytest.mark.parametrize("inside", [nullcontext, transaction.atomic])
def test_on_djangos_connection(inside: Callable[[], Any]) -> None:
    with inside():
        told = tell(engine.run)
    check(told)
    operation = engine.enqueue("work", [NewJob()])
    assert engine.run(operation)[0].seq != engine.run(operation)[0].seq, "an operation can be run again"


@pytest.mark.parametrize("prepare_threshold", [5, None])
def test_on_a_connection_of_ours(prepare_threshold: int | None) -> None:
    with own_connection() as executor:
        executor.connection.prepare_threshold = prepare_threshold
        check(tell(executor.run))


def test_on_an_async_connection() -> None:
    async def told() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(**connection_parameters("default"), autocommit=True) as raw:
            return await story(AsyncConnectionExecutor(raw).run)

    check(asyncio.run(told()))


@pytest.mark.parametrize("mode", ["native", "thread", "auto"])
def test_from_async_code(mode: str) -> None:
    with override_settings(LEASEQUEUE={"ASYNC": mode}):
        check(async_to_sync(story)(engine.arun))


def test_djangos_connection_refuses_to_block_an_event_loop() -> None:
    async def wrong() -> None:
        engine.run(engine.get("work"))

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(wrong())


class TestDjangosConnection:
    def test_a_broken_transaction_is_refused_as_django_does(self) -> None:
        make("work")
        with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
            with pytest.raises(DatabaseError):
                run("SELECT 1/0")
            transaction.get_connection().needs_rollback = True
            engine.run(engine.claim("work", NODE))

    def test_a_pooler_in_transaction_mode_gets_no_prepared_statements(self) -> None:
        connection.close()
        make("work")
        put(20)
        connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = True
        try:
            for _ in range(5):
                claim()
            assert run("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
        finally:
            connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = False


def test_nothing_reaches_the_database_before_the_arguments_are_checked(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        operation = engine.claim("work", "")
        with pytest.raises(InvalidOption):
            engine.run(operation)


@pytest.mark.parametrize("name", sorted(paths()))
def test_every_statement_says_what_it_is_for(name: str) -> None:
    text = paths()[name].read_text(encoding="utf-8")
    assert text.startswith("-- Purpose: ")
    if not name.startswith("ddl/") and re.search(r"\b(FROM|JOIN|INTO|UPDATE) leasequeue_", text):
        assert "\n-- Index: " in text
    assert "--" not in statement(name).replace("'--", "")
    sent, parameters = sql.numbered(name)
    for number, parameter in reversed(list(enumerate(parameters, 1))):
        sent = sent.replace(b"$%d" % number, b"%%(%s)s" % parameter.encode())
    assert sent.decode().replace("%", "%%").replace("%%(", "%(") == statement(name)


def look_on(execute: Any, *args: Any) -> Any:
    return execute(*args)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("where", ["by itself", "in a transaction", "first in a transaction"])
def test_settings_for_a_statement_are_not_the_hosts(monkeypatch: pytest.MonkeyPatch, where: str, wrapped: bool) -> None:
    settings = ["enable_seqscan", "enable_bitmapscan", "enable_mergejoin", "jit", "plan_cache_mode"]
    asked = "SELECT " + ",".join(f"current_setting('{name}')" for name in settings)
    command = exchange.Command(asked.encode(), [])
    monkeypatch.setattr(django_executor, "command_of", lambda *_: command)
    monkeypatch.setattr(django_executor, "statement", lambda name: asked)
    monkeypatch.setattr(django_executor, "numbered", lambda name: (asked, ()))
    connection.ensure_connection()
    raw = connection.connection
    raw.execute("SET jit = on")
    with transaction.atomic() if where != "by itself" else nullcontext():
        if where == "in a transaction":
            raw.execute("SELECT 1")
        with connection.execute_wrapper(look_on) if wrapped else nullcontext():
            found = DjangoExecutor(DEFAULT_DB_ALIAS).fetch("key_taken", {})
        assert found == [("off", "off", "off", "off", "force_generic_plan")]
        assert raw.execute(asked).fetchall() == [("on", "on", "on", "on", "auto")]


#: What libpq asks the server for where nothing else names a zone, and so what a server's own default looks like.
ELSEWHERE = "Asia/Tokyo"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", ELSEWHERE)


@pytest.mark.usefixtures("elsewhere", "closed_pools")
async def test_times_are_in_utc_whatever_the_zone_of_the_server() -> None:
    asked = "SELECT current_setting('TimeZone'), now()"

    def sync() -> Any:
        with pool.connect("default") as connection:
            return connection.execute(asked).fetchone()

    async with pool.borrow("default") as connection:
        found = await (await connection.execute(asked)).fetchone()
    for zone, now in (found, await asyncio.to_thread(sync)):
        assert (zone, now.tzinfo) == ("UTC", UTC)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("inside", [True, False])
def test_and_those_of_djangos_connection_without_time_zones(settings: Any, inside: bool) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, ELSEWHERE
    connection = connections["default"]
    connection.close()
    try:
        with transaction.atomic() if inside else nullcontext():
            make()
            (seq,) = put(1)
            before = datetime.now(UTC)
            (job,) = engine.run(get_jobs([seq]))
            assert run("SELECT now()")[0][0].utcoffset() != timedelta(0), "the host's own are as they were"
        assert job.created_at.tzinfo is UTC
        assert abs(job.created_at - before) < timedelta(minutes=1)
    finally:
        connection.close()


@pytest.fixture
def role(migrated_server: TemporaryServer, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An alias whose user may do nothing by itself, and takes the role of one who may."""
    with migrated_server.connect() as connection:
        connection.execute('CREATE ROLE "Shop owner" SUPERUSER; CREATE ROLE app LOGIN; GRANT "Shop owner" TO app')
    database = migrated_server.django_database()
    database = {**database, "USER": "app", "OPTIONS": {**database.get("OPTIONS", {}), "assume_role": "Shop owner"}}
    with database_alias("role", database), django_db_blocker.unblock():
        yield "role"


async def test_our_connections_take_the_role_that_django_takes(role: str, closed_pools: None) -> None:
    def sync() -> list[str]:
        with pool.connect(role) as connection, resolve({"alias": role}).connect() as spark:
            found = [one.execute("SELECT current_user").fetchone() for one in (connection, spark)]
        with transaction.atomic(using=role):
            engine.run(apart(), role)
        connections[role].close()
        return [name for (name,) in found if name]

    @operation
    def apart() -> Statements[None]:
        yield AUTONOMOUS, {"name": "queue_get", "params": {"project": "", "name": "none"}}

    assert await asyncio.to_thread(sync) == ["Shop owner"] * 2
    async with pool.borrow(role) as connection:
        found = await (await connection.execute("SELECT current_user")).fetchone()
    assert found == ("Shop owner",)
