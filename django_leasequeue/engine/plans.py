"""How the planner of a host's connection reads large tables."""

from __future__ import annotations

from typing import TypeVar

from .operation import BEGIN, Operation, Steps, operation

T = TypeVar("T")


@operation
def steady(inner: Operation[T], *, log: bool = False) -> Steps[T]:
    """Run an operation that only reads so that the planner walks indexes and never a large table, on any connection.

    Our own connections are set up so; a host's may trust a limit and read a table from its beginning.
    """
    yield BEGIN, {}
    before = yield "plans", {"seqscan": "off", "bitmapscan": "on" if log else "off", "jit": "off"}
    value = yield from inner.steps()
    seqscan, bitmapscan, jit, *_ = before[0]
    yield "plans", {"seqscan": seqscan, "bitmapscan": bitmapscan, "jit": jit}
    return value
