"""Whatever lists the first few lists the right ones: in whatever order, and in however many files, rows are read."""

from __future__ import annotations

import csv
import operator
import random
import re
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_leasequeue.spark import report
from django_leasequeue.spark.layout import FORMATS, TABLES, order
from tests.spark import gold

HOUR = datetime(2030, 3, 14, 12, tzinfo=UTC)
#: Words that the page knows; other texts are names.
WORDS = {
    "verdict": ("sick", "slow", "well"), "measure": ("wait", "run", "total"), "outcome": ("failed", "expired"),
    "advice": ("longer", "abandoned", "keep"), "state": ("completed",), "project": ("", "shop"), "tag": ("tenant",),
}  # fmt: skip
MANY = {"span": 1, "capacity": 300, "forecast": 300}
#: What may be null where it is a part of a row's name.
NULL = {"task", "node", "tenant", "error_type", "ill_until", "ended", "name", "label"}


def value(dice: random.Random, column: str, kind: str) -> Any:
    if column in NULL and dice.random() < 0.2:
        return None
    if column in WORDS:
        return dice.choice(WORDS[column])
    if column == "hour_of_week":
        return dice.randrange(168)
    return {
        # Few of each, so that many rows are alike in what they are sorted by first.
        "string": lambda: f"n{dice.randrange(9)}",
        "timestamp": lambda: HOUR - timedelta(hours=dice.randrange(60)),
        "date": lambda: date(2030, 3, 1) + timedelta(days=dice.randrange(14)),
        "double": lambda: dice.randrange(1, 9) / 4,
        "boolean": lambda: dice.random() < 0.5,
        "binary": lambda: b"x",
        "array<string>": lambda: [f"n{dice.randrange(9)}"],
    }.get(kind, lambda: dice.randrange(1, 30))()


def rows_of(dice: random.Random, name: str) -> list[dict[str, Any]]:
    """Return random rows, one of each name."""
    key = [column for column, _ in order(name)]
    found = {}
    for _ in range(MANY.get(name, 80)):
        row = {column: value(dice, column, kind) for column, kind in gold.columns(name).items()}
        found[tuple(row[column] for column in key if column not in {"dead", "failures"})] = row
    return list(found.values())


WEEK = {name: rows_of(random.Random(name), name) for name in TABLES}
WEEK["span"] = [{"first_at": HOUR - timedelta(days=20), "newest_at": HOUR, "jobs": 9, "attempts": 9}]


def written(root: Path, week: dict[str, list[list[dict[str, Any]]]], format: str) -> dict[str, str]:
    """Return the page and the files beside it, without the time at which they were made."""
    for name, parts in week.items():
        gold.write(root, name, parts, format)
    found, run = report.in_directory(root)
    report.write(found, run, root / "report")
    files = {path.name: path.read_text(encoding="utf-8") for path in (root / "report").glob("*.[ch]*")}
    files["report.html"] = re.sub(r"Made .*? UTC\.", "", files["report.html"])
    return files


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    week = {name: [sorted(rows, key=str)] for name, rows in WEEK.items()}
    return written(tmp_path_factory.mktemp("gold"), week, "parquet")


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=5, deadline=None, database=None)
@given(dice=st.randoms(use_true_random=False), files=st.integers(2, 4))
def test_the_report_is_the_same_in_any_order(
    expected: dict[str, str], format: str, dice: random.Random, files: int
) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    week = {}
    for name, rows in WEEK.items():
        mixed = dice.sample(rows, len(rows))
        week[name] = [mixed[part::files] for part in range(files)] if len(rows) > files else [mixed]
    with tempfile.TemporaryDirectory() as root:
        assert written(Path(root), week, format) == expected


def sorted_again(rows: list[dict[str, Any]], by: list[tuple[str, bool]]) -> list[dict[str, Any]]:
    """Sort rows column by column from the last one on, nulls last."""
    again = rows[::-1]
    for column, falls in reversed(by):
        known = [row for row in again if row[column] is not None]
        known.sort(key=operator.itemgetter(column), reverse=falls)
        again = known + [row for row in again if row[column] is None]
    return again


@pytest.mark.parametrize("name", [name for name in TABLES if name != "span"])
def test_each_table_is_in_its_order(name: str) -> None:
    """That leaves no choice: no two rows are alike in it."""
    table = gold.made(name, random.Random(7).sample(WEEK[name], len(WEEK[name])))
    found = report._in_order(name, table).to_pylist()
    assert found == sorted_again(table.to_pylist(), order(name))
    by = [tuple(row[column] for column, _ in order(name)) for row in found]
    assert len(set(by)) == len(by) > 1


def test_the_reference_tells_each_order() -> None:
    page = Path(__file__).parents[2].joinpath("docs/reference/lake.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `gold/(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
    told = {}
    for name, key, before in lines:
        first, rest = (re.findall(r"`(-?\w+)`", part) for part in (before, key))
        left = [column for column in rest if not {column, f"-{column}"} & set(first)]
        told[name] = " ".join([*first, *left])
    assert told == TABLES


def test_the_first_three_of_poison_and_nodes_are_the_worst(expected: dict[str, str]) -> None:
    dead = sorted((row["dead"] for row in WEEK["poison"]), reverse=True)[:3]
    told = [int(row["dead"]) for row in csv.DictReader(expected["poison.csv"].splitlines())][:3]
    assert told == dead
    ill = sorted((row["sigmas"] for row in WEEK["nodes"]), reverse=True)[:3]
    assert [float(row["sigmas"]) for row in csv.DictReader(expected["nodes.csv"].splitlines())][:3] == ill
