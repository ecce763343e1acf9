"""Connections of our own: sync ones, and a pool of async ones per event loop and alias."""

from __future__ import annotations

import select
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from .. import conf
from ..conf import process
from .django_executor import run
from .exchange import NEVER
from .operation import Work
from .outage import read_only
from .runner import AsyncConnectionExecutor, no_postgresql, role_of

if TYPE_CHECKING:  # loaded by the first async call: sync processes start without it
    from .loop_pool import LoopPool

T = TypeVar("T")


def _abandon(pools: dict[str, LoopPool]) -> None:
    for made in pools.values():
        made.abandon()


_pools: process.PerLoop[dict[str, LoopPool]] = process.PerLoop(dict, _abandon)

#: A peer that has vanished is noticed within some ten seconds, not after the quarter of an hour to two hours that an
#: operating system takes by itself. Seconds, but for ``tcp_user_timeout``: milliseconds.
TCP_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def connection_parameters(using: str, dsn: str | None = None) -> dict[str, Any]:
    """Return libpq parameters of an alias, or of ``dsn``; with ``TCP_DEFAULTS`` unless they name a service's file."""
    # Without a host libpq would look for a server of this machine.
    if not dsn and (found := connections[using].vendor) != "postgresql":
        raise no_postgresql(found)
    params = known_to_libpq(conninfo_to_dict(dsn) if dsn else connections[using].get_connection_params())
    return params if "service" in params else {**TCP_DEFAULTS, **params}


