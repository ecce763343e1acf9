"""Statements sent over a psycopg connection without its cursors: 24 in place of 61 us of the client's CPU for one.

Values go as text, and the casts of the statements say their types; rows come as binary, with times in UTC. A statement
is prepared once it is sent often, under a name made of its text. The connection waits as it always does: Ctrl-C
cancels; notifications, gevent and the patience of our own connections work.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap

from .operation import Rows

logger = logging.getLogger("django_leasequeue.engine")

#: The newest psycopg that the tests have run with. It is raised by hand, when ``.ci/run`` has passed with a newer one.
NEWEST = (3, 3)
_NOT_IN_PSYCOPG = ""

# Undocumented names of psycopg: any release may rename them. Where one does not fit, statements go by cursors.
try:
    from psycopg.adapt import Transformer
    from psycopg.errors import error_from_result
    from psycopg.generators import execute, fetch_many
    from psycopg.generators import send as send_queued
except ImportError as error:
    Transformer = error_from_result = execute = fetch_many = send_queued = None  # type: ignore[assignment]
    _NOT_IN_PSYCOPG = str(error)

#: What the exchange calls of libpq's wrapper.
_OF_PGCONN = (
    "send_prepare",
    "send_query_prepared",
    "send_query_params",
    "enter_pipeline_mode",
    "exit_pipeline_mode",
    "pipeline_sync",
    "parameter_status",
    "transaction_status",
    "pipeline_status",
)


class _Context:
    """An adaptation context without a connection."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def misfit(version: str = psycopg.__version__) -> str | None:
    """Return why the exchange cannot use the installed psycopg; ``None`` where it can.

    Names, and arguments of calls, are tried on a connection that was never made: no server is asked.
    """
    if tuple(map(int, re.findall(r"\d+", version)[:2])) > NEWEST:
        return f"psycopg {version} is newer than {'.'.join(map(str, NEWEST))}, the newest that was tested"
    if _NOT_IN_PSYCOPG:
        return f"psycopg {version}: {_NOT_IN_PSYCOPG}"
    try:
        _rehearse()
    except Exception as error:  # noqa: BLE001  (whatever another release raises)
        return f"psycopg {version}: {type(error).__name__}: {error}"
    return None


def _rehearse() -> None:
    pgconn = pq.PGconn.connect_start(b"=")  # no parameters of a connection: it is bad from the start
    for name in _OF_PGCONN:
        getattr(pq.PGconn, name)
    waiting: Callable[..., Generator[Any, Any, Any]]
    for waiting in (execute, fetch_many, send_queued):
        waiting(pgconn).close()
    result = pgconn.make_empty_result(pq.ExecStatus.TUPLES_OK)
    reader = Transformer(_Context(psycopg.adapters))
    reader.set_pgresult(result)
    if reader.load_rows(0, result.ntuples, tuple) != []:
        raise TypeError("Transformer.load_rows() returns no list of rows")
    error = error_from_result(pgconn.make_empty_result(pq.ExecStatus.FATAL_ERROR))
    if not isinstance(error, psycopg.Error):
        raise TypeError("error_from_result() returns no error")
    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        signature(kind.wait).bind(None, None)
        if not hasattr(kind(pgconn), "lock"):
            raise AttributeError(f"{kind.__name__} has no lock")


@lru_cache(maxsize=1)
def fits() -> bool:
    """Return whether the exchange can use the installed psycopg; the first call in a process logs it if not."""
    found = misfit()
    if found is not None:
        logger.warning("Statements go by psycopg's cursors, which takes more CPU: %s.", found)
    return found is None


_ANY = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
_BINARY = pq.Format.BINARY
_ROWS, _NONE, _SYNC = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC
_NO_PIPELINE, _IDLE = pq.PipelineStatus.OFF, pq.TransactionStatus.IDLE
#: The name is taken (by the same statement: behind a pooler); there is none of that name (``DEALLOCATE ALL``); a
#: migration has changed what the statement returns.
_TAKEN, _MISSING, _CHANGED = "42P05", "26000", "0A000"
#: How often a statement is sent before it is prepared, where none may be: a pooler gives others the server's process.
NEVER = 2**62


