"""The end of a job closes connections of Django that the job left unclean, so that they never reach the next job.

A clean connection costs only the reading of a few attributes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import PipelineStatus, TransactionStatus

from ..conf import process
from ..conf.loglines import about
from ..engine.pool import let_go
from ..exceptions import TransactionLeftOpen
from . import forked
from .atomic import database_of
from .control import Handler, JobControl
from .run import COMPLETED, SUSPENDED, Entry, failed

logger = logging.getLogger("django_leasequeue.worker")

#: Seconds that the server gets to cancel a statement whose job has ended.
CANCEL = 2
# As plain numbers: psycopg in C returns numbers, in Python members of the enum.
_IDLE, _ACTIVE, _UNKNOWN = int(TransactionStatus.IDLE), int(TransactionStatus.ACTIVE), int(TransactionStatus.UNKNOWN)
_NO_PIPELINE = int(PipelineStatus.OFF)
_WORDS = {
    _ACTIVE: "a statement that still runs",
    int(TransactionStatus.INTRANS): "an open transaction",
    int(TransactionStatus.INERROR): "a failed transaction",
}
#: How transactions begin: the attributes of ``_modes_of``, of which the last is a setting that the server reports.
_MODES = ("another isolation level", "read_only", "deferrable", "SET default_transaction_read_only")
_READ_ONLY = b"default_transaction_read_only"
#: Idents of the threads in which Django has opened a connection that may have to be closed.
connected_threads: set[int] = set()
#: Django's connections in all threads.
_wrappers: WeakSet[BaseDatabaseWrapper] = WeakSet()


def _note_connection(connection: Any, **_: Any) -> None:
    connected_threads.add(threading.get_ident())
    _wrappers.add(connection)
    # The wrappers that the host's receivers of this signal have installed before this one.
    connection.leasequeue_kept = connection.execute_wrappers[:]
    connection.leasequeue_modes = _modes_of(connection.connection)


def _modes_of(raw: Any) -> tuple[Any, ...]:
    """Return how transactions of a connection begin, without a query."""
    pgconn = getattr(raw, "pgconn", None)
    if pgconn is None:
        return ()
    return raw.isolation_level, raw.read_only, raw.deferrable, pgconn.parameter_status(_READ_ONLY)


connection_created.connect(_note_connection, weak=False, dispatch_uid="django_leasequeue.worker.edge")


def tidy_connections() -> None:
    """Close this thread's connections that are broken or too old, as Django does after a request."""
    wrappers = connections.all(initialized_only=True)
    for wrapper in wrappers:
        if left := open_on(wrapper) or spoiled(wrapper):
            logger.warning("A receiver of a signal left %s on %r: its connection was closed", left, wrapper.alias)
            drop(wrapper)
        else:
            wrapper.close_if_unusable_or_obsolete()
            if wrapper.connection is None:
                wrapper.execute_wrappers.clear()
    if all(wrapper.connection is None for wrapper in wrappers):
        connected_threads.discard(threading.get_ident())


def call_apart(call: Callable[[], object], name: str) -> None:
    """Call what shares this thread with others; close a connection on which it leaves work open."""
    before = {
        wrapper.alias for wrapper in connections.all(initialized_only=True) if open_on(wrapper) or spoiled(wrapper)
    }
    try:
        call()
    finally:
        for wrapper in connections.all(initialized_only=True):
            if wrapper.alias not in before and (left := open_on(wrapper) or spoiled(wrapper)):
                logger.warning("%s left %s on %r: its connection was closed", name, left, wrapper.alias)
                drop(wrapper)


def open_on(wrapper: BaseDatabaseWrapper) -> str:
    """Return the name of open work, which a close of the connection loses; "" if there is none."""
    raw: Any = wrapper.connection
    pgconn = None if raw is None else getattr(raw, "pgconn", None)
    if pgconn is not None and (status := pgconn.transaction_status) != _IDLE and status != _UNKNOWN:
        return _WORDS[status]
    if wrapper.closed_in_transaction:
        return "a transaction whose connection it closed"
    if wrapper.in_atomic_block or wrapper.savepoint_ids:
        return "an open atomic()"
    return "calls of on_commit()" if wrapper.run_on_commit else ""


