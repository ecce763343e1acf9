"""Text in CSV files that people open in a spreadsheet."""

from __future__ import annotations

#: What a spreadsheet would take for a formula, or for the end of what stands before one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  (the wide ones count as well)


def as_text(value: str) -> str:
    """Return the text of a cell so that no spreadsheet runs it: an apostrophe goes before what looks like a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value
