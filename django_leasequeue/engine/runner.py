"""Executors: they carry out operations on a connection, in sync or async code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.asyncio import async_unsafe

from .. import signals
from ..sql import statement
from . import clock
from .announce import PREFIX
from .operation import Operation, Rows

T = TypeVar("T")

_IDLE = psycopg.pq.TransactionStatus.IDLE


def _parameters(params: Mapping[str, Any], autocommit: bool) -> dict[str, Any]:
    return {"now": clock.current(), "autocommit": autocommit, **params}


class DjangoExecutor:
    """Runs operations on Django's own connection: in the caller's transaction, if there is one.

    Statements are prepared on the server unless the alias says ``DISABLE_SERVER_SIDE_CURSORS`` (Django's documented mark of
    a pooler in transaction mode).
    """

    def __init__(self, using: str) -> None:
        self.using: str | None = using
        self.alias = using

    @async_unsafe
    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        """Run one statement and return its rows."""
        connection = connections[self.alias]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        autocommit = connection.get_autocommit() and not connection.in_atomic_block
        with connection.wrap_database_errors:
            return self._fetch(connection, statement(name), _parameters(params, autocommit))

    def _fetch(self, connection: BaseDatabaseWrapper, text: str, params: dict[str, Any]) -> Rows:
        raw: psycopg.Connection[tuple[Any, ...]] = connection.connection
        prepare = not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)
        before = raw.prepare_threshold
        if prepare and before is None:
            raw.prepare_threshold = 2
        try:
            with psycopg.Cursor(raw) as cursor:
                cursor.execute(text, params)
                return cursor.fetchall()
        finally:
            raw.prepare_threshold = before

    def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return its value."""
        return drive(self, operation)


class ConnectionExecutor:
    """Runs operations on a psycopg connection of its own (workers, the reaper, benchmarks)."""

    #: Not Django's connection: its transactions are none of ours.
    using: str | None = None

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        """Run one statement and return its rows."""
        connection = self.connection
        autocommit = connection.autocommit and connection.info.transaction_status == _IDLE
        with psycopg.Cursor(connection) as cursor:
            cursor.execute(statement(name), _parameters(params, autocommit))
            return cursor.fetchall()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return its value."""
        return drive(self, operation)


class AsyncConnectionExecutor:
    """Runs operations on a psycopg async connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def fetch(self, name: str, params: Mapping[str, Any]) -> Rows:
        """Run one statement and return its rows."""
        connection = self.connection
        autocommit = connection.autocommit and connection.info.transaction_status == _IDLE
        async with psycopg.AsyncCursor(connection) as cursor:
            await cursor.execute(statement(name), _parameters(params, autocommit))
            return await cursor.fetchall()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return its value."""
        steps = operation.steps()
        announced: list[tuple[str, dict[str, Any]]] = []
        try:
            name, params = next(steps)
            while True:
                if name.startswith(PREFIX):
                    announced.append((name.removeprefix(PREFIX), dict(params)))
                    name, params = steps.send([])
                else:
                    name, params = steps.send(await self.fetch(name, params))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            if announced:
                await sync_to_async(signals.dispatch)(announced, None)


def drive(executor: DjangoExecutor | ConnectionExecutor, operation: Operation[T]) -> T:
    """Feed an operation's statements to a sync executor until it returns, then send what it announced."""
    steps = operation.steps()
    announced: list[tuple[str, dict[str, Any]]] = []
    try:
        name, params = next(steps)
        while True:
            if name.startswith(PREFIX):
                announced.append((name.removeprefix(PREFIX), dict(params)))
                name, params = steps.send([])
            else:
                name, params = steps.send(executor.fetch(name, params))
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        if announced:
            signals.dispatch(announced, executor.using)
