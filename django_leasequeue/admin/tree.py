"""A JSON value as a tree of HTML lists that open and close by themselves, without a script."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..engine.dead.redaction import HIDDEN

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
