"""Rows of a DataFrame as lines of the stage table, each value checked as the engine checks it at the Python door.

It runs in Spark's tasks, which import no Django. What is refused names its row.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa

from ..exceptions import InvalidOption, PayloadTooLarge
from ..words import JOB_NUMBERS, JOB_TEXTS, MAX_YEAR

#: Columns with a meaning of their own -> the Spark types that they may have. All others become the job's data.
SPECIAL = {
    "queue": {"string"}, "key": {"string"}, "name": {"string"}, "tag": {"string"},
    "priority": {"int", "smallint", "tinyint", "bigint"}, "data": {"string"}, "body": {"binary"}, "meta": {"string"},
    "run_at": {"timestamp"}, "ttl_ms": {"bigint", "int"}, "result_ttl_ms": {"bigint", "int"},
    "max_deliveries": {"int"}, "reply_to": {"string"}, "source_seq": {"bigint"},
}  # fmt: skip
#: Bytes of texts, and bounds of numbers.
SHORT = {**JOB_TEXTS, "queue": 255}
BOUNDS = {**{name: JOB_NUMBERS[name] for name in JOB_NUMBERS if name in SPECIAL}, "source_seq": (0, 2**63 - 1)}
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
#: JSON text that begins so is the engine's reference to a large payload; no other has a space in front.
_REFERENCE = ' {"$large":'
#: Columns that together are a payload.
_PAYLOAD = ("data", "meta", "body")
_PLACE = re.compile(r"COPY \w+, line (\d+)(?:, column (\w+))?")


class RowRefused(InvalidOption):
    """A row cannot become a job; the message says which row, which column and why."""


class PayloadRefused(RowRefused, PayloadTooLarge):
    """A row's payload is too large."""