#: Whether statements go this way at all: ``LEASEQUEUE_EXCHANGE=off`` in the environment sends all by psycopg's cursors.
ENABLED = os.environ.get("LEASEQUEUE_EXCHANGE") != "off"


class Command(NamedTuple):
    """A statement with its parameters as ``$1``, and their values."""

    text: bytes
    values: Sequence[Any]


class _State:
    """State of a connection: how often each statement was sent, which ones are prepared, and the loaders of rows."""

    connection = None  # one that knows it would be part of a circle

    def __init__(self, connection: _ANY) -> None:
        self.adapters: AdaptersMap = connection.adapters
        self.sent: Counter[bytes] = Counter()
        self.prepared: set[bytes] = set()
        #: Prepared once, and gone or not: in a transaction they are sent without, as to find out might end it.
        self.doubted: set[bytes] = set()
        self.rows = Transformer(self)

    def read(self, command: Command, result: pq.abc.PGresult) -> Rows:
        """Return the rows of an answer; without result columns, one empty tuple per changed row."""
        if result.status == _ROWS:
            self.rows.set_pgresult(result)
            return self.rows.load_rows(0, result.ntuples, tuple)
        if result.status == _NONE:
            return [()] * (result.command_tuples or 0)
        error = error_from_result(result)
        if error.sqlstate == _MISSING:  # as all others may be: `DEALLOCATE ALL`, or another process of a pooler's
            self.doubted |= self.prepared
            self.prepared.clear()
            self.sent.clear()
        elif error.sqlstate == _CHANGED:
            self.prepared.discard(command.text)
            self.sent[command.text] = -NEVER
        raise error


def _state_of(connection: _ANY) -> _State | None:
    """Return the state of a connection, or ``None`` where psycopg has to send."""
    pgconn = connection.pgconn
    if (
        not ENABLED
        or connection.prepare_threshold is not None
        or pgconn.pipeline_status != _NO_PIPELINE
        or (not connection.autocommit and pgconn.transaction_status == _IDLE)
        or pgconn.parameter_status(b"client_encoding") != b"UTF8"
    ):
        return None
    found: _State | None = connection.__dict__.get("leasequeue_state")
    if found is None and fits():
        found = connection.__dict__["leasequeue_state"] = _State(connection)
    return found


def fetch(
    connection: psycopg.Connection[Any],
    commands: Sequence[Command],
    which: int = 0,
    prepare_after: int | None = None,
) -> Rows | None:
    """Send statements in one go, and return the rows of one of them; ``None`` where psycopg has to do it.

    It does where it is to begin a transaction, is in a pipeline, or prepares by itself (it would deallocate ours), and
    in a release that the exchange does not fit (``misfit``).

    Args:
        connection: in UTF-8.
        commands: outside of a transaction several are one.
        which: the place of the one whose rows count.
        prepare_after: how many times a statement is sent before it is prepared; ``None``: as the connection says.
    """
    if (state := _state_of(connection)) is None:
        return None
    prepare_after = getattr(connection, "prepare_after", NEVER) if prepare_after is None else prepare_after
    with connection.lock:
        return connection.wait(_exchange(connection.pgconn, state, commands, which, prepare_after))


async def afetch(connection: psycopg.AsyncConnection[Any], command: Command) -> Rows | None:
    """Send one statement; see ``fetch``."""
    if (state := _state_of(connection)) is None:
        return None
    prepare_after: int = getattr(connection, "prepare_after", NEVER)
    async with connection.lock:
        return await connection.wait(_exchange(connection.pgconn, state, [command], 0, prepare_after))


