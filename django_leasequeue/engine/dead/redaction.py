"""What of a payload an operator may see: nothing but its shape, or its values without secrets.

Without the permission ``view_payload`` only names and types are shown. With it the hook
``LEASEQUEUE["ADMIN"]["REDACT"]`` decides, ``redact(value, *, kind, queue, task)``, a callable or its dotted path;
``kind`` is ``data``, ``meta``, ``result`` or ``progress``. Without a hook values of names that sound like secrets are
hidden. Exports of dead letters and of the audit show the same, as CSV or JSON Lines.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from ... import conf, engine
from ...exceptions import InvalidOption
from .. import codec
from .filter import DeadFilter
from .search import DeadRow
from .triage import dead_page

logger = logging.getLogger("django_leasequeue.admin")

#: Stands where a value is hidden.
HIDDEN = "[hidden]"
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|cookie|"
    r"session[_-]?id|signature|card[_-]?number|cvc|iban|ssn$",
    re.IGNORECASE,
)
#: How deep a value is looked into; what lies deeper is hidden.
_DEPTH = 60
#: How deep a value can be that hooks and pages get.
_DEEPEST = 100
#: Stand for what cannot be shown.
TOO_DEEP, NOT_READABLE = "[nested too deep to be shown]", "[cannot be read]"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def hide_secrets(value: Any, *, kind: str = "", queue: str = "", task: str | None = None, depth: int = _DEPTH) -> Any:
    """Return a JSON value with the values of secret-sounding names hidden: the hook that is used when none is set."""
    if isinstance(value, dict):
        if not depth:
            return HIDDEN
        return {
            name: HIDDEN if _SECRET.search(name) and inner is not None else hide_secrets(inner, depth=depth - 1)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [hide_secrets(inner, depth=depth - 1) for inner in value] if depth else HIDDEN
    return value


def shape(value: Any, depth: int = _DEPTH) -> Any:
    """Return a JSON value with every value replaced by the name of its type."""
    if isinstance(value, dict):
        return {name: shape(inner, depth - 1) for name, inner in value.items()} if depth else "[object]"
    if isinstance(value, list):
        return [shape(inner, depth - 1) for inner in value] if depth else "[array]"
    if value is None:
        return None
    if isinstance(value, bool):
        return "[boolean]"
    return "[number]" if isinstance(value, int | float) else "[text]"


def readable(text: str) -> Any:
    """Return what stored JSON says, in a form that every page and every strict JSON reader takes.

    A number that is no finite float, or has more digits than Python reads, is its text; a lone surrogate is a "?".
    """
    try:
        value = codec.loads(text, parse_int=_integer, parse_float=_real)
    except ValueError:
        return NOT_READABLE
    if text.count("{") + text.count("[") > _DEEPEST:
        value = _cut(value, _DEEPEST)
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _integer(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # longer than sys.get_int_max_str_digits()
        return text


def _real(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _cut(value: Any, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, dict):
        return {name: _cut(inner, depth - 1) for name, inner in value.items()}
    return [_cut(inner, depth - 1) for inner in value]


def redact(value: Any, *, kind: str = "data", queue: str = "", task: str | None = None, values: bool = True) -> Any:
    """Return what may be shown of a JSON value."""
    if value is None:
        return None
    if not values:
        return shape(value)
    try:
        hook = conf.settings.ADMIN.REDACT or hide_secrets
        hide = import_string(hook) if isinstance(hook, str) else hook
        return hide(value, kind=kind, queue=queue, task=task)
    except Exception:  # (the host's code) an error of it must neither show a secret nor hide the job
        logger.exception("LEASEQUEUE['ADMIN']['REDACT'] failed: nothing of the payload is shown")
        return HIDDEN


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
    """A file that gives back what is written to it."""

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
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  (the wide ones count as well)


def as_text(value: str) -> str:
    """Return the text of a cell so that no spreadsheet runs it: an apostrophe goes before what looks like a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value
