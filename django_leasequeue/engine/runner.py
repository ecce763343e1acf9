"""Executors: they carry out operations on a connection, in sync or async code."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections, transaction
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from .. import conf, signals, twins
from ..sql import bears_any_plan, numbered, statement
from . import clock, exchange
from .operation import APART, BEGIN, BLOCKING, COPY, MEANWHILE, SIGNAL, Rows, Step, Work
from .outage import read_only

T = TypeVar("T")
C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

_IDLE = psycopg.pq.TransactionStatus.IDLE


def _command(name: str, params: Mapping[str, Any], autocommit: bool) -> exchange.Command:
    text, names = numbered(name)
    held = clock.installed
    complete = {"now": None if held is None else held.now, "autocommit": autocommit, **params}
    return exchange.Command(text, [complete[parameter] for parameter in names])


def role_of(using: str) -> sql.Composed | None:
    """Return the statement that assumes the role of an alias (its option ``assume_role``), as Django does; or None."""
    role = connections[using].settings_dict["OPTIONS"].get("assume_role")
    return sql.SQL("SET ROLE {}").format(sql.Identifier(role)) if role else None


def _apart(connection: psycopg.BaseConnection[Any], params: Mapping[str, Any], role: sql.Composed | None) -> Rows:
    """Run one statement on a connection of its own to the same database; it stays done if the other is rolled back."""
    info = connection.info
    with (
        psycopg.connect(info.dsn, password=info.password or None, autocommit=True) as own,
        psycopg.RawCursor(own) as cursor,
    ):
        if role is not None:
            own.execute(role)
        return cursor.execute(*_command(params["name"], params["params"], True), binary=True).fetchall()


class Executor(ABC):
    """Carries out operations in sync code."""

    #: The Django alias whose transaction the steps may be part of; ``None`` on a connection of its own.
    using: str | None = None
    #: Whether the transaction that is open was begun for the operation.
    _ours = False

    @abstractmethod
    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        """Run one statement and return its rows."""

    @abstractmethod
    def _lend(self) -> AbstractContextManager[tuple[psycopg.Connection[Any], bool]]:
        """Lend the connection; whether a statement on it is a transaction of its own, or of the operation."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction around the rest of the operation."""

    def copy(self, name: str, parts: Iterable[str]) -> None:
        """Send a text in parts through the COPY statement ``name``."""
        with self._lend() as (raw, _), psycopg.Cursor(raw) as cursor, cursor.copy(statement(name)) as stream:
            for part in parts:
                stream.write(part)

    def apart(self, params: Mapping[str, Any]) -> Rows:
        """Run one statement outside of any transaction that is open."""
        with self._lend() as (raw, autocommit):
            if not autocommit or self._ours or raw.pgconn.transaction_status != _IDLE:
                return _apart(raw, params, role_of(self.using) if self.using else getattr(raw, "role", None))
        return self.fetch(params["name"], params["params"])

    def run(self, work: Work[T]) -> T:
        """Run an operation to its end and return its value, then send the signals that it announced.

        Those of a transaction that is rolled back are not sent: nothing of it happened.
        """
        announced: list[tuple[str, dict[str, Any]]] = []
        began = False

        def perform(step: Step) -> Rows:
            nonlocal began
            name, params = step
            if ":" not in name:
                return self.fetch(name, params)
            if name == APART:
                return self.apart(params)
            if name == BLOCKING:
                return [(params["call"](),)]
            if name == BEGIN:
                stack.enter_context(self.transaction())
                began = True
            elif name.startswith(COPY):
                self.copy(name.removeprefix(COPY), params["parts"])
            else:
                announced.append((name.removeprefix(SIGNAL), dict(params)))
            return []

        try:
            with ExitStack() as stack:
                return twins.run(iter(work), perform)
        except BaseException:
            if began:
                announced.clear()
            raise
        finally:
            if announced:
                signals.dispatch(announced, self.using)


