"""An engine operation: a generator that yields statements, so that sync and async callers share one implementation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from ..signals import ENGINE_SIGNALS

T = TypeVar("T")
P = ParamSpec("P")

Rows = list[tuple[Any, ...]]
Step = tuple[str, Mapping[str, Any]]
#: What the body of an operation is: it yields (name of a statement, parameters) and gets the rows.
Steps = Generator[Step, Rows, T]

#: Steps that are more than statements have a colon in their names: the rest of the operation in one transaction; the
#: text of a COPY.
BEGIN = "begin:"
COPY = "copy:"
#: Among the parameters of a statement: a function that the executor may call while it waits. It raises nothing.
MEANWHILE = "meanwhile:"
#: A statement that stays done if the transaction is rolled back: ``name`` and ``params`` of it. A call that may block
#: (``call``, which raises nothing): its value is the only column of the only row.
APART = "apart:"
BLOCKING = "blocking:"
#: A step whose name begins so announces a signal: the executor sends it when the operation is over.
SIGNAL = "signal:"


class Operation(partial[Steps[T]]):
    """A piece of work for the database, not yet run; another operation runs it by ``yield from``.

    Give it to ``engine.run(operation, using=alias)``, ``await engine.arun(...)`` or an executor's ``run``. Every
    statement of an operation leaves the tables right by itself, or the operation begins a transaction; inside the
    caller's ``atomic`` block it becomes part of it.
    """

    def steps(self) -> Steps[T]:
        """Begin it, for another operation's ``yield from``."""
        return self()

    __iter__ = steps


#: An operation, or the steps of one that have not begun.
Work = Operation[T] | Steps[T]


def only(rows: Rows) -> Any:
    """Return the only column of the only row, ``None`` if there is no row."""
    return next((value for (value,) in rows), None)


def operation(body: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
    """Turn a generator function into one that returns an ``Operation``: its body begins when that is run."""

    @wraps(body)
    def make(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        return Operation(body, *args, **kwargs)

    return make


def announce(signal: str, **info: Any) -> Steps[None]:
    """Steps that announce a signal; none without a receiver."""
    if ENGINE_SIGNALS[signal].receivers:
        yield SIGNAL + signal, info


@operation
def steady(inner: Operation[T], *, bitmaps: bool = False) -> Steps[T]:
    """Run an operation that only reads by indexes; with ``bitmaps`` by BRIN or GIN ones too (the lease log, tags)."""
    # Our own connections are set up so; a host's planner may trust a limit and read a table from its beginning.
    yield BEGIN, {}
    before = yield "plans", {"seqscan": "off", "bitmapscan": "on" if bitmaps else "off", "jit": "off"}
    value = yield from inner
    seqscan, bitmapscan, jit, *_ = before[0]
    yield "plans", {"seqscan": seqscan, "bitmapscan": bitmapscan, "jit": jit}
    return value
