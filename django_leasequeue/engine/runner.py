"""Executors: they carry out operations on a connection, in sync or async code.

``_Driver.carry_out`` is the one loop that does it, for both: of a sync executor it never waits.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg import sql

from .. import signals
from ..sql import numbered, statement
from ..twins import Repeatable
from . import clock, exchange
from .operation import AUTONOMOUS, BEGIN, BLOCKING, COPY, END, LOOK, SIGNAL, Rows, Work
from .outage import undone

T = TypeVar("T")

IDLE, NO_PIPELINE = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.PipelineStatus.OFF
#: Tries of what PostgreSQL undid for a reason that passes at once.
TRIES = 10


def command_of(name: str, params: Mapping[str, Any], ours: bool, alone: bool) -> exchange.Command:
    """Return a statement as the exchange sends it, its parameters numbered.

    ``ours``: the transaction is the operation's, whose statements decide whether the commit waits for the disk;
    ``alone``: this statement is the whole transaction, and so is ours.
    """
    text, names = numbered(name)
    held = clock.installed
    complete = {"now": None if held is None else held.now, "autocommit": ours or alone, "alone": alone, **params}
    return exchange.Command(text, [complete[parameter] for parameter in names])


def stands_alone(connection: psycopg.BaseConnection[Any]) -> bool:
    """Return whether the next statement on a connection is a transaction of its own."""
    try:
        pgconn = connection.pgconn
    except AttributeError:
        raise no_postgresql(type(connection).__module__) from None
    # A transaction may have been begun by hand; a pipeline is one as well.
    return connection.autocommit and pgconn.transaction_status == IDLE and pgconn.pipeline_status == NO_PIPELINE


def no_postgresql(found: str) -> ImproperlyConfigured:
    """Return the error of an alias that leads to something else."""
    return ImproperlyConfigured(
        f"The queues need PostgreSQL and psycopg 3; their database is reached by {found}. Change it in DATABASES, or"
        " name a PostgreSQL alias in LEASEQUEUE['DATABASE']; then run migrate."
    )


def role_of(using: str) -> sql.Composed | None:
    """Return the statement that assumes the role of an alias (its option ``assume_role``), as Django does; or None."""
    role = connections[using].settings_dict["OPTIONS"].get("assume_role")
    return sql.SQL("SET ROLE {}").format(sql.Identifier(role)) if role else None


def autonomous(connection: psycopg.BaseConnection[Any], params: Mapping[str, Any], role: sql.Composed | None) -> Rows:
    """Run one statement on a connection of its own to the same database; it stays done if the other is rolled back."""
    info = connection.info
    with (
        psycopg.connect(info.dsn, password=info.password or None, autocommit=True) as own,
        psycopg.RawCursor(own) as cursor,
    ):
        if role is not None:
            own.execute(role)
        return cursor.execute(
            *_readable(command_of(params["name"], params["params"], True, True)), binary=True
        ).fetchall()


def _readable(command: exchange.Command) -> tuple[Any, Any]:
    """Return a command for psycopg's public calls: tools that wrap those read the text."""
    return command.text.decode(), command.values


@dataclass
class _Attempt:
    """An attempt at an operation, and what it has done so far."""

    #: Whether the whole operation may be done again: it can, and has done nothing before its transaction.
    repeatable: bool
    #: Whether it has begun a transaction that has not committed.
    began: bool = field(default=False, init=False)
    #: That transaction while it is open; one that the operation begins inside it is part of it.
    transaction: Any = field(default=None, init=False)
    announced: list[tuple[str, dict[str, Any]]] = field(default_factory=list, init=False)