def _exchange(
    pgconn: pq.abc.PGconn,
    state: _State,
    commands: Sequence[Command],
    which: int,
    prepare_after: int,
) -> Generator[Any, Any, Rows]:
    idle = pgconn.transaction_status == _IDLE
    try:
        return (yield from _send(pgconn, state, commands, prepare_after))[which]
    except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported):
        if not idle:
            raise
        # Nothing is done: they are sent anew, not prepared.
        return (yield from _send(pgconn, state, commands, prepare_after or 1))[which]


def _send(
    pgconn: pq.abc.PGconn,
    state: _State,
    commands: Sequence[Command],
    prepare_after: int,
) -> Generator[Any, Any, list[Rows]]:
    sends = []
    idle = pgconn.transaction_status == _IDLE
    for text, values in commands:
        data = [None if value is None else (ENCODERS.get(type(value)) or encoder_for(value))(value) for value in values]
        formats, texts = None, data
        if not _TEXTUAL.issuperset(map(type, values)):
            formats = [int(isinstance(value, bytes)) for value in values]
            texts = [datum for datum, is_binary in zip(data, formats, strict=True) if not is_binary]
        if b"\0" in b"".join(filter(None, texts)):
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        if text not in state.prepared and state.sent[text] >= prepare_after and (idle or text not in state.doubted):
            state.sent[text] = -NEVER  # broken off here, it may be prepared or not
            pgconn.send_prepare(_name(text), text)
            result, *_ = yield from execute(pgconn)
            state.sent[text] = 0
            error = None if result.status == _NONE else error_from_result(result)
            if error is not None and error.sqlstate != _TAKEN:
                raise error
            state.prepared.add(text)
            state.doubted.discard(text)
            if error is not None and not idle:
                raise error  # the transaction has ended by it
        if text in state.prepared:
            sends.append(partial(pgconn.send_query_prepared, _name(text), data, formats, _BINARY))
        else:
            state.sent[text] += 1
            sends.append(partial(pgconn.send_query_params, text, data, None, formats, _BINARY))
    if len(sends) == 1:
        sends[0]()
        answer, *ends = yield from execute(pgconn)
        answers = [answer]
    else:
        answers, ends = yield from _send_pipeline(pgconn, sends)
    rows = list(map(state.read, commands, answers))
    for end in ends:  # of the commit, which follows the answers of statements that did what they were asked to do
        if end.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(end)
    return rows


def _send_pipeline(pgconn: pq.abc.PGconn, sends: Sequence[Callable[[], None]]) -> Generator[Any, Any, tuple[Any, Any]]:
    pgconn.enter_pipeline_mode()
    try:
        for send in sends:
            send()
        pgconn.pipeline_sync()
        yield from send_queued(pgconn)
        answers = []
        for _ in sends:
            answers += yield from fetch_many(pgconn)
        ends = yield from fetch_many(pgconn)
        if ends and ends[-1].status != _SYNC:
            ends += yield from fetch_many(pgconn)
    finally:
        # In vain where it was broken off: the connection is closed, or the error says more.
        with suppress(psycopg.OperationalError):
            pgconn.exit_pipeline_mode()
    return answers, ends


@lru_cache(maxsize=1_000)
def _name(text: bytes) -> bytes:
    return b"leasequeue_" + hashlib.sha256(text).hexdigest()[:32].encode()


#: Text form of a value, by its type; bytes go as they are.
ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: str.encode,
    int: b"%d".__mod__,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: repr(value).encode(),
    datetime: lambda value: str(value).encode(),
    UUID: lambda value: str(value).encode(),
    bytes: bytes,
}
#: Types that are sent as text.
_TEXTUAL = frozenset({*ENCODERS, type(None)} - {bytes})


def encoder_for(value: Any) -> Callable[[Any], bytes]:
    """Return the encoder of a value whose type derives from one of ``ENCODERS`` (an enum, a text safe in HTML)."""
    for base, encoder in ENCODERS.items():
        if isinstance(value, base):
            return encoder
    raise TypeError(f"a statement takes no parameter of the type {type(value).__name__}")