#: A host's planner goes by what it last knew of tables that fill and empty within seconds: a plan that was made for the
#: empty table would read the full one from end to end. These hold for one statement, not for the host's own. What is
#: switched off counts as dear before PostgreSQL 18, and dear statements would be compiled: 1.5 s for one row.
_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_mergejoin", "jit")
_HELD = (*_OFF, "plan_cache_mode")
_STEADY_PLANS = (
    "".join(f"set_config('{name}','off',true)," for name in _OFF)
    + "set_config('plan_cache_mode','force_generic_plan',true)"
)
#: Outside a transaction the pipeline is one, and its end puts everything back.
STEADY = f"SELECT {_STEADY_PLANS}"
_STEADY_INSIDE = (
    "SELECT set_config('leasequeue.plans',concat_ws(','"
    + "".join(f",current_setting('{name}')" for name in _HELD)
    + f"),true),{_STEADY_PLANS}"
)
_AS_BEFORE = (
    "SELECT "  # nosec  # B608: of constants
    + ",".join(f"set_config('{name}',split_part(s,',',{place}),true)" for place, name in enumerate(_HELD, 1))
    + " FROM current_setting('leasequeue.plans') AS s"
)
_OUTSIDE, _INSIDE, _BEFORE = (exchange.Command(text.encode(), ()) for text in (STEADY, _STEADY_INSIDE, _AS_BEFORE))


class _InUTC(Loader):
    """Times in UTC on a connection that has another zone (``USE_TZ = False``, ``TIME_ZONE`` of the alias)."""

    format = psycopg.pq.Format.BINARY
    _EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

    def load(self, data: Buffer) -> datetime:
        return self._EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
    """Return the rows of an answer; of a statement that returns none, an empty one for each that it changed."""
    return cursor.fetchall() if cursor.rownumber is not None else [()] * cursor.rowcount


