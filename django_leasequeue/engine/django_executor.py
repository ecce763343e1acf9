"""The executor of Django's own connections, and the one place that decides how a statement goes over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from os.path import dirname
from types import FunctionType
from typing import Any, NamedTuple

import django
import psycopg
from django.conf import settings as django_settings
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.backends.postgresql.base import Cursor, ServerBindingCursor
from django.db.backends.utils import CursorWrapper
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonbLoader

from .. import conf
from ..exceptions import InvalidOption
from ..sql import keeps_host_settings, numbered, statement, takes_arrays
from . import exchange
from .operation import Rows, Work
from .outage import read_only
from .runner import IDLE, NO_PIPELINE, Executor, T, autonomous, command_of, role_of, rows_of, stands_alone

#: A host's planner goes by what it last knew of tables that fill and empty within seconds: a plan that was made for the
#: empty table would read the full one from end to end. These hold for one statement, not for the host's own. What is
#: switched off counts as dear before PostgreSQL 18, and dear statements would be compiled: 1.5 s for one row.
_PLANS = {
    **dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_mergejoin", "jit"), "off"),
    "plan_cache_mode": "force_generic_plan",
}
#: With other values the nulls of an array are texts, and times are rounded where they are read as text.
_READING = {"array_nulls": "on", "extra_float_digits": "1"}


class _Held(NamedTuple):
    """Commands around a statement for which settings hold; outside a transaction the pipeline's end undoes them."""

    outside: exchange.Command
    inside: exchange.Command
    before: exchange.Command


def _held(values: Mapping[str, str]) -> _Held:
    sets = ",".join(f"set_config('{name}','{value}',true)" for name, value in values.items())
    now = ",".join(f"current_setting('{name}')" for name in values)
    again = ",".join(f"set_config('{name}',split_part(s,',',{place}),true)" for place, name in enumerate(values, 1))
    texts = (
        f"SELECT {sets}",
        f"SELECT set_config('leasequeue.plans',concat_ws(',',{now}),true),{sets}",
        f"SELECT {again} FROM current_setting('leasequeue.plans') AS s",  # nosec  # B608: of constants
    )
    return _Held(*(exchange.Command(text.encode(), ()) for text in texts))


STEADY, _FOR_NULLS = _held({**_PLANS, **_READING}), _held(_READING)


def in_settings(name: str, command: exchange.Command, alone: bool) -> list[exchange.Command]:
    """Return a statement between the commands that set and restore its settings; alone if it needs none."""
    if not keeps_host_settings(name):
        held = STEADY
    elif takes_arrays(name) and any(isinstance(value, str) and "NULL" in value for value in command.values):
        held = _FOR_NULLS
    else:
        return [command]
    return [held.outside, command] if alone else [held.inside, command, held.before]


_CURSORS: tuple[type, ...] = (Cursor, ServerBindingCursor)
_DJANGO = dirname(django.__file__)  # noqa: PTH120  (compared with the paths of code)
#: What a backend overrides that sets state when a connection or a cursor is made, or that watches statements.
_HOOKS = ("_cursor", "cursor", "create_cursor", "get_new_connection", "init_connection_state", "ensure_connection")


class _UTCLoader(TimestamptzLoader):
    """Times in UTC on a connection that has another zone (``USE_TZ = False``, ``TIME_ZONE`` of the alias)."""

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


@lru_cache(maxsize=100)
def _is_djangos(backend: type, execute: object) -> bool:
    """Return whether all code between us and a backend's connection is Django's, not overridden or patched."""
    hooks = [getattr(backend, name) for name in _HOOKS]
    return all(
        isinstance(method, FunctionType) and method.__code__.co_filename.startswith(_DJANGO)
        for method in (*hooks, execute)
    )


def is_plain(connection: Any) -> bool:
    """Return whether a connection is plainly Django's, so that no wrapper, log, tracer or tenant misses a statement."""
    raw = connection.connection
    return (
        not connection.execute_wrappers
        and not connection.force_debug_cursor
        and not django_settings.DEBUG
        and "cursor" not in connection.__dict__
        and type(raw) is psycopg.Connection
        and raw.cursor_factory in _CURSORS
        and _is_djangos(connection.__class__, CursorWrapper.execute)
    )