class Rows:
    """The rows of one task on their way into the stage; ``queue`` is that of rows without a column ``queue``."""

    def __init__(self, names: Sequence[str], queue: str, largest: int, *, replay: bool = False) -> None:
        self.names = names
        self.fields = [name for name in names if name not in SPECIAL]
        self.queue = queue
        self.largest = largest
        self.replay = replay
        #: Rows of the batches before, and those of the batch at hand as well.
        self.done = 0
        self.count = 0
        encoder = json.JSONEncoder(default=_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self._encode = encoder.encode

    def lines(self, part: str, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Yield text for COPY, about a megabyte at a time."""
        for batch in batches:
            self.done, self.count = self.count, self.count + batch.num_rows
            buffer = io.StringIO()
            for row in zip(*self._columns(batch), strict=True):
                buffer.write("\t".join((part, *row)) + "\n")
                if buffer.tell() > 1_000_000:
                    yield buffer.getvalue()
                    buffer = io.StringIO()
            yield buffer.getvalue()

    def database_refused(self, error: psycopg.DataError) -> RowRefused:
        """Return what PostgreSQL says of a row that it does not take, in our words."""
        found = _PLACE.search(error.diag.context or "")
        column = f"Column {found[2]!r}: " if found and found[2] else ""
        why = error.diag.message_primary or str(error)
        if error.diag.message_detail:
            why += f" ({error.diag.message_detail})"
        return RowRefused(f"Row {int(found[1]) if found else '?'} of this partition: {column}{why}")

    def _columns(self, batch: pa.RecordBatch) -> list[Sequence[str]]:
        sizes = [0] * batch.num_rows
        columns: list[Sequence[str]] = []
        for name in SPECIAL:
            if name == "data" and self.fields:
                rows = batch.select(self.fields)
                columns.append(self._cells(batch, name, rows, lambda row: _data_text(self._encode(row)), sizes))
            elif name in self.names:
                values = batch.column(batch.schema.get_field_index(name))
                columns.append(self._cells(batch, name, values, self._checks(name), sizes))
            else:
                columns.append([self.queue.translate(_ESCAPES) if name == "queue" else _NULL] * batch.num_rows)
        # A character is at most four bytes.
        for number, size in enumerate(sizes):
            if size * 4 > self.largest and (exact := self._bytes(batch, number)) > self.largest:
                why = f"The payload (data, meta and body together) has {exact} bytes, more than {self.largest} bytes"
                self._refuse(batch, number, PayloadTooLarge(f"{why} (option maxPayloadBytes)."))
        return columns

    def _cells(
        self,
        batch: pa.RecordBatch,
        name: str,
        column: pa.RecordBatch | pa.Array,
        check: Callable[[Any], str],
        sizes: list[int],
    ) -> list[str]:
        cells: list[str] = []
        try:
            values = column.to_pylist()
        except (ValueError, OverflowError):  # a time that is none of Python's: which one it is shows below
            values = (column.slice(number, 1).to_pylist()[0] for number in range(batch.num_rows))
        try:
            cells.extend(_NULL if value is None and name != "queue" else check(value) for value in values)
        except (ValueError, OverflowError) as error:
            self._refuse(batch, len(cells), f"{'' if isinstance(error, InvalidOption) else f'{name}: '}{error}")
        if name in _PAYLOAD:
            for number, cell in enumerate(cells):
                # Of a body two hexadecimal digits each.
                sizes[number] += 0 if cell is _NULL else len(cell) // 2 if name == "body" else len(cell)
        return cells

    def _bytes(self, batch: pa.RecordBatch, number: int) -> int:
        row = batch.slice(number, 1).to_pylist()[0]
        data = self._encode({name: row[name] for name in self.fields}) if self.fields else row.get("data")
        return sum(len(text.encode()) for text in (data, row.get("meta")) if text) + len(row.get("body") or b"")

    def _refuse(self, batch: pa.RecordBatch, number: int, why: object) -> None:
        row = batch.slice(number, 1)
        shown = []
        for name in self.names:
            try:
                value = row.column(row.schema.get_field_index(name)).to_pylist()[0]
            except (ValueError, OverflowError):
                value = "?"
            if value is not None and name not in ("body", "meta"):
                shown.append(f"{name}={str(value)[:40]!r}")
        kind = PayloadRefused if isinstance(why, PayloadTooLarge) else RowRefused
        raise kind(f"Row {self.done + number + 1} of this partition ({', '.join(shown)[:200]}): {why}")

    def _checks(self, name: str) -> Callable[[Any], str]:
        if name in BOUNDS:
            return lambda value: _bounded(name, value)
        checks: dict[str, Callable[[Any], str]] = {
            "data": _data_text,
            "meta": self._meta,
            "body": lambda value: f"\\\\x{value.hex()}",
            "run_at": _time,
            "reply_to": _channel,
            "priority": lambda value: str(max(-(2**31), min(value, 2**31 - 1))),
        }
        return checks.get(name) or (lambda value: _short(name, value))

    def _meta(self, value: str) -> str:
        if not self.replay:
            found = json.loads(value)
            if not isinstance(found, dict):
                raise InvalidOption(f"Column 'meta' must be a JSON object; it is {value[:80]!r}.")
            for name in found:
                if name.startswith("$"):
                    raise InvalidOption(
                        "Column 'meta' must not have names that begin with '$': they are reserved for what the queues"
                        f" note; there is {name[:80]!r}."
                    )
        return _plain("meta", value)


def _json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        raise InvalidOption("A binary column cannot be part of a job's data: name it body, or encode it (base64).")
    kind = type(value).__name__
    raise InvalidOption(f"A {kind} cannot be part of a job's data; give a column 'data' with JSON text.")


def _plain(name: str, value: str) -> str:
    if "\x00" in value:
        raise InvalidOption(f"Column {name!r} holds a NUL character, which PostgreSQL does not store.")
    if name in _PAYLOAD and "\\u0000" in value and "\\u0000" in value.replace("\\\\", ""):
        told = f"Column {name!r} must not contain the character U+0000: PostgreSQL cannot store it in jsonb."
        raise InvalidOption(told)
    return value.translate(_ESCAPES)


def _short(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidOption(f"Column {name!r} holds a null.")
    size = len(value) if value.isascii() else len(value.encode())
    if not 0 < size <= SHORT[name]:
        raise InvalidOption(f"Column {name!r} must be 1 to {SHORT[name]} bytes; it has {size}.")
    return _plain(name, value)


def _channel(value: str) -> str:
    if " " in value:  # several callers' channels stand on the job with a space between
        raise InvalidOption(f"Column 'reply_to' must be the name of a channel without spaces; it is {value[:80]!r}.")
    return _short("reply_to", value)


def _data_text(value: str) -> str:
    if value.startswith(_REFERENCE):
        raise InvalidOption(
            "Column 'data' holds a reference to a large payload, which Spark does not read: retry or redrive the jobs."
        )
    return _plain("data", value)


def _bounded(name: str, value: int) -> str:
    low, high = BOUNDS[name]
    if not low <= value <= high:
        raise InvalidOption(f"Column {name!r} must be an integer from {low} to {high}; it is {value}.")
    return str(value)


def _time(value: datetime) -> str:
    if value.year > MAX_YEAR:
        raise InvalidOption(f"Column 'run_at' must not be after the year {MAX_YEAR}; it is {value}.")
    return value.isoformat()