def fetch_steadily(
    connection: psycopg.Connection[tuple[Any, ...]],
    name: str,
    params: Mapping[str, Any],
    *,
    inside: bool,
    autocommit: bool,
    prepare_after: int = exchange.NEVER,
) -> Rows:
    """Run one statement on a connection of the host and return its rows, in one round trip."""
    if not connection.autocommit and connection.pgconn.transaction_status == _IDLE:
        connection.execute(b"SELECT", prepare=False)  # psycopg begins the transaction
    command = _command(name, params, autocommit)
    alone = bears_any_plan(name)
    around = [command] if alone else [_INSIDE, command, _BEFORE] if inside else [_OUTSIDE, command]
    meanwhile = params.get(MEANWHILE)
    if (rows := exchange.fetch(connection, around, len(around) // 2, prepare_after, meanwhile)) is not None:
        return rows
    cursor = psycopg.RawCursor(connection)
    if connection.pgconn.parameter_status(b"TimeZone") not in (b"UTC", b"Etc/UTC"):
        cursor.adapters.register_loader("timestamptz", _InUTC)
    if alone or not psycopg.Pipeline.is_supported():
        return _rows(cursor.execute(*command, binary=True))
    settings = psycopg.Cursor(connection)
    with connection.pipeline():
        settings.execute(_STEADY_INSIDE if inside else STEADY)
        cursor.execute(*command, binary=True)
        if inside:
            settings.execute(_AS_BEFORE)
    # After the pipeline, whose end brings the answers: asked for in it they would take a round trip more.
    return cursor.fetchall()


@dataclass
class DjangoExecutor(Executor):
    """Runs operations on Django's own connection: in the caller's transaction, if there is one."""

    using: str

    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        # Every call comes by here: what `_lend` does, without what a context manager costs.
        connection = connections[self.using]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        raw: psycopg.Connection[tuple[Any, ...]] = connection.connection
        # Statements are prepared, but not through a pooler in transaction mode: this is Django's mark of one.
        prepare_after = exchange.NEVER if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False) else 2
        autocommit = self._ours or (connection.autocommit and not connection.in_atomic_block)
        try:
            # Without autocommit the first statement begins the transaction, and settings would hold until its end.
            inside = not raw.autocommit or raw.pgconn.transaction_status != _IDLE
            return fetch_steadily(raw, name, params, inside=inside, autocommit=autocommit, prepare_after=prepare_after)
        except psycopg.Error:
            with self._as_django(autocommit):
                raise

    @contextmanager
    def _lend(self) -> Iterator[tuple[psycopg.Connection[tuple[Any, ...]], bool]]:
        connection = connections[self.using]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        autocommit = self._ours or (connection.autocommit and not connection.in_atomic_block)
        with self._as_django(autocommit):
            yield connection.connection, autocommit

    @contextmanager
    def _as_django(self, autocommit: bool) -> Iterator[None]:
        """Raise Django's exceptions in place of psycopg's, and leave a connection that is lost."""
        try:
            with connections[self.using].wrap_database_errors:
                yield
        except (DatabaseError, InterfaceError) as error:
            if autocommit and not self._ours:
                self._leave(error)
            raise

    def _leave(self, error: Exception) -> None:
        """Close a connection that is lost, so that the next call opens another: outside of requests Django does not."""
        # One whose server is read-only now as well: the next may lead to the server that takes its place.
        connection = connections[self.using]
        if connection.connection is not None and (connection.connection.closed or read_only(error)):
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # A savepoint in the caller's transaction, if there is one.
        connection = connections[self.using]
        self._ours = connection.get_autocommit() and not connection.in_atomic_block
        try:
            with transaction.atomic(using=self.using):
                yield
        except (DatabaseError, InterfaceError) as error:
            if self._ours:
                self._leave(error)
            raise
        finally:
            self._ours = False


def run(work: Work[T], using: str | None = None) -> T:
    """Run an operation on Django's connection, in the caller's transaction if there is one."""
    return DjangoExecutor(using or conf.settings.DATABASE).run(work)


class _OnConnection(Generic[C]):
    """Base of executors on a psycopg connection."""

    _ours = False

    def __init__(self, connection: C) -> None:
        self.connection: C = connection

    def _autocommit(self) -> bool:
        connection: psycopg.BaseConnection[Any] = self.connection
        return self._ours or bool(connection.autocommit and connection.pgconn.transaction_status == _IDLE)


class ConnectionExecutor(_OnConnection[psycopg.Connection[Any]], Executor):
    """Runs operations on a psycopg connection of its own (workers, the reaper, benchmarks)."""

    #: Holds the next statement back.
    hold: exchange.Hold | None = None

    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        autocommit = self._autocommit()
        command = _command(name, params, autocommit)
        hold, self.hold = self.hold, None
        rows = exchange.fetch(self.connection, [command], meanwhile=params.get(MEANWHILE), hold=hold)
        if rows is not None:
            return rows
        if hold is not None:  # psycopg's cursor builds and sends in one call, which is made after it
            hold(lambda: None)
        return _rows(psycopg.RawCursor(self.connection).execute(*command, binary=True))

    @contextmanager
    def _lend(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        yield self.connection, self._autocommit()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._ours = self._autocommit()
        try:
            with self.connection.transaction():
                yield
        finally:
            self._ours = False


class AsyncConnectionExecutor(_OnConnection[psycopg.AsyncConnection[Any]]):
    """Runs operations on a psycopg async connection, as ``Executor`` does in sync code."""

    async def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        autocommit = self._autocommit()
        command = _command(name, params, autocommit)
        if (rows := await exchange.afetch(self.connection, command, params.get(MEANWHILE))) is not None:
            return rows
        cursor = psycopg.AsyncRawCursor(self.connection)
        await cursor.execute(*command, binary=True)
        return await cursor.fetchall() if cursor.rownumber is not None else [()] * cursor.rowcount

    async def copy(self, name: str, parts: Iterable[str]) -> None:
        async with psycopg.AsyncCursor(self.connection) as cursor, cursor.copy(statement(name)) as stream:
            for part in parts:
                await stream.write(part)

    async def apart(self, params: Mapping[str, Any]) -> Rows:
        if self._ours or not self._autocommit():
            return await asyncio.to_thread(_apart, self.connection, params, getattr(self.connection, "role", None))
        return await self.fetch(params["name"], params["params"])

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self._ours = self._autocommit()
        try:
            async with self.connection.transaction():
                yield
        finally:
            self._ours = False

    async def run(self, work: Work[T]) -> T:
        """See ``Executor.run``."""
        announced: list[tuple[str, dict[str, Any]]] = []
        began = False

        async def perform(step: Step) -> Rows:
            nonlocal began
            name, params = step
            if ":" not in name:
                return await self.fetch(name, params)
            if name == APART:
                return await self.apart(params)
            if name == BLOCKING:
                return [(await asyncio.to_thread(params["call"]),)]
            if name == BEGIN:
                await stack.enter_async_context(self.transaction())
                began = True
            elif name.startswith(COPY):
                await self.copy(name.removeprefix(COPY), params["parts"])
            else:
                announced.append((name.removeprefix(SIGNAL), dict(params)))
            return []

        try:
            async with AsyncExitStack() as stack:
                return await twins.arun(iter(work), perform)
        except BaseException:
            if began:
                announced.clear()
            raise
        finally:
            if announced:
                await sync_to_async(signals.dispatch)(announced, None)
