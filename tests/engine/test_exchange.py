"""Statements without cursors: what a connection goes through beside them does them no harm."""

import enum
import signal
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor
from django.utils.safestring import mark_safe
from psycopg import generators

from django_leasequeue.engine import exchange
from django_leasequeue.engine.django_executor import DjangoExecutor
from django_leasequeue.engine.exchange import NEVER, Command
from django_leasequeue.engine.pool import connect

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not exchange.ENABLED, reason="LEASEQUEUE_EXCHANGE=off"),
]


own = partial(connect, "default")


def ask(raw: psycopg.Connection[Any], text: str, *values: Any, prepare_after: int = 0) -> Any:
    return exchange.fetch(raw, [Command(text.encode(), values)], prepare_after=prepare_after)


def names(raw: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in raw.execute("SELECT name FROM pg_prepared_statements", prepare=False)]


def test_prepared_when_sent_often_and_never_behind_a_pooler() -> None:
    with own() as raw:
        for prepare_after, prepared in ((NEVER, 0), (NEVER, 0), (3, 0), (3, 1), (3, 1)):
            assert ask(raw, "SELECT $1::int + 1", 41, prepare_after=prepare_after) == [(42,)]
            assert len(names(raw)) == prepared
        assert ask(raw, "SELECT 'another one'") == [("another one",)]
        assert len(names(raw)) == 2


class Number(enum.IntEnum):
    SEVEN = 7


class Bytes(bytes): ...


