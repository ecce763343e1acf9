"""The partitions of the lease log: made ahead, dropped by retention, with no lock that anybody would feel.

DDL is not an operation, since names are no parameters: these functions take a psycopg connection in autocommit mode.

What locks what (PostgreSQL's manual, ALTER TABLE): ATTACH takes SHARE UPDATE EXCLUSIVE on the log, which writers do not
notice, and ACCESS EXCLUSIVE on the default partition. DETACH takes ACCESS EXCLUSIVE on the log for an instant; DETACH
CONCURRENTLY is not allowed where a default partition exists, and the default partition is what makes sure that no event
is ever refused. So each wait for a lock ends after 200 ms (who comes later waits behind it so long at most), and what
did not work is tried again at the next tick.

Partitions have the rights of the log: who may read it may read them by their own names, as Spark does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from .. import conf
from ..sql import statement
from ..sql.log_notes import DroppedEvents
from .outage import passes
from .runner import ConnectionExecutor

logger = logging.getLogger("django_leasequeue.partitions")

Connection = psycopg.Connection[Any]

#: How long DDL waits for a lock, and others behind it.
LOCK_TIMEOUT_MS = 200
#: The comment on a partition that retention has detached and is about to drop. Others are never dropped.
MARK = "leasequeue: detached by retention, to be dropped"

#: Returns the lowest transaction id whose events somebody still needs; ``None`` when they need none.
Hold = Callable[[Connection], "int | None"]
_holds: dict[str, Hold] = {}
#: Called in each transaction before it changes anything: raises if this process must not.
Fence = Callable[[ConnectionExecutor], object]


class Partition(NamedTuple):
    """One partition: events numbered from ``low`` up to ``high`` (exclusive)."""

    schema: str
    name: str
    low: int
    high: int
    bytes: int


class Layout(NamedTuple):
    """The log's partitions in order, its last number, and whether events fell into the default partition."""

    head: int
    partitions: list[Partition]
    default_bytes: int
    default_used: bool


class Maintained(NamedTuple):
    """The partitions that one round of maintenance made, dropped and kept."""

    made: list[str]
    dropped: list[str]
    #: Which reader keeps a partition that is old enough.
    held: dict[str, str]
    #: What could not get its lock and is tried again.
    busy: list[str]
    default_used: bool


def hold_back(name: str, lowest: Hold) -> None:
    """Register a reader of the log, so that retention keeps what it has not read."""
    _holds[name] = lowest


def read_layout(connection: Connection) -> Layout:
    """Return the partitions of the log as they are."""
    rows = ConnectionExecutor(connection).fetch("event_partitions", {})
    found = [(Partition(*partition), used) for _, *partition, used in rows]
    # The default one has no bounds.
    default = next(((each.bytes, bool(used)) for each, used in found if each.low is None), (0, False))
    return Layout(rows[0][0] if rows else 0, [each for each, _ in found if each.low is not None], *default)


def default_rows(connection: Connection) -> int:
    """Count the events in the default partition, up to a million."""
    ((count,),) = ConnectionExecutor(connection).fetch("event_default_rows", {"size": 1_000_000})
    return int(count)


def maintain(connection: Connection, fence: Fence = lambda executor: None) -> Maintained:
    """Make partitions ahead and drop those that retention does not keep; each change begins with ``fence``."""
    layout = read_layout(connection)
    busy: list[str] = []
    made = _make_ahead(connection, layout, busy, fence)
    _share(connection, busy, fence)
    dropped, held = _drop_old(connection, layout, busy, fence)
    return Maintained(made, dropped, held, busy, layout.default_used)


def _ddl(connection: Connection, name: str, **parts: sql.Composable) -> None:
    connection.execute(sql.SQL(statement(f"ddl/{name}")).format(**parts))


@contextmanager
def _changing(connection: Connection, fence: Fence) -> Iterator[bool]:
    """Begin a transaction with the lock on changes of partitions; yield whether it was free."""
    executor = ConnectionExecutor(connection)
    with connection.transaction():
        fence(executor)
        ((locked, _timeout),) = executor.fetch("event_lock", {"lock_timeout": LOCK_TIMEOUT_MS})
        yield bool(locked)


def _make_ahead(connection: Connection, layout: Layout, busy: list[str], fence: Fence) -> list[str]:
    rows = conf.settings.EVENT_PARTITION_ROWS
    ahead = conf.settings.EVENT_PARTITIONS_AHEAD
    schema = layout.partitions[0].schema if layout.partitions else None
    end = max((partition.high for partition in layout.partitions), default=0)
    if end <= layout.head:
        # Numbers have outrun the partitions: their events are in the default one, and writers go on. The next partition
        # must begin behind every number that is drawn before it is there.
        end = (layout.head // rows + 1) * rows + (rows if layout.head % rows > rows * 0.9 else 0)
    missing = ahead - sum(1 for partition in layout.partitions if partition.low > layout.head)
    made: list[str] = []
    for _ in range(missing):
        name = f"leasequeue_leaseevent_p{end}"
        partition = sql.Identifier(schema, name) if schema else sql.Identifier(name)
        try:
            with _changing(connection, fence) as free:
                if not free:
                    return made
                _ddl(connection, "event_partition_make", partition=partition)
                low, high = sql.Literal(end), sql.Literal(end + rows)
                _ddl(connection, "event_partition_attach", partition=partition, low=low, high=high)
                _follow_grants(connection, name)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation, psycopg.errors.DuplicateTable) as error:
            logger.info("Partition %s of the lease log is tried again later: %s", name, error)
            busy.append(name)
            return made
        made.append(name)
        end += rows
    return made


