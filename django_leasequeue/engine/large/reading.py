"""Reading large payloads and results back: what holds references is given with what they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...exceptions import LargePayloadLost, LeaseQueueError, PayloadTooLarge
from ..operation import BLOCKING, Steps
from . import store
from .store import MARK, Reference, StoredPart, is_reference, parse

#: Bytes of the large payloads that one call returns, where it cannot return fewer rows.
MAX_LOADED_BYTES = 268_435_456


#: A named tuple with columns of payloads.
Row = tuple[Any, ...]
R = TypeVar("R", bound=Row)


class Columns(NamedTuple):
    """The names of a row's columns for the JSON and the bytes of a payload or result (``None``: without bytes)."""

    data: str = "data_json"
    body: str | None = "body"


PAYLOAD, ONLY_DATA, RESULT = Columns(), Columns(body=None), Columns("result_json", "result_body")


def size_of(row: Row, columns: Columns = PAYLOAD) -> int:
    """Return the bytes of a row that stand elsewhere."""
    text = getattr(row, columns.data)
    return parse(text).size if is_reference(text) else 0


def any_large(rows: Iterable[Row], columns: Columns = PAYLOAD) -> bool:
    """Return whether a row holds a reference."""
    name = columns.data
    for row in rows:  # a thousand rows of a claim: no call that can be spared
        text = getattr(row, name)
        if text is not None and text.startswith(MARK):
            return True
    return False


def fitting(rows: Sequence[Row], limit: int, columns: Columns = PAYLOAD) -> int:
    """Return how many rows, from the first on, have at most ``limit`` bytes elsewhere; the first always fits."""
    total = 0
    for number, row in enumerate(rows):
        total += size_of(row, columns)
        if number and total > limit:
            return number
    return len(rows)


def try_steps(rows: Sequence[R], columns: Columns = PAYLOAD) -> Steps[list[R | LeaseQueueError]]:
    """Steps that return rows with their content, or why it cannot be had."""
    references = {
        number: parse(text) for number, row in enumerate(rows) if is_reference(text := getattr(row, columns.data))
    }
    if not references:
        return list(rows)
    wanted = [part for reference in references.values() for part in _wanted(reference, columns)]
    ((contents,),) = yield BLOCKING, {"call": partial(store.read, wanted)}
    found = dict(zip((part.id for part in wanted), contents, strict=True))
    return [
        row if (reference := references.get(number)) is None else _filled(row, reference, found, columns)
        for number, row in enumerate(rows)
    ]


def steps(rows: Sequence[R], columns: Columns = PAYLOAD) -> Steps[list[R]]:
    """Steps that return rows with their content."""
    if not any_large(rows, columns):
        return list(rows)
    if sum(size_of(row, columns) for row in rows) > MAX_LOADED_BYTES:
        raise PayloadTooLarge(
            f"The large payloads of these {len(rows)} jobs have more than {MAX_LOADED_BYTES} bytes together: read fewer"
            " at once."
        )
    loaded: list[R] = []
    for row, found in zip(rows, (yield from try_steps(rows, columns)), strict=True):
        if isinstance(found, LargePayloadLost):
            raise LargePayloadLost(f"Job {getattr(row, 'seq', '')}: {found}") from found
        if isinstance(found, LeaseQueueError):
            raise found
        loaded.append(found)
    return loaded


def lenient_steps(rows: Sequence[R], limit: int, columns: Columns) -> Steps[list[R]]:
    """Steps that return what ``page_steps`` does; data that is lost is replaced by ``{"$lost": why}``: for people."""
    loaded: list[R] = []
    some = rows[: fitting(rows, limit, columns)] if any_large(rows, columns) else rows
    for row, found in zip(some, (yield from try_steps(some, columns)), strict=True):
        if isinstance(found, LargePayloadLost):
            loaded.append(_with(row, {columns.data: json.dumps({"$lost": str(found)})}))
        elif isinstance(found, LeaseQueueError):
            raise found
        else:
            loaded.append(found)
    return loaded


def page_steps(rows: Sequence[R], limit: int, columns: Columns = PAYLOAD) -> Steps[list[R]]:
    """Steps that return the first rows with their content, at most ``limit`` bytes of it but for the first row."""
    if not any_large(rows, columns):
        return list(rows)
    return (yield from steps(rows[: fitting(rows, limit, columns)], columns))


def load(row: R) -> R:
    """Return a row with its payload, read in this thread."""
    reference = parse(getattr(row, PAYLOAD.data))
    wanted = _wanted(reference, PAYLOAD)
    found = dict(zip((part.id for part in wanted), store.read(wanted), strict=True))
    filled = _filled(row, reference, found, PAYLOAD)
    if isinstance(filled, LeaseQueueError):
        raise filled
    return filled


def _wanted(reference: Reference, columns: Columns) -> list[StoredPart]:
    return [part for part in reference.parts if columns.body or part is not reference.body]


def _filled(
    row: R, reference: Reference, found: dict[int, bytes | LeaseQueueError], columns: Columns
) -> R | LeaseQueueError:
    values: dict[str, Any] = {columns.data: reference.inline}
    for name, part in ((columns.data, reference.data), (columns.body, reference.body)):
        if part is None or name is None:
            continue
        content = found[part.id]
        if isinstance(content, LeaseQueueError):
            return content
        values[name] = content.decode() if name == columns.data else content
    return _with(row, values)


def _with(row: R, values: dict[str, Any]) -> R:
    changed: Any = row
    made: R = changed._replace(**values)
    return made