@pytest.mark.parametrize(
    ("type_", "value", "read"),
    [
        ("text", "é😀\\'\n", "é😀\\'\n"), ("text", mark_safe("<b>"), "<b>"), ("bigint", -(2**63), -(2**63)),
        ("int", Number.SEVEN, 7), ("bool", True, True), ("bool", False, False), ("bytea", b"\0\xff", b"\0\xff"),
        ("bytea", Bytes(b"\0"), b"\0"),
        ("float8", 0.1, 0.1), ("float8", float("-inf"), float("-inf")), ("text", None, None),
        ("uuid", UUID(int=7), UUID(int=7)), ("bigint[]", "{1,2}", [1, 2]),
        ("timestamptz", datetime(2030, 1, 1, 12, 0, 0, 7, tzinfo=UTC), datetime(2030, 1, 1, 12, 0, 0, 7, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_values_come_back_as_they_went(type_: str, value: Any, read: Any) -> None:
    with own() as raw:
        raw.execute("SET TimeZone = 'Asia/Tokyo'")
        (found,) = ask(raw, f"SELECT $1::{type_}", value)[0]
    assert (found, type(found)) == (read, type(read))


def test_what_cannot_be_sent_is_refused_and_nothing_is_broken() -> None:
    with own() as raw:
        with pytest.raises(psycopg.DataError, match="NUL"):
            ask(raw, "SELECT $1::text, $2::bytea", "a\0b", b"\0")
        with pytest.raises(TypeError, match="no parameter of the type object"):
            ask(raw, "SELECT $1::text", object())
        with pytest.raises(psycopg.errors.DivisionByZero):
            ask(raw, "SELECT 1 / $1::int", 0)
        with pytest.raises(psycopg.errors.UndefinedTable):
            ask(raw, "SELECT FROM no_such_table")
        with pytest.raises(psycopg.errors.DivisionByZero):
            exchange.fetch(raw, [Command(text, ()) for text in (b"SELECT 1/0", b"SELECT 1")], 1, 0)
        assert ask(raw, "SELECT 1") == [(1,)]


def test_a_statement_whose_preparation_was_broken_off_is_sent_without() -> None:
    """In a transaction, too, where a name that is there, or is not, would undo all."""
    with own() as raw:
        wait = raw.wait

        def interrupted(gen: Any, *args: Any) -> Any:
            next(gen)
            raw.wait = wait  # type: ignore[method-assign]
            gen.close()
            raise KeyboardInterrupt

        raw.wait = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            ask(raw, "SELECT 1")
        assert raw.wait(generators.fetch_many(raw.pgconn))[0].status == psycopg.pq.ExecStatus.COMMAND_OK
        with raw.transaction():
            assert ask(raw, "SELECT 1") == [(1,)]


def test_rows_that_were_changed_are_counted() -> None:
    with own() as raw:
        raw.execute("CREATE TEMP TABLE counted (id int)")
        assert ask(raw, "INSERT INTO counted SELECT generate_series(1, $1::int)", 3) == [()] * 3
        assert ask(raw, "DELETE FROM counted WHERE id > $1::int", 9) == []


@pytest.mark.parametrize("before", [[], [b"SELECT 1"]], ids=["alone", "with settings"])
def test_a_statement_that_cannot_commit_raises(before: list[bytes]) -> None:
    """A deferred constraint, a serialisation failure: the statement's own answer has come by then."""
    with own() as raw:
        raw.execute("CREATE TEMP TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        commands = [Command(text, ()) for text in [*before, b"INSERT INTO once VALUES (1), (1) RETURNING id"]]
        for prepare_after in (NEVER, 0, 0):
            with pytest.raises(psycopg.errors.UniqueViolation):
                exchange.fetch(raw, commands, len(before), prepare_after)
            assert ask(raw, "SELECT count(*) FROM once") == [(0,)]


@pytest.mark.parametrize("spoilt", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_prepared_statements_that_are_gone_are_prepared_again(spoilt: str) -> None:
    with own() as raw:
        for _ in range(3):
            assert ask(raw, "SELECT 1") == [(1,)]
            raw.execute(spoilt, prepare=False)
            assert ask(raw, "SELECT 1") == [(1,)]
        assert ask(raw, "SELECT 1") == [(1,)]
        assert len(names(raw)) == 1


def test_in_a_transaction_nothing_is_sent_twice() -> None:
    with own() as raw:
        assert ask(raw, "SELECT 1") == [(1,)]
        raw.execute("DEALLOCATE ALL")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName), raw.transaction():
            ask(raw, "SELECT 1")
        with raw.transaction():
            assert ask(raw, "SELECT 1") == ask(raw, "SELECT 1") == [(1,)]


def test_a_name_that_is_there_is_the_same_statement() -> None:
    """As behind a pooler, which gives this client a process that another one has used."""
    with own() as raw:
        raw.pgconn.prepare(exchange._name(b"SELECT 1"), b"SELECT 1")
        assert ask(raw, "SELECT 1") == ask(raw, "SELECT 1") == [(1,)]


def test_a_migration_changes_what_a_statement_returns() -> None:
    with own() as raw:
        raw.execute("CREATE TEMP TABLE shop (id int)")
        raw.execute("INSERT INTO shop VALUES (1)")
        assert ask(raw, "SELECT * FROM shop") == [(1,)]
        raw.execute("ALTER TABLE shop ADD COLUMN name text")
        assert ask(raw, "SELECT * FROM shop") == ask(raw, "SELECT * FROM shop") == [(1, None)]


def test_ctrl_c_cancels_a_statement_and_leaves_the_connection() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with own() as raw:
            for commands in ([b"SELECT pg_sleep(60)"], [b"SELECT 1", b"SELECT pg_sleep(60)"]):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises(KeyboardInterrupt):
                    exchange.fetch(raw, [Command(text, ()) for text in commands], 0, 0)
                assert ask(raw, "SELECT 1") == [(1,)]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_host_that_lets_psycopg_prepare_has_its_names_and_no_others() -> None:
    """psycopg deallocates all statements at a rollback, then."""
    connection.close()
    connection.ensure_connection()
    raw = connection.connection
    raw.prepare_threshold, raw.cursor_factory = 0, ServerBindingCursor
    try:
        for _ in range(3):
            DjangoExecutor("default").fetch("key_taken", {"project": "", "queue": "work", "keys": "{k}"})
        assert names(raw)
        assert [name for name in names(raw) if not name.startswith("_pg3_")] == []
    finally:
        connection.close()
