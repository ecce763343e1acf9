"""What a job of a workflow takes from those before it: read when it starts, by reference."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import engine
from ..engine import Input, codec
from ..engine.large import reading
from ..engine.operation import Steps, operation
from ..engine.queues import routing
from ..enums import MemberState
from ..exceptions import InvalidOption, LargeStorageError, PayloadAway
from .context import running
from .exceptions import FailForGood
from .signature import Ends

_RESULT = reading.Columns("result_json", None)


class Outcome(NamedTuple):
    """How a job of a workflow ended: what a step with ``allow_failures`` takes of each that it comes after.

    ``ok``: whether it succeeded, and ``value`` is what it returned. Else ``error_type`` is the path of the exception's
    class and ``error`` its text; both are ``None`` if it was cancelled. ``task_id`` is that of its task's result.
    """

    ok: bool
    value: Any
    error_type: str | None
    error: str | None
    task_id: str | None


def database_of(backend: Any, queue: str) -> str:
    """Return the alias of the database of the running job of a queue."""
    control = running.get()
    return (control.using if control is not None else None) or str(
        backend.config.database or routing.alias_of(backend.config.project, queue)
    )


def marker(after: Ends) -> dict[str, bool]:
    """Return what a job's payload says of the return values that it takes."""
    return {"many": after.many, "failed": after.tolerant}


@operation
def read(seq: int) -> Steps[list[Input]]:
    """Read how the parents of a job ended, with large results from their storage.

    Raises:
        PayloadAway: that storage is away.
        LargePayloadLost: a result is gone there.
    """
    rows = yield from engine.inputs(seq).steps()
    try:
        return (yield from reading.steps(rows, _RESULT))
    except LargeStorageError as error:
        raise PayloadAway(str(error), error.cause) from error


def first_argument(rows: list[Input], marked: Any) -> Any:
    """Return the first argument of a job: its parent's return value, or the list of those of all.

    Args:
        rows: its parents.
        marked: what its payload says, see ``marker``.

    Raises:
        FailForGood: a value is not there any more.
        InvalidOption: the payload is not that of a task in a workflow.
    """
    if not isinstance(marked, dict) or marked.keys() != {"many", "failed"}:
        raise InvalidOption(f'"inputs" of a payload are written by workflows only; they are {marked!r:.200}.')
    if not rows or not (marked["many"] or len(rows) == 1):
        raise FailForGood("The jobs before this one are not known: it is not in its workflow any more.")
    values = [_value(row, allow_failures=marked["failed"]) for row in rows]
    return values if marked["many"] else values[0]


def _value(row: Input, *, allow_failures: bool) -> Any:
    if row.completed:
        value = None if row.result_json is None else codec.loads(row.result_json)
        return Outcome(True, value, None, None, row.key) if allow_failures else value
    if allow_failures and row.member != MemberState.COMPLETED:
        return Outcome(False, None, row.error_type, row.error, row.key)
    raise FailForGood(
        f"The result of job {row.seq}, which this one takes, is not there any more: it has expired (result_ttl_ms), or"
        " the job was removed."
    )