def known_to_libpq(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return those parameters that libpq takes: a backend's own options and psycopg's are none of them."""
    names = {option.keyword.decode() for option in Conninfo.get_defaults()}
    return {name: value for name, value in params.items() if name in names}


#: Our connections that are not garbage yet, and the sockets of those that are being opened.
_ours: WeakSet[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]] = WeakSet()
_opening: set[int] = set()


def let_go(connection: Any) -> None:
    """In a forked child: give up a connection, about which the server hears nothing."""
    with suppress(psycopg.Error, AttributeError):  # it is closed, or of another kind of database
        process.let_go(connection.pgconn.socket)


def _let_all_go() -> None:
    for connection in list(_ours):
        let_go(connection)
    for descriptor in _opening:
        process.let_go(descriptor)
    _opening.clear()


process.in_forked_child(_let_all_go)


class Connection(psycopg.Connection[Any]):
    """A sync connection that does not wait for ever where a socket hangs without an error (a proxy, a firewall)."""

    #: Seconds that the server gets for a statement; ``None`` for any number. May be changed between statements.
    patience: float | None = None
    #: The statement that assumed the role of its alias.
    role: sql.Composed | None = None
    #: How often a statement is sent before it is prepared.
    prepare_after = NEVER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _ours.add(self)

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return _noted(super()._connect_gen(*args, **kwargs))

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        if self.patience is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_limited(gen, self.patience), *args, **kwargs)
        except NoAnswer:
            self.close()
            raise


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for coroutines; every statement may take ``STATEMENT_TIMEOUT``."""

    role: sql.Composed | None = None
    prepare_after = NEVER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _ours.add(self)

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return _noted(super()._connect_gen(*args, **kwargs))

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        patience = conf.settings.STATEMENT_TIMEOUT
        if not patience:
            return await super().wait(gen, *args, **kwargs)
        try:
            return await super().wait(_limited(gen, patience), *args, **kwargs)
        except NoAnswer:
            await self.close()
            raise


@contextmanager
def patiently(using: str) -> Iterator[None]:
    """Wait on Django's connection of this thread as on one of our own: at most ``STATEMENT_TIMEOUT`` a statement."""
    # Nothing is set on the server: the connection is the host's.
    patience = conf.settings.STATEMENT_TIMEOUT
    wrapper = connections[using]
    wrapper.ensure_connection()
    raw: Any = wrapper.connection
    if not patience or "wait" in vars(raw):
        yield
        return
    usual = raw.wait

    def wait(gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        try:
            found: T = usual(_limited(gen, patience), *args, **kwargs)
        except NoAnswer:
            raw.close()
            raise
        return found

    raw.wait = wait
    try:
        yield
    finally:
        del raw.wait


class NoAnswer(psycopg.OperationalError):
    """The time for a statement is over."""


def _limited(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Pass on a generator of psycopg until the socket is silent (told every 0.1 s) and time is over."""
    end = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= end:
                raise NoAnswer(f"the server did not answer within {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as stop:
        value: T = stop.value
        return value


def _noted(gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Pass on a generator that connects; a child that is forked meanwhile gives up its socket, too."""
    descriptor = -1
    try:
        wanted = next(gen)
        while True:
            if wanted[0] != descriptor:  # another address of the host
                _opening.discard(descriptor)
                descriptor = wanted[0]
                _opening.add(descriptor)
            wanted = gen.send((yield wanted))
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        _opening.discard(descriptor)
        gen.close()


def prepares(using: str) -> bool:
    """Whether statements may be prepared on this alias (not behind a pooler in transaction mode)."""
    return not bool(connections[using].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False))


def connect(
    using: str, *, dsn: str | None = None, patience: float | None = None, timeout: int | None = None, name: str = ""
) -> Connection:
    """Open a sync connection in autocommit mode to an alias (or to ``dsn``); it prepares as the alias allows.

    ``timeout`` (seconds, at least 2) is its ``connect_timeout``, ``name`` what ``pg_stat_activity`` shows.
    """
    ours = bool(dsn) or prepares(using)  # not a pooler's, which others use next
    params = connection_parameters(using, dsn)
    if timeout is not None:
        params["connect_timeout"] = timeout
    if name and ours:
        params["application_name"] = name
    connection = Connection.connect(**params, autocommit=True, prepare_threshold=None)
    connection.patience = patience
    connection.role = role_of(using)
    if connection.role:
        connection.execute(connection.role, prepare=False)
    if ours:
        connection.prepare_after = 0
        connection.execute(_settings(patience), prepare=False)
    return connection


#: A queue goes from empty to a million rows between two analyzes: a plan made for the empty table must not scan it,
#: nor fetch the whole backlog by a bitmap and sort it where an index has the order (measured: 1.5 ms a claim at 4,000
#: jobs), nor read an index from end to end to merge it with a batch.
STEADY_PLANS = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_mergejoin = off; SET jit = off;"
    " SET plan_cache_mode = force_generic_plan"
)

#: Times come back in UTC, whatever the server's zone: those of another one take psycopg three times as long.
_UTC = "; SET TimeZone = 'UTC'"
#: What a role, a database or the server may have set for others: it would end our sessions, or fail statements.
_OURS = (
    "; SET idle_session_timeout = 0; SET lock_timeout = 0; SET default_transaction_isolation = 'read committed';"
    " SET default_transaction_deferrable = off; SET array_nulls = on; SET extra_float_digits = 1"
)
_LIMIT = (
    "; SELECT set_config('statement_timeout', '{}ms', false) WHERE current_setting('statement_timeout') IN ('0', '0ms')"
)


def _settings(patience: float | None) -> Any:  # psycopg takes literals, and this is made of them
    return STEADY_PLANS + _UTC + _OURS + (_LIMIT.format(int(patience * 900)) if patience else "")


def in_thread() -> bool:
    """Return whether async callers go through Django's connection in a thread (setting ``ASYNC``)."""
    mode = conf.settings.ASYNC
    return process.switches.django_connection if mode == "auto" else mode == "thread"


def in_transaction(using: str) -> bool:
    """Return whether a transaction of the caller is open on an alias: no other session sees what it adds there yet."""
    return connections[using].in_atomic_block


async def ain_transaction(using: str) -> bool:
    """The same for async code, whose calls are part of it only where they go through Django's connection."""
    return in_thread() and await sync_to_async(in_transaction)(using)


async def _configure(using: str, connection: AsyncConnection) -> None:
    connection.role = role_of(using)
    if connection.role:
        await connection.execute(connection.role, prepare=False)
    if not prepares(using):
        return
    connection.prepare_after = 0
    await connection.execute(_settings(conf.settings.STATEMENT_TIMEOUT), prepare=False)


async def _open_pool(using: str) -> LoopPool:
    """Make and open this event loop's pool for an alias."""
    from .loop_pool import LoopPool

    pools = _pools.get()
    pools[using] = made = LoopPool(
        connection_class=AsyncConnection,
        kwargs={**connection_parameters(using), "autocommit": True, "prepare_threshold": None},
        max_size=conf.settings.ASYNC_POOL_SIZE,
        timeout=conf.settings.ASYNC_POOL_TIMEOUT,
        configure=partial(_configure, using),
        name=f"leasequeue-{using}",
    )
    await made.begin(partial(pools.pop, using, None))
    return made


def usage() -> dict[str, tuple[int, int, int]]:
    """Return how many async connections of this process are used and idle, and how many callers wait, by alias."""
    found: dict[str, tuple[int, int, int]] = {}
    for _, pools in _pools.items():  # noqa: PERF102  (it is no dict)
        for using, made in list(pools.items()):
            stats = made.get_stats()
            idle = stats.get("pool_available", 0)
            now = stats.get("pool_size", 0) - idle, idle, stats.get("requests_waiting", 0)
            before = found.get(using, (0, 0, 0))
            found[using] = (before[0] + now[0], before[1] + now[1], before[2] + now[2])
    return found


async def close_pools() -> None:
    """Close this event loop's pools (at shutdown, and between tests)."""
    for made in list((_pools.pop() or {}).values()):
        await made.end()


async def arun(work: Work[T], using: str | None = None) -> T:
    """Run an operation from async code: on a pool of async connections, or in Django's thread (setting ``ASYNC``)."""
    using = using or conf.settings.DATABASE
    if in_thread():
        return await sync_to_async(run)(work, using)
    async with borrow(using) as connection:
        return await AsyncConnectionExecutor(connection).run(work)


@asynccontextmanager
async def borrow(using: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Lend a connection of the pool, one that has not ended while it was idle."""
    lender = _pools.get().get(using) or await _open_pool(using)
    while True:
        async with lender.connection() as connection:
            if _ended(connection):
                await connection.close()
                continue
            try:
                yield connection
            except psycopg.Error as error:
                if read_only(error):  # the next connection may lead to the server that takes its place
                    await connection.close()
                raise
            return


def _ended(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether an idle connection has ended: what can be read is the server's last words, and then the end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    for _ in range(3):
        if not poll.poll(0):
            return False
        try:
            connection.pgconn.consume_input()
        except psycopg.Error:
            return True
    return True
