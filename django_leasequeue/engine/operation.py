"""An engine operation: a generator that yields statements, so that sync and async callers share one implementation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial, update_wrapper
from typing import Any, ParamSpec, TypeVar, cast

from ..signals import ENGINE_SIGNALS
from ..twins import Repeatable

T = TypeVar("T")
P = ParamSpec("P")

Rows = list[tuple[Any, ...]]
Step = tuple[str, Mapping[str, Any]]
#: The generator of an operation: it yields (name of a statement, parameters) and gets the rows.
Statements = Generator[Step, Rows, T]
#: Steps that are more than statements have a colon in their names: the rest of the operation in one transaction, or
#: what comes before ``END``; the text of a COPY.
BEGIN = "begin:"
END = "end:"
COPY = "copy:"
#: Marks the parameters of a statement that only reads: an operation whose transaction is undone may read again.
LOOK = "look:"
#: A statement in a transaction of its own, which stays done if the operation is rolled back: its ``name``, ``params``.
AUTONOMOUS = "autonomous:"
#: A call (``call``) that may block and raises nothing: its value is the only column of the only row.
BLOCKING = "blocking:"
#: Prefix of a step that announces a signal: the executor sends it when the operation is over.
SIGNAL = "signal:"


class Operation(Repeatable[T]):
    """A piece of work for the database, not yet run; another operation runs it by ``yield from``.

    Give it to ``engine.run(operation, using=alias)``, ``await engine.arun(...)`` or an executor's ``run``. Every
    statement of an operation leaves the tables right by itself, or the operation begins a transaction; inside the
    caller's ``atomic`` block it becomes part of it.
    """


#: An operation, or a generator of statements that has not begun.
Work = Repeatable[T] | Statements[T]


def only(rows: Rows) -> Any:
    """Return the only column of the only row, ``None`` if there is no row."""
    return next((value for (value,) in rows), None)


def operation(body: Callable[P, Statements[T]]) -> Callable[P, Operation[T]]:
    """Turn a generator function into one that returns an ``Operation``: its body begins when that is run."""
    return cast("Callable[P, Operation[T]]", update_wrapper(partial(Operation, body), body))


def announce(signal: str, **info: Any) -> Statements[None]:
    """Announce a signal, if it has a receiver."""
    if ENGINE_SIGNALS[signal].receivers:
        yield SIGNAL + signal, info


@operation
def steady(inner: Operation[T], *, bitmaps: bool = False) -> Statements[T]:
    """Run an operation that only reads by indexes; with ``bitmaps`` by BRIN or GIN ones too (the lease log, tags)."""
    # Our own connections are set up so; a host's planner may trust a limit and read a table from its beginning.
    yield BEGIN, {}
    before = yield "plans", {"seqscan": "off", "bitmapscan": "on" if bitmaps else "off", "jit": "off"}
    value = yield from inner
    seqscan, bitmapscan, jit, *_ = before[0]
    yield "plans", {"seqscan": seqscan, "bitmapscan": bitmapscan, "jit": jit}
    return value
