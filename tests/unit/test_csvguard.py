"""Text that a spreadsheet would run is text in every CSV that we write."""

import csv
import io

import pytest

from django_leasequeue.engine.dead import redaction


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1", "－1", "＠SUM(1)"],  # noqa: RUF001
)
def test_what_looks_like_a_formula_is_text(text: str) -> None:
    assert redaction.as_text(text) == f"'{text}"
    written = "".join(redaction.lines([{"cell": text}], ["cell"], "csv"))
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["cell"], [f"'{text}"]]


@pytest.mark.parametrize("value", ["", "orders", "a=b", "1-2", " =1", -1, 2.5, None, True])
def test_everything_else_is_left_as_it_is(value: object) -> None:
    written = "".join(redaction.lines([{"cell": value, "next": 1}], ["cell", "next"], "csv"))
    assert written.splitlines()[1] == f"{'' if value is None else value},1"