def spoiled(wrapper: BaseDatabaseWrapper) -> str:
    """Return the name of another state that the next job must not find; "" if there is none."""
    raw: Any = wrapper.connection
    if raw is None:
        return ""
    if wrapper.needs_rollback:
        return "needs_rollback"
    if wrapper.autocommit != wrapper.settings_dict["AUTOCOMMIT"]:
        return "set_autocommit()"
    pgconn = getattr(raw, "pgconn", None)
    if pgconn is None:
        return ""
    if raw.closed and not raw.broken:  # closed by hand; Django itself finds one that the server has ended
        return "a closed connection of psycopg"
    if raw.autocommit != wrapper.autocommit:
        return "another autocommit of psycopg's connection"
    before = getattr(wrapper, "leasequeue_modes", ())
    for word, was, now in zip(_MODES, before, _modes_of(raw), strict=False):
        if now != was:
            return word
    return "" if pgconn.pipeline_status == _NO_PIPELINE else "a pipeline"


def drop(wrapper: BaseDatabaseWrapper) -> None:
    """Close a connection of this thread in any state, and forget its wrapper: Django makes a new one."""
    raw: Any = wrapper.connection
    wrapper.in_atomic_block = wrapper.closed_in_transaction = wrapper.needs_rollback = False
    wrapper.savepoint_ids, wrapper.atomic_blocks = [], []
    try:
        pgconn = getattr(raw, "pgconn", None)
        if pgconn is not None and pgconn.transaction_status == _ACTIVE:
            raw.cancel_safe(timeout=CANCEL)
    except Exception as error:  # noqa: BLE001  (the server cancels the statement when it finds the connection closed)
        logger.debug("Cancelling failed: %s", error)
    with suppress(Exception):  # it may be in any state
        if raw is not None:
            raw.close()  # first: Django's pool takes it back closed, and makes another one
        wrapper.close()
    wrapper.connection = None
    if wrapper in connections.all(initialized_only=True):
        del connections[wrapper.alias]


#: Pools of the parent, kept in a child: to delete them would wait for their threads.
_parents: list[Any] = []


def _part_connections() -> None:
    """In a child that a job forked: let Django connect again; the sessions belong to the parent."""
    if not forked.is_child:
        return
    for wrapper in list(_wrappers):
        let_go(wrapper.connection)
        wrapper.connection = None
        pools = getattr(wrapper, "_connection_pools", {})  # Django's option "pool": one for all threads
        for pool in pools.values():
            for idle in getattr(pool, "_pool", ()):
                let_go(idle)
        _parents.extend(pools.values())
        pools.clear()
    for wrapper in connections.all(initialized_only=True):
        del connections[wrapper.alias]


process.in_forked_child(_part_connections)

_leave_block = transaction.Atomic.__exit__


def _leave_own_block(self: transaction.Atomic, *error: Any) -> None:
    """Leave a block only if this thread's connection still has it.

    Otherwise a closed generator of an earlier job leaves it, and Django would roll back the present job's work.
    """
    blocks: list[Any] = transaction.get_connection(self.using).atomic_blocks
    if self in blocks:
        _leave_block(self, *error)


def guard_blocks() -> None:
    """From now on in this process, keep abandoned ``atomic`` blocks from ending another job's transaction."""
    transaction.Atomic.__exit__ = _leave_own_block  # type: ignore[method-assign]


def clear_edge(entry: Entry, handler: Handler) -> Entry:
    """Close this thread's unclean connections, with a warning; return the entry, a failure if work is lost."""
    found: dict[str, str] = {}
    spoils: dict[str, str] = {}
    wrapper: Any
    for wrapper in connections.all(initialized_only=True):
        if left := open_on(wrapper):
            found[wrapper.alias] = left
            drop(wrapper)
        elif left := spoiled(wrapper):
            spoils[wrapper.alias] = left
            drop(wrapper)
        else:
            wrapper.force_debug_cursor = False
            if wrapper.queries_log:
                wrapper.queries_log.clear()
            if wrapper.execute_wrappers and wrapper.connection is not None:
                kept = getattr(wrapper, "leasequeue_kept", wrapper.execute_wrappers)
                wrapper.execute_wrappers[:] = [one for one in wrapper.execute_wrappers if one in kept]
    return judged(entry, handler, found, spoils) if found or spoils else entry