def _share(connection: Connection, busy: list[str], fence: Fence) -> None:
    """Give partitions that are there the rights that the log has by now."""
    try:
        with _changing(connection, fence) as free:
            if free:
                _follow_grants(connection)
    except (psycopg.errors.InternalError_, psycopg.errors.UndefinedObject) as error:
        # Somebody grants, or drops a role, at the same time.
        logger.info("The rights on partitions of the lease log are set later: %s", error)
        busy.append("grants")


def _follow_grants(connection: Connection, only: str | None = None) -> None:
    for schema, partition, privilege, role, give in ConnectionExecutor(connection).fetch("event_grants", {}):
        if only in (None, partition):
            _ddl(
                connection,
                "event_partition_grant" if give else "event_partition_revoke",
                privilege=sql.SQL(privilege),
                partition=sql.Identifier(schema, partition),
                grantee=sql.SQL("PUBLIC") if role is None else sql.Identifier(role),
            )


def _drop_old(
    connection: Connection, layout: Layout, busy: list[str], fence: Fence
) -> tuple[list[str], dict[str, str]]:
    dropped: list[str] = []
    held: dict[str, str] = {}
    for schema, name in ConnectionExecutor(connection).fetch("event_leftovers", {"mark": MARK}):
        with suppress(psycopg.errors.UndefinedTable):
            _ddl(connection, "event_partition_drop", partition=sql.Identifier(schema, name))
            dropped.append(name)
    days = conf.settings.EVENT_RETENTION_DAYS
    if days <= 0:
        return dropped, held
    needs = sorted(_needs(connection).items())

    def goes(partition: Partition | None) -> bool:
        name = "default" if partition is None else partition.name
        if _needed(connection, days, partition, None)[0]:
            return False
        reader = next((reads for reads, txid in needs if _needed(connection, 0, partition, txid)[1]), None)
        if reader is not None:
            held[name] = reader
            return False
        if gone := _drop(connection, days, partition, busy, fence):
            dropped.append(name)
        return gone

    for partition in layout.partitions:
        if partition.high > layout.head + 1 or not goes(partition):
            break
    if layout.default_used:
        goes(None)
    return dropped, held


def _needs(connection: Connection) -> dict[str, int]:
    """Return what each reader needs: its lowest transaction id."""
    needs: dict[str, int] = {}
    for name, lowest in list(_holds.items()):
        try:
            found = lowest(connection)
        except Exception as error:
            if passes(error):
                raise
            logger.exception("Reader %s of the lease log cannot say what it needs: everything is kept", name)
            found = 0
        if found is not None:
            needs[name] = found
    return needs


def _needed(connection: Connection, days: float, partition: Partition | None, txid: int | None) -> tuple[bool, bool]:
    """Return whether retention keeps events of a partition (``None``: the default one), and whether a reader does."""
    low, high = (partition.low, partition.high) if partition else (None, None)
    params = {"low": low, "high": high, "days": days, "txid": txid}
    ((young, needed),) = ConnectionExecutor(connection).fetch("event_needed", params)
    return young, needed


def _drop(connection: Connection, days: float, partition: Partition | None, busy: list[str], fence: Fence) -> bool:
    """Drop a partition, or truncate the default one (``None``); return False if its lock is not free yet."""
    if partition is None:
        name, lock, told = "default", "event_default_lock", "The default partition of the lease log is emptied later"
        table = sql.Identifier("leasequeue_leaseevent_default")
    else:
        name, lock = partition.name, "event_partition_lock"
        told = f"Partition {name} of the lease log is dropped later"
        table = sql.Identifier(partition.schema, name)
    try:
        with _changing(connection, fence) as free:
            if not free:
                return False
            _ddl(connection, lock, partition=table)
            # A transaction that drew its number long ago may have written meanwhile: look again when nobody can.
            if _needed(connection, days, partition, None)[0]:
                return False
            _note_dropped(connection, table, 0 if partition is None else partition.high)
            if partition is None:
                _ddl(connection, "event_default_truncate")
            else:
                _ddl(connection, "event_partition_detach", partition=table)
                _ddl(connection, "event_partition_mark", partition=table, mark=sql.Literal(MARK))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        logger.info("%s: %s", told, error)
        busy.append(name)
        return False
    if partition is not None:
        _ddl(connection, "event_partition_drop", partition=table)
    return True


def _note_dropped(connection: Connection, table: sql.Identifier, below: int) -> None:
    """Note the last event of a partition that goes: readers that had not read up to it have lost events."""
    last = connection.execute(sql.SQL(statement("ddl/event_partition_last")).format(partition=table)).fetchone()
    ((note, _begin),) = ConnectionExecutor(connection).fetch("lake/dropped", {})
    told = DroppedEvents.read(note).and_also(None if last is None else (last[0], last[1]), below)
    _ddl(connection, "event_log_note", note=sql.Literal(told.note()))