class _Driver(ABC):
    """Carries out operations: asks a generator for statements, runs each, and sends it the rows."""

    #: Whether ``fetch``, ``copy`` and ``transaction`` are those of async code.
    is_async: ClassVar[bool] = False
    #: The Django alias whose transaction the steps may be part of; ``None`` on a connection of its own.
    using: str | None = None
    #: Whether signals are sent: code of the host's, which may block.
    announces = True
    #: Whether the transaction that is open was begun for the operation.
    _ours = False

    @property
    @abstractmethod
    def stands_alone(self) -> bool:
        """Whether the next statement is a transaction of its own."""

    @abstractmethod
    def fetch(self, name: str, params: Mapping[str, Any]) -> Any:
        """Run one statement and return its rows."""

    @abstractmethod
    def copy(self, name: str, parts: Iterable[str]) -> Any:
        """Send a text in parts through the COPY statement ``name``."""

    @abstractmethod
    def transaction(self) -> Any:
        """Return a transaction around the rest of the operation."""

    @abstractmethod
    def autonomous(self, params: Mapping[str, Any]) -> Rows:
        """Run one statement on another connection to the same database; it blocks."""

    async def carry_out(self, work: Work[T]) -> T:
        """Run an operation to its end and return its value, then send the signals that it announced.

        Those of a transaction that is rolled back are not sent: nothing of it happened. What PostgreSQL undoes for a
        reason that passes at once is done again: a statement, or an operation that began with its transaction.
        """
        left = TRIES
        while True:
            repeatable = isinstance(work, Repeatable)
            statements = work() if isinstance(work, Repeatable) else work
            attempt = _Attempt(repeatable)
            try:
                try:
                    name, params = next(statements)
                    while True:
                        try:
                            if ":" in name:
                                rows = await self._take_step(name, params, attempt)
                            else:
                                attempt.repeatable &= attempt.began or LOOK in params
                                rows = self.fetch(name, params)
                                if self.is_async:
                                    rows = await rows
                        except Exception as error:  # noqa: BLE001  (the operation decides)
                            if not attempt.began and ":" not in name and left > 1 and self._is_undone(error):
                                left -= 1  # the same statement again
                            else:
                                name, params = statements.throw(error)
                        else:
                            name, params = statements.send(rows)
                except StopIteration as end:
                    value: T = end.value
                finally:
                    statements.close()
                if attempt.transaction is not None:
                    await self._complete(attempt)
                return value
            except BaseException as error:
                if not attempt.began:
                    raise
                attempt.announced.clear()
                await self._complete(attempt, error)
                if not (attempt.repeatable and left > 1 and self._is_undone(error)):
                    raise
                left -= 1
            finally:
                if attempt.announced and self.announces:
                    if self.is_async:  # in the thread in which receivers find Django's connections
                        await sync_to_async(signals.dispatch)(attempt.announced, None)
                    else:
                        signals.dispatch(attempt.announced, self.using)

    async def _take_step(self, name: str, params: Mapping[str, Any], attempt: _Attempt) -> Rows:
        """Take a step that is more than a statement."""
        if name == BLOCKING:
            return [(await self._call(params["call"]),)]
        if name == AUTONOMOUS:
            if not self.stands_alone:
                return await self._call(partial(self.autonomous, params))
            found = self.fetch(params["name"], params["params"])
            rows: Rows = await found if self.is_async else found
            return rows
        if name == BEGIN:
            if attempt.transaction is None:
                transaction = self.transaction()
                if self.is_async:
                    await transaction.__aenter__()
                else:
                    transaction.__enter__()
                attempt.transaction, attempt.began = transaction, True
        elif name == END:
            await self._complete(attempt)
            attempt.began = attempt.repeatable = False
        elif name.startswith(COPY):
            sent = self.copy(name.removeprefix(COPY), params["parts"])
            if self.is_async:
                await sent
        else:
            attempt.announced.append((name.removeprefix(SIGNAL), dict(params)))
        return []

    async def _complete(self, attempt: _Attempt, error: BaseException | None = None) -> None:
        """Commit the attempt's transaction; after an error, roll it back if it is still open."""
        transaction, attempt.transaction = attempt.transaction, None
        if transaction is None:
            return
        raised = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        if self.is_async:
            await transaction.__aexit__(*raised)
        else:
            transaction.__exit__(*raised)

    async def _call(self, function: Callable[[], T]) -> T:
        """Call a function that may block: in a thread for async code."""
        return await asyncio.to_thread(function) if self.is_async else function()

    def _is_undone(self, error: BaseException) -> bool:
        """Return whether PostgreSQL undid what was the executor's own transaction, so that it may be done again."""
        return undone(error) and self.stands_alone


class Executor(_Driver):
    """Runs operations in sync code."""

    @abstractmethod
    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows: ...

    @abstractmethod
    def copy(self, name: str, parts: Iterable[str]) -> None: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]: ...

    def run(self, work: Work[T]) -> T:
        """Run an operation; see ``carry_out``."""
        try:
            self.carry_out(work).send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        raise RuntimeError("A sync executor waited.")


class _Cursor(Protocol):
    @property
    def description(self) -> object: ...
    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> Rows: ...


def rows_of(cursor: _Cursor) -> Rows:
    """Return the rows of an answer; without result columns, one empty tuple per changed row."""
    return cursor.fetchall() if cursor.description is not None else [()] * cursor.rowcount


class _OnConnection(_Driver):
    """Base of executors on a psycopg connection."""

    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

    @property
    def stands_alone(self) -> bool:
        return stands_alone(self.connection)

    def autonomous(self, params: Mapping[str, Any]) -> Rows:
        return autonomous(self.connection, params, getattr(self.connection, "role", None))


@dataclass(eq=False)
class ConnectionExecutor(_OnConnection, Executor):
    """Runs operations on a psycopg connection of its own (workers, the reaper, benchmarks)."""

    connection: psycopg.Connection[Any]

    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        command = command_of(name, params, self._ours, stands_alone(self.connection))
        if (rows := exchange.fetch(self.connection, [command])) is not None:
            return rows
        return rows_of(psycopg.RawCursor(self.connection).execute(*_readable(command), binary=True))

    def copy(self, name: str, parts: Iterable[str]) -> None:
        with psycopg.Cursor(self.connection) as cursor, cursor.copy(statement(name)) as stream:
            for part in parts:
                stream.write(part)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._ours = self.stands_alone
        try:
            with self.connection.transaction():
                yield
        finally:
            self._ours = False


@dataclass(eq=False)
class AsyncConnectionExecutor(_OnConnection):
    """Runs operations on a psycopg async connection, as ``Executor`` does in sync code."""

    is_async = True
    connection: psycopg.AsyncConnection[Any]

    run = _Driver.carry_out

    async def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        command = command_of(name, params, self._ours, stands_alone(self.connection))
        if (rows := await exchange.afetch(self.connection, command)) is not None:
            return rows
        cursor = psycopg.AsyncRawCursor(self.connection)
        await cursor.execute(*_readable(command), binary=True)
        return await cursor.fetchall() if cursor.description is not None else [()] * cursor.rowcount

    async def copy(self, name: str, parts: Iterable[str]) -> None:
        async with psycopg.AsyncCursor(self.connection) as cursor, cursor.copy(statement(name)) as stream:
            for part in parts:
                await stream.write(part)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self._ours = self.stands_alone
        try:
            async with self.connection.transaction():
                yield
        finally:
            self._ours = False
