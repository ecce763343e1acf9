"""Dead letters and the audit as CSV or JSON Lines, redacted as pages show them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ... import engine
from ...exceptions import InvalidOption
from .. import codec
from .filter import DeadFilter
from .redaction import readable, redact
from .search import DeadRow
from .triage import dead_page

#: Dead letters of one statement of an export.
PAGE = 200
COLUMNS = (
    "seq", "project", "queue", "state", "task", "key", "tag", "deliveries", "error_type", "error", "fingerprint",
    "dead_at", "created_at", "home", "source_seq", "data", "meta", "errors",
)  # fmt: skip
KINDS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


def row(found: DeadRow, *, values: bool) -> dict[str, Any]:
    """Return one dead letter as plain values."""

    def shown(text: str | None, kind: str) -> Any:
        if text is None:
            return None
        value = readable(text)
        return redact(value, kind=kind, queue=found.queue, task=found.name, values=values)

    errors = [] if found.errors_json is None else codec.loads(found.errors_json)
    if not values:
        errors = [{name: each.get(name) for name in ("at", "node", "type")} for each in errors]
    return {name: getattr(found, name, None) for name in COLUMNS} | {
        "task": found.name,
        "dead_at": found.dead_at.isoformat(),
        "created_at": found.created_at.isoformat(),
        "data": shown(found.data_json, "data"),
        "meta": shown(found.meta_json, "meta"),
        "errors": errors,
    }


def dead_letters(wanted: DeadFilter, *, values: bool, using: str | None) -> Iterator[dict[str, Any]]:
    """Yield everything that a filter matches, the newest death first, by short statements of their own."""
    after: str | None = None
    while True:
        page = engine.run(dead_page(wanted, after=after, size=PAGE, payload=True), using)
        for found in page.rows:
            yield row(found, values=values)
        if page.next is None:
            return
        after = page.next


def lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], kind: str) -> Iterator[str]:
    """Yield rows as lines of CSV (with a head) or JSON Lines."""
    if check_kind(kind) == "csv":
        writer = csv.writer(_Echo())
        yield writer.writerow(columns)
        for each in rows:
            yield writer.writerow([_cell(each[name]) for name in columns])
    else:
        for each in rows:
            yield json.dumps(each, default=_plain, ensure_ascii=False) + "\n"


class _Echo:
    """A file whose ``write`` returns the text."""

    def write(self, text: str) -> str:
        return text


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    if isinstance(value, datetime):
        return value.isoformat()
    return as_text(value) if isinstance(value, str) else value


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def check_kind(kind: str) -> str:
    """Return the kind of an export."""
    if kind not in KINDS:
        raise InvalidOption(f"An export is csv or jsonl; it is {kind[:20]!r}.")
    return kind


#: What a spreadsheet would take for a formula, or for the end of what stands before one.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  (the wide ones count as well)


def as_text(value: str) -> str:
    """Return the text of a cell, with an apostrophe before a formula so that no spreadsheet runs it."""
    return f"'{value}" if value.startswith(FORMULA) else value
