"""Atomic parts of a run: one transaction in the database of the job, which refuses writes to others."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import DatabaseError, connections, transaction
from psycopg.pq import TransactionStatus
from psycopg.sql import Composable

from .. import conf
from ..engine.outage import read_only
from ..exceptions import InvalidOption, TransactionLeftOpen

if TYPE_CHECKING:
    from .control import JobControl

_READS = frozenset({"select", "with", "values", "table", "show", "set", "explain", "declare", "fetch", "close"})
#: What passes as it is, where it is the whole text. PostgreSQL takes SET TRANSACTION ISOLATION LEVEL in no part of a
#: transaction.
_PASSING = frozenset({"savepoint", "release", "rollback", "set"})
#: Where words and semicolons are none: literals, quoted names, and the beginning of a comment.
_QUOTED = r"""--[^\n]*|/\*|\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$((?:[^\W\d]\w*)?)\$.*?\$\1\$"""
_FIRST = re.compile(rf"{_QUOTED}|;|\w+|[^\s(]", re.DOTALL)
_NEXT = re.compile(rf"{_QUOTED}|;", re.DOTALL)
_COMMENT = re.compile(r"/\*|\*/")
_CHANGES = re.compile(r"\b(insert|update|delete|merge|replace)\b", re.IGNORECASE)


def first_words(text: str, *, nested: bool = True) -> list[str]:
    """Return the first words of a text's statements in lower case; ``nested``: comments nest, as PostgreSQL's do."""
    words: list[str] = []
    at, begins = 0, True
    while found := (_FIRST if begins else _NEXT).search(text, at):
        piece, at = found[0], found.end()
        if piece == "/*":
            depth = 1
            while depth and (mark := _COMMENT.search(text, at)):
                at = mark.end()
                depth = 0 if mark[0] == "*/" and not nested else depth + (1 if mark[0] == "/*" else -1)
        elif piece == ";":
            begins = True
        elif begins and not piece.startswith("--"):
            words.append(piece.lower())
            begins = False
    return words


#: A mark that holds until the transaction ends.
_MARK = "SET LOCAL leasequeue.transaction = '{}'"
_MARK_INSIDE = (
    "SELECT set_config('leasequeue.transaction',"
    " COALESCE(NULLIF(current_setting('leasequeue.transaction', true), ''), '{}'), true)"
)


class WriteGuard:
    """An execute wrapper that refuses writes, ``says`` why of an alias, and lets reads pass.

    PostgreSQL decides what a write is: a function may write, and so may ``WITH``. Rows are not locked either.
    """

    def __init__(self, says: Callable[[str], str]) -> None:
        self._says = says
        self._in_own = False

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        connection = context["connection"]
        if isinstance(sql, Composable):
            text = sql.as_string(connection.connection)
        else:
            text = sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
        words = first_words(text, nested=connection.vendor == "postgresql")
        if self._in_own or (len(words) == 1 and words[0] in _PASSING):
            return execute(sql, params, many, context)
        if not words or not _READS.issuperset(words):
            raise self.refusal(connection.alias)
        if connection.vendor != "postgresql":
            if "with" in words and _CHANGES.search(text):
                raise self.refusal(connection.alias)
            return execute(sql, params, many, context)
        try:
            with self._reading_only(connection):
                return execute(sql, params, many, context)
        except DatabaseError as error:
            if read_only(error):
                raise self.refusal(connection.alias) from error
            raise

    def refusal(self, alias: str) -> InvalidOption:
        return InvalidOption(self._says(alias))

    @contextmanager
    def _reading_only(self, connection: Any) -> Iterator[None]:
        """Run one statement in a transaction, or a part of the one that is open, in which PostgreSQL refuses writes."""
        self._in_own = True
        try:
            with transaction.atomic(using=connection.alias):
                with connection.cursor() as cursor:
                    # A query: PostgreSQL takes no READ WRITE behind it.
                    cursor.execute("SELECT set_config('transaction_read_only', 'on', true)")
                yield
        finally:
            self._in_own = False


@contextmanager
def refusing_writes(says: Callable[[str], str], but: str | None = None) -> Iterator[None]:
    """Refuse writes to all databases ``but`` one, on this thread's connections of Django."""
    guard = WriteGuard(says)
    with ExitStack() as stack:
        for connection in connections.all():
            if connection.alias != but:
                stack.enter_context(connection.execute_wrapper(guard))
        yield