def judged(entry: Entry, handler: Handler, found: dict[str, str], spoils: dict[str, str]) -> Entry:
    """Log the findings by alias; return the entry, a failure if the job's work is lost (``found``)."""
    kind, job, control, *_ = entry
    logger.warning(
        "A job left its connection unclean, which was closed: %s",
        ", ".join(f"{left} on {alias!r}" for alias, left in {**found, **spoils}.items()),
        extra=about(job),
    )
    if kind not in (COMPLETED, SUSPENDED) or control is None or (error := error_of(control, found)) is None:
        return entry
    control.suspension = None
    return failed(handler, job, control, error)


def error_of(control: JobControl, found: dict[str, str]) -> TransactionLeftOpen | None:
    """Return the error of a run that returned with open work, by alias; ``None`` if nothing is lost."""
    if not found or (control.settled and database_of(control) not in found):  # its own transaction has committed
        return None
    control.settled = False
    return TransactionLeftOpen(", ".join(f"{left} on {alias!r}" for alias, left in found.items()))


def check_edge(control: JobControl) -> None:
    """Raise if a run that has returned in this thread left a transaction open."""
    found = {wrapper.alias: open_on(wrapper) for wrapper in connections.all(initialized_only=True)}
    if error := error_of(control, {alias: left for alias, left in found.items() if left}):
        raise error


class SyncParts(Executor):
    """Runs the sync parts of one async job in the thread that all of them share.

    A transaction that a part leaves open continues in the job's next part; no other job enters it.
    """

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self.used = False
        #: Connections with open work of the job, by alias.
        self.kept: dict[str, BaseDatabaseWrapper] = {}

    def install(self) -> None:
        """Run the sync parts of the current context, and of the tasks that it starts, in this executor."""
        # As Django's ASGI handler gives each request its own thread.
        context = ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[context] = self
        SyncToAsync.thread_sensitive_context.set(context)

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.used = True
        return self._thread.submit(self._run, function, *args, **kwargs)

    def _run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        aside: dict[str, BaseDatabaseWrapper] = {}
        mine, self.kept = self.kept, {}
        for alias, wrapper in mine.items():
            if (other := _taken(alias)) is not None:
                aside[alias] = other
            connections[alias] = wrapper
        try:
            return function(*args, **kwargs)
        finally:
            forked.leave_if_child()
            for wrapper in connections.all(initialized_only=True):
                if open_on(wrapper) or spoiled(wrapper):
                    self.kept[wrapper.alias] = wrapper
                    del connections[wrapper.alias]
                elif wrapper.errors_occurred and wrapper.connection is not None and not wrapper.is_usable():
                    wrapper.close()
            for alias, wrapper in aside.items():
                if (done := _taken(alias)) is not None:
                    done.close()
                connections[alias] = wrapper

    def close(self) -> Future[tuple[dict[str, str], dict[str, str]]]:
        """Close the job's connections, in that thread; return its open work and other unclean states, by alias."""
        kept, self.kept = self.kept, {}
        return self._thread.submit(_close_kept, kept.values())


def _taken(alias: str) -> BaseDatabaseWrapper | None:
    for wrapper in connections.all(initialized_only=True):
        if wrapper.alias == alias:
            del connections[alias]
            return wrapper
    return None


def _close_kept(kept: Iterable[BaseDatabaseWrapper]) -> tuple[dict[str, str], dict[str, str]]:
    found: dict[str, str] = {}
    spoils: dict[str, str] = {}
    for wrapper in kept:
        if left := open_on(wrapper):
            found[wrapper.alias] = left
        else:
            spoils[wrapper.alias] = spoiled(wrapper)
        drop(wrapper)
    return found, spoils
