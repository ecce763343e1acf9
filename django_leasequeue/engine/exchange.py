"""Statements sent over a psycopg connection without its cursors, which cost more than all else a client does for one.

Values go as text, and the casts of the statements say their types; rows come as binary, with times in UTC. A statement
is prepared once it is sent often, under a name made of its text. The connection waits as it always does: Ctrl-C
cancels; notifications, gevent and the patience of our own connections work.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import generators, pq
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import error_from_result

from .operation import Rows

_ANY = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
_BINARY = pq.Format.BINARY
_ROWS, _NONE = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK
_NO_PIPELINE, _IDLE = pq.PipelineStatus.OFF, pq.TransactionStatus.IDLE
#: The name is taken (by the same statement: behind a pooler); there is none of that name (``DEALLOCATE ALL``); a
#: migration has changed what the statement returns.
_TAKEN, _MISSING, _CHANGED = "42P05", "26000", "0A000"
#: How often a statement is sent before it is prepared, where none may be: a pooler gives others the server's process.
NEVER = 2**62


class Command(NamedTuple):
    """A statement with its parameters as ``$1``, and their values."""

    text: bytes
    values: Sequence[Any]


class _Known:
    """What is known of a connection: how often a statement was sent, which ones are prepared, how rows are read."""

    connection = None  # one that knows it would be part of a circle

    def __init__(self, connection: _ANY) -> None:
        self.adapters: AdaptersMap = connection.adapters
        self.sent: Counter[bytes] = Counter()
        self.prepared: set[bytes] = set()
        self.rows = Transformer(self)

    def read(self, command: Command, result: pq.abc.PGresult) -> Rows:
        """Return the rows of an answer; of a statement that returns none, an empty one for each that it changed."""
        if result.status == _ROWS:
            self.rows.set_pgresult(result)
            return self.rows.load_rows(0, result.ntuples, tuple)
        if result.status == _NONE:
            return [()] * (result.command_tuples or 0)
        error = error_from_result(result)
        if error.sqlstate in (_MISSING, _CHANGED):
            self.prepared.discard(command.text)
            self.sent[command.text] = 0 if error.sqlstate == _MISSING else -NEVER
        raise error


def ready(connection: _ANY) -> bool:
    """Return whether a statement can be sent now, beside what psycopg does: transactions, pipelines, its own names."""
    pgconn = connection.pgconn
    return (
        connection.prepare_threshold is None
        and pgconn.pipeline_status == _NO_PIPELINE
        and (connection.autocommit or pgconn.transaction_status != _IDLE)
        and pgconn.parameter_status(b"client_encoding") == b"UTF8"
    )


def fetch(connection: psycopg.Connection[Any], commands: Sequence[Command], which: int, often: int) -> Rows:
    """Send statements in one go, and return the rows of one of them.

    Args:
        connection: one that is ``ready``.
        commands: outside of a transaction several are one.
        which: the place of the one whose rows count.
        often: how many times a statement is sent before it is prepared.
    """
    with connection.lock:
        known = _known(connection)
        idle = connection.pgconn.transaction_status == _IDLE
        try:
            return connection.wait(_exchange(connection.pgconn, known, commands, which, often))
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported):
            if not idle:
                raise
            # Nothing is done: they are sent anew, not prepared.
            return connection.wait(_exchange(connection.pgconn, known, commands, which, often or 1))


async def afetch(connection: psycopg.AsyncConnection[Any], commands: Sequence[Command], which: int, often: int) -> Rows:
    """See ``fetch``."""
    async with connection.lock:
        known = _known(connection)
        idle = connection.pgconn.transaction_status == _IDLE
        try:
            return await connection.wait(_exchange(connection.pgconn, known, commands, which, often))
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported):
            if not idle:
                raise
            return await connection.wait(_exchange(connection.pgconn, known, commands, which, often or 1))


def _known(connection: _ANY) -> _Known:
    found: _Known | None = connection.__dict__.get("leasequeue_known")
    if found is None:
        found = connection.__dict__["leasequeue_known"] = _Known(connection)
    return found


def _exchange(
    pgconn: pq.abc.PGconn, known: _Known, commands: Sequence[Command], which: int, often: int
) -> Generator[Any, Any, Rows]:
    data = [_encoded(command.values) for command in commands]
    for command in commands:
        if command.text not in known.prepared and known.sent[command.text] >= often:
            pgconn.send_prepare(_name(command.text), command.text)
            result, *_ = yield from generators.execute(pgconn)
            if result.status != _NONE and (error := error_from_result(result)).sqlstate != _TAKEN:
                raise error
            known.prepared.add(command.text)
    if len(commands) == 1:
        _send(pgconn, known, commands[0], *data[0])
        # More than one where the server ends: the first one says why.
        result, *_ = yield from generators.execute(pgconn)
        return known.read(commands[0], result)
    pgconn.enter_pipeline_mode()
    try:
        for command, (values, formats) in zip(commands, data, strict=True):
            _send(pgconn, known, command, values, formats)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        answers = []
        for _ in commands:
            answers += yield from generators.fetch_many(pgconn)
        yield from generators.fetch_many(pgconn)  # the end of the pipeline
    finally:
        # In vain where it was broken off: the connection is closed, or the error says more.
        with suppress(psycopg.OperationalError):
            pgconn.exit_pipeline_mode()
    return list(map(known.read, commands, answers))[which]


def _send(
    pgconn: pq.abc.PGconn, known: _Known, command: Command, values: list[bytes | None], formats: list[int] | None
) -> None:
    if command.text in known.prepared:
        pgconn.send_query_prepared(_name(command.text), values, formats, _BINARY)
    else:
        known.sent[command.text] += 1
        pgconn.send_query_params(command.text, values, None, formats, _BINARY)


@lru_cache(maxsize=1_000)
def _name(text: bytes) -> bytes:
    return b"leasequeue_" + hashlib.sha256(text).hexdigest()[:32].encode()


def _text(value: str) -> bytes:
    data = str.encode(value)
    if b"\0" in data:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return data


#: By type; bytes go as they are.
_WAYS: dict[type, Callable[[Any], bytes]] = {
    str: _text,
    int: lambda value: b"%d" % value,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: repr(value).encode(),
    datetime: lambda value: str(value).encode(),
    UUID: lambda value: str(value).encode(),
    bytes: bytes,
}


def _way(value: Any) -> Callable[[Any], bytes]:
    """Return how a value is sent whose type is derived from one that is known (an enum, a text safe in HTML)."""
    for base, way in _WAYS.items():
        if isinstance(value, base):
            return way
    raise TypeError(f"a statement takes no parameter of the type {type(value).__name__}")


def _encoded(values: Sequence[Any]) -> tuple[list[bytes | None], list[int] | None]:
    data = [None if value is None else (_WAYS.get(type(value)) or _way(value))(value) for value in values]
    formats = [int(type(value) is bytes) for value in values] if bytes in map(type, values) else None
    return data, formats