def check_writable(using: str) -> None:
    """Refuse a write that would wait for the end of a step around it, which may not write to this alias."""
    for wrapper in connections[using].execute_wrappers:
        if isinstance(wrapper, WriteGuard):
            raise wrapper.refusal(using)


def check_ended(using: str) -> None:
    """Refuse to go on where a statement was left running, which psycopg would await, or the connection was closed."""
    wrapper = connections[using]
    raw: Any = wrapper.connection
    if wrapper.closed_in_transaction and wrapper.in_atomic_block:
        raise InvalidOption(
            f"the connection to {using!r} was closed inside of a transaction, which is rolled back by that: close no"
            " connection in an atomic step or task."
        )
    if raw is not None and raw.pgconn.transaction_status == TransactionStatus.ACTIVE:
        raw.close()
        wrapper.close()  # and so no ROLLBACK waits either
        raise TransactionLeftOpen(f"a COPY or a statement that still runs on {using!r}")


class OneTransaction:
    """A transaction, or a part of one, that is whole: SQL that runs in it has not ended it."""

    def __init__(self, using: str, what: str) -> None:
        self.using, self._what = using, what

    @contextmanager
    def begun(self) -> Iterator[None]:
        connection = connections[self.using]
        # Outside of others no query: behind one PostgreSQL sets no isolation level. A block inside keeps the mark.
        sets = _MARK_INSIDE if connection.in_atomic_block else _MARK
        with transaction.atomic(using=self.using):
            with connection.cursor() as cursor:
                cursor.execute(sets.format(mark := secrets.token_hex(8)))
                self._mark = cursor.fetchone()[0] if cursor.description else mark
            yield

    def read_mark(self) -> str | None:
        """Return the mark of the transaction that is open now."""
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT current_setting('leasequeue.transaction', true)")
            mark: str | None = cursor.fetchone()[0]
        return mark

    def check(self, mark: str | None) -> None:
        """Refuse to go on if the transaction that is open now has another mark."""
        if mark != self._mark:
            raise InvalidOption(
                f"{self._what} ended its transaction with SQL of its own (COMMIT, ROLLBACK, RESET ALL): what it did"
                " before that is committed or rolled back by itself, and it is not done. Take that SQL out."
            )


class AtomicStep:
    """An atomic step that is a block: ``with current().atomic_step(name) as step``."""

    def __init__(self, name: str, block: Callable[[AtomicStep], AbstractContextManager[None]]) -> None:
        self._name, self._block = name, block
        #: Whether an earlier delivery has done it: then the block can read ``value`` and may not write.
        self.done = False
        #: The value of the step, JSON: the block sets it.
        self.value: Any = None

    def __enter__(self) -> AtomicStep:
        with suppress(RuntimeError):  # a thread has no loop
            asyncio.get_running_loop()
            raise self._refused()
        self._running = self._block(self)
        self._running.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._running.__exit__(*error)

    async def __aenter__(self) -> NoReturn:
        raise self._refused()

    async def __aexit__(self, *error: object) -> None: ...

    def _refused(self) -> InvalidOption:
        return InvalidOption(
            f"the atomic step {self._name!r} is a block in a coroutine, but Django's transactions are sync: write"
            f" await current().astep({self._name!r}, function, atomic=True)."
        )


def database_of(control: JobControl) -> str:
    """Return the alias of the database of a job, in which its atomic parts run."""
    return control.using or conf.settings.DATABASE


@contextmanager
def atomic_run(control: JobControl, what: str) -> Iterator[OneTransaction]:
    """Run the block in one transaction of the job's database, which it yields; refuse writes to other databases."""
    whole = OneTransaction(using := database_of(control), what)

    def says(alias: str) -> str:
        return (
            f"{what} writes to the database {alias!r} or locks rows there, and its job is in {using!r}: that is not one"
            " transaction. Make it a plain step that may run again, or keep the jobs beside that data (ROUTER)."
        )

    with whole.begun(), refusing_writes(says, but=using):
        yield whole
