"""Async connections of our own, one pool per event loop and alias."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from .. import conf
from .operation import Operation
from .runner import AsyncConnectionExecutor, DjangoExecutor

if TYPE_CHECKING:  # loaded by the first async call: sync processes start without it
    from psycopg_pool import AsyncConnectionPool

T = TypeVar("T")

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncConnectionPool[Any]]] = WeakKeyDictionary()


def connection_parameters(using: str) -> dict[str, Any]:
    """Return libpq parameters of a Django alias, for connections that are not Django's."""
    wrapper = connections[using]
    params = dict(wrapper.get_connection_params())
    for ours in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(ours, None)
    return params


def prepares(using: str) -> bool:
    """Whether statements may be prepared on this alias (not behind a pooler in transaction mode)."""
    return not bool(connections[using].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False))


def connect(using: str, *, dsn: str | None = None) -> psycopg.Connection[Any]:
    """Open a sync connection in autocommit mode to an alias (or to ``dsn``); it prepares as the alias allows."""
    if not prepares(using) and not dsn:
        return psycopg.connect(**connection_parameters(using), autocommit=True, prepare_threshold=None)
    connection = (
        psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        if dsn
        else psycopg.connect(**connection_parameters(using), autocommit=True, prepare_threshold=0)
    )
    _plain_integers(connection)
    connection.execute(STEADY_PLANS, prepare=False)
    return connection


#: A queue goes from empty to a million rows between two analyzes: a plan made for the empty table must not scan it,
#: nor fetch the whole backlog by a bitmap and sort it where an index has the order (measured: 1.5 ms a claim at 4,000
#: jobs), nor read an index from end to end to merge it with a batch.
STEADY_PLANS = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_mergejoin = off; SET jit = off;"
    " SET plan_cache_mode = force_generic_plan"
)


def in_thread() -> bool:
    """Return whether async callers go through Django's connection in a thread (setting ``ASYNC``)."""
    mode: str = conf.settings.ASYNC
    if mode == "auto":
        # Tests hold everything in a transaction of Django's own connection: only that one sees what they did.
        # Who has not loaded Django's test tools is no test.
        test_utils = sys.modules.get("django.test.utils")
        return test_utils is not None and hasattr(test_utils._TestState, "saved_data")
    return mode == "thread"


def _plain_integers(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Send every integer as a bigint: by its size it would be one of four types, and a statement a plan for each."""
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    _plain_integers(connection)
    await connection.execute(STEADY_PLANS, prepare=False)


async def pool(using: str) -> AsyncConnectionPool[Any]:
    """Return this event loop's pool for an alias, opened."""
    from psycopg_pool import AsyncConnectionPool

    loop = asyncio.get_running_loop()
    found = _pools.setdefault(loop, {})
    if using not in found:
        made: AsyncConnectionPool[Any] = AsyncConnectionPool(
            kwargs={
                **connection_parameters(using),
                "autocommit": True,
                "prepare_threshold": 0 if prepares(using) else None,
            },
            min_size=0,
            max_size=conf.settings.ASYNC_POOL_SIZE,
            timeout=conf.settings.ASYNC_POOL_TIMEOUT,
            configure=_configure if prepares(using) else None,
            open=False,
            name=f"leasequeue-{using}",
        )
        found[using] = made
        await made.open()
    return found[using]


async def close_pools() -> None:
    """Close this event loop's pools (at shutdown, and between tests)."""
    for made in _pools.pop(asyncio.get_running_loop(), {}).values():
        await made.close()


async def arun(operation: Operation[T], using: str) -> T:
    """Run an operation from async code: on a pool of async connections, or in Django's thread (setting ``ASYNC``)."""
    if in_thread():
        return await sync_to_async(DjangoExecutor(using).run)(operation)
    async with (await pool(using)).connection() as connection:
        return await AsyncConnectionExecutor(connection).run(operation)