@dataclass
class DjangoExecutor(Executor):
    """Runs operations on Django's own connection: in the caller's transaction, if there is one."""

    using: str

    @property
    def stands_alone(self) -> bool:
        connection = connections[self.using]
        connection.ensure_connection()
        return stands_alone(connection.connection)

    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        connection = connections[self.using]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        raw: psycopg.Connection[Any] = connection.connection
        alone = stands_alone(raw)
        command = command_of(name, params, self._ours, alone)
        commands = in_settings(name, command, alone)
        if is_plain(connection):
            # Statements are prepared, but not through a pooler in transaction mode: this is Django's mark of one.
            prepare_after = exchange.NEVER if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False) else 2
            try:
                if not raw.autocommit and raw.pgconn.transaction_status == IDLE:
                    raw.execute("SELECT", prepare=False)  # psycopg begins the transaction
                rows = exchange.fetch(raw, commands, len(commands) // 2, prepare_after)
            except psycopg.Error:
                with self._as_django():
                    raise
            if rows is not None:
                return rows
        given = dict(zip(numbered(name)[1], command.values, strict=True))
        return self._fetch_by_cursor(name, given, commands, atomic=alone and len(commands) > 1)

    def _fetch_by_cursor(
        self, name: str, params: Mapping[str, Any], commands: Sequence[exchange.Command], *, atomic: bool
    ) -> Rows:
        """Run one statement by Django's cursor, as the host's own statements run."""
        connection = connections[self.using]
        raw = connection.connection
        if raw.info.encoding == "ascii":
            raise InvalidOption("the connection's client_encoding is SQL_ASCII, which has no text: SET it to UTF8.")
        with (
            self._as_django(),
            # Settings that hold for one statement need a transaction around both.
            _reading_what_is_committed(self.using if atomic else None),
            transaction.atomic(using=self.using) if atomic else nullcontext(),
            connection.cursor() as settings,
            connection.cursor() as cursor,
        ):
            cursor.cursor.adapters.register_loader("timestamptz", _UTCLoader)
            cursor.cursor.adapters.register_loader("jsonb", JsonbLoader)
            # The end of a pipeline inside the host's brings the answers.
            with raw.pipeline() if raw.pgconn.pipeline_status != NO_PIPELINE else nullcontext():
                for command in commands[: len(commands) // 2]:
                    settings.execute(command.text.decode())
                cursor.execute(statement(name), params)
                for command in commands[len(commands) // 2 + 1 :]:
                    settings.execute(command.text.decode())
            return rows_of(cursor)

    def copy(self, name: str, parts: Iterable[str]) -> None:
        connection = connections[self.using]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        if connection.connection.pgconn.pipeline_status != NO_PIPELINE:
            raise InvalidOption(
                "so many jobs go by COPY, which a pipeline does not take: enqueue them outside of it, or fewer at once."
            )

        def send(sql: str, *_: Any) -> None:
            with cursor.copy(sql) as stream:
                for part in parts:
                    stream.write(part)

        with self._as_django(), connection.cursor() as cursor:
            # Django's cursor shows a COPY neither to wrappers nor to its log.
            executor: Any = send
            for wrapper in reversed(connection.execute_wrappers):
                executor = partial(wrapper, executor)
            logged = cursor.debug_sql(statement(name)) if connection.queries_logged else nullcontext()
            with logged:
                executor(statement(name), None, False, {"connection": connection, "cursor": cursor})

    def autonomous(self, params: Mapping[str, Any]) -> Rows:
        connection = connections[self.using]
        connection.ensure_connection()
        with self._as_django():
            return autonomous(connection.connection, params, role_of(self.using))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # A savepoint in the caller's transaction, if there is one.
        connection = connections[self.using]
        self._ours = self.stands_alone
        if not self._ours and connection.autocommit and not connection.in_atomic_block:
            raise InvalidOption(
                "this call needs a transaction, and the connection is in a pipeline or in a transaction that Django did"
                " not begin: make the call outside of it, or inside transaction.atomic()."
            )
        try:
            with (
                _reading_what_is_committed(self.using if self._ours else None),
                transaction.atomic(self.using),
            ):
                yield
        except (DatabaseError, InterfaceError) as error:
            if self._ours:
                self._leave(error)
            raise
        finally:
            self._ours = False

    @contextmanager
    def _as_django(self) -> Iterator[None]:
        """Raise Django's exceptions instead of psycopg's, and close a lost connection."""
        connection = connections[self.using]
        leaves = connection.autocommit and not connection.in_atomic_block
        try:
            with connection.wrap_database_errors:
                yield
        except (DatabaseError, InterfaceError) as error:
            if leaves:
                self._leave(error)
            raise

    def _leave(self, error: Exception) -> None:
        """Close a connection that is lost, so that the next call opens another: outside of requests Django does not."""
        # One whose server is read-only now as well: the next may lead to the server that takes its place.
        connection = connections[self.using]
        if connection.connection is not None and (connection.connection.closed or read_only(error)):
            connection.close()


@contextmanager
def _reading_what_is_committed(using: str | None) -> Iterator[None]:
    """Begin transactions as READ COMMITTED: a statement after a lock must see other commits."""
    if using is None:  # the caller's has begun already
        yield
        return
    connection = connections[using]
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    usual, raw.isolation_level = raw.isolation_level, psycopg.IsolationLevel.READ_COMMITTED
    try:
        yield
    finally:
        if not raw.closed:
            raw.isolation_level = usual


def run(work: Work[T], using: str | None = None) -> T:
    """Run an operation on Django's connection, in the caller's transaction if there is one."""
    return DjangoExecutor(using or conf.settings.DATABASE).run(work)
