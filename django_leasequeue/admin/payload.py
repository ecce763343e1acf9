"""Payloads and results as the page of a job shows them: a tree of HTML lists, and what stands in a storage."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, TypeVar

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..engine.dead.redaction import HIDDEN
from ..engine.large import store
from ..engine.large.reference import is_reference, parse
from ..engine.operation import BLOCKING, Steps

#: Values that one tree shows, and characters of one text.
MAX_VALUES = 2_000
MAX_TEXT = 4_000
#: Deeper levels are closed at first; below the last one only the JSON text is shown.
_OPEN = 3
_DEEPEST = 40


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_VALUES

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def tree(value: Any) -> SafeString:
    """Return the tree of a JSON value; of a very large one the first ``MAX_VALUES`` values."""
    budget = _Budget()
    return format_html('<ul class="lq-tree"><li>{}</li></ul>', _value(value, "", 0, budget))


def _value(value: Any, label: SafeString | str, depth: int, budget: _Budget) -> SafeString:
    if isinstance(value, dict | list) and value and depth < _DEEPEST:
        return _branch(value, label, depth, budget)
    return format_html("{}{}", label, _leaf(value))


def _branch(value: dict[str, Any] | list[Any], label: SafeString | str, depth: int, budget: _Budget) -> SafeString:
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    shown = []
    for name, inner in pairs:
        if not budget.take():
            break
        key = format_html('<span class="lq-key">{}:</span> ', name)
        shown.append((_value(inner, key, depth + 1, budget),))
    left = len(pairs) - len(shown)
    rest = format_html('<li class="lq-hidden">and {} more</li>', f"{left:,}") if left else ""
    what = f"{len(pairs):,} {'names' if isinstance(value, dict) else 'items'}"
    return format_html(
        '<details{}><summary>{}<span class="lq-quiet">{}</span></summary><ul>{}{}</ul></details>',
        SafeString(" open") if depth < _OPEN else "",
        label,
        what,
        format_html_join("", "<li>{}</li>", shown),
        rest,
    )


def _leaf(value: Any) -> SafeString:
    if value == HIDDEN:
        return format_html('<span class="lq-hidden">{}</span>', HIDDEN)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        return format_html(
            '<code>{}</code> <span class="lq-hidden">... {} characters in all</span>', text[:MAX_TEXT], f"{len(text):,}"
        )
    return format_html("<code>{}</code>", text)


R = TypeVar("R", bound=tuple[Any, ...])

_PLACES = (("data_json", "data_bytes", "body_bytes"), ("result_json", "result_bytes", "result_body_bytes"))


def shown_steps(facts: R, limit: int) -> Steps[R]:
    """Steps that return a job's row with the JSON that stands in a storage, up to ``limit`` bytes, and all sizes.

    What cannot be had is shown as ``{"$lost": why}``: the rest of the page is there all the same.
    """
    row: Any = facts
    for json_name, size_name, body_name in _PLACES:
        text = getattr(row, json_name)
        if not is_reference(text):
            continue
        kept = parse(text)
        shown: dict[str, Any] = {json_name: kept.inline, size_name: len(kept.inline) if kept.inline else None}
        if kept.body is not None:
            shown[body_name] = kept.body.size
        if kept.data is not None:
            shown[size_name] = kept.data.size
            if kept.data.size <= limit:
                (((content,),),) = yield BLOCKING, {"call": partial(store.read, [kept.data])}
                lost = not isinstance(content, bytes)
                shown[json_name] = json.dumps({"$lost": str(content)}) if lost else content.decode()
        row = row._replace(**shown)
    return row
