"""One snapshot for several tasks, so that totals over a changing table are those of one moment."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from ..exceptions import StorageError
from .database import Database

_CHANNEL = "leasequeue_lake_"


class Held(NamedTuple):
    """An exported snapshot and the channel on which tasks say that they are done with it."""

    name: str
    channel: str


def hold(database: Database, readers: int, seconds: int) -> Held:
    """Export a snapshot and hold it until every reader has read, or the time is over, whichever comes first.

    Runs in Spark's planning process on the driver. The server itself ends the holding session after the same time, so a
    killed driver never holds back vacuum for longer.
    """
    holder = database.connect(autocommit=False)
    holder.execute(
        sql.SQL("SET idle_in_transaction_session_timeout = {}").format(sql.Literal(f"{seconds + 5}s"))
    )  # fmt: skip
    holder.commit()
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    row = holder.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None
    held = Held(row[0], _CHANNEL + secrets.token_hex(8))
    listener = None
    with contextlib.suppress(psycopg.Error):
        listener = database.connect(read_only=False)
        listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(held.channel)))
    threading.Thread(target=_wait, args=(holder, listener, readers, seconds), daemon=True).start()
    return held


def _wait(
    holder: psycopg.Connection[Any], listener: psycopg.Connection[Any] | None, readers: int, seconds: int
) -> None:
    end = time.monotonic() + seconds
    try:
        if listener is None:  # a standby takes no LISTEN
            time.sleep(seconds)
            return
        while readers > 0 and (left := end - time.monotonic()) > 0:
            readers -= sum(1 for _ in listener.notifies(timeout=left, stop_after=1))
    except psycopg.Error:
        return
    finally:
        holder.close()
        if listener is not None:
            listener.close()


def adopt(connection: psycopg.Connection[Any], name: str) -> None:
    """See what the snapshot saw."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
    except psycopg.Error as error:
        raise StorageError(
            "The snapshot that this read was planned with is over. Plan the read again, give it longer (option"
            " snapshotSeconds) or read in one part (option numPartitions = 1).",
            error,
        ) from None


def report_read(connection: psycopg.Connection[Any], channel: str) -> None:
    """Say that one reader is done; a standby cannot."""
    with contextlib.suppress(psycopg.Error):
        connection.autocommit = True
        connection.execute("SELECT pg_notify(%s, '')", [channel])
