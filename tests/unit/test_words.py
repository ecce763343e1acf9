"""Statements name the numbers of states, kinds, lanes and flags: ``words.py`` has them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db.models import IntegerChoices

from django_leasequeue import enums, sql, words

FILES = sorted(Path(sql.__file__).parent.rglob("*.sql"))
COLUMNS = ("flags", "state", "kind", "lane")
NUMBERED = rf"(?:\w+\.)?(?:{'|'.join(COLUMNS)})"
#: A number that is compared with such a column, added to it, or named like one. (Flags may be compared with 0.)
BARE = re.compile(
    rf"\b{NUMBERED}\b[)}}]?(?: FROM \w+\))? (?:>=?|<=?|&|\||\+|IS (?:NOT )?DISTINCT FROM) ~?\d"
    rf"|\b{NUMBERED}\b[)}}]? (?:=|<>) (?!(?<=flags = )0|(?<=flags <> )0)\d"
    rf"|\b{NUMBERED} (?:NOT )?IN \(\d"
    rf"|(?<![\w.:])-?\d+ AS (?:{'|'.join(COLUMNS)})\b"
    rf"|CASE {NUMBERED}\s+WHEN \d"
    rf"|VALUES \(\d[^)]*\)(?:, \([^)]*\))*\) AS \w+\((?:{'|'.join(COLUMNS)})\b"
    r"|\+ \d+ \* \("
    r"|\b\d+ = ANY \(%\((?:states|places)\)s"
    r"|\{floor\([^{}]*, \d, "
)
INSERT = re.compile(
    r"INSERT INTO \w+(?: AS \w+)? \(([\w,\s]+)\)\s+SELECT (?:DISTINCT )?(.*?)(?=\bFROM\b|\Z)", re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.'])[1-9]\d*\b(?!\s*::)|THEN 0|ELSE 0")
WORD = re.compile(r"\{([A-Z][A-Z_|]+|[a-z]+\.[A-Z_]+)\}")


def body(path: Path) -> str:
    """A file without its comments, in one line."""
    return " ".join(re.sub(r"(?m)^\s*--.*\n", "", path.read_text(encoding="utf-8")).split())


def top_level(text: str) -> Iterator[str]:
    """The expressions of a list; one with a FROM of its own is cut off there, and is the last."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()


def test_no_statement_has_a_bare_number_beside_a_state_kind_lane_or_flag() -> None:
    found = {
        f"{path.parent.name}/{path.name}": said
        for path in FILES
        if (said := [match[0] for match in BARE.finditer(body(path))])
    }
    assert found == {}


def test_no_statement_inserts_a_bare_number_as_a_state_kind_lane_or_flag() -> None:
    """A new job's flags may be 0: it has none."""
    found, looked = [], 0
    for path in FILES:
        for columns, values in INSERT.findall(body(path)):
            for column, value in zip(re.split(r",\s*", columns.strip()), top_level(values), strict=False):
                if column in COLUMNS:
                    looked += 1
                    if NUMBER.search(value) or (value == "0" and column != "flags"):
                        found.append((path.name, column, value))
    assert looked > 60
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["r.lane = 2", "flags & 127 = 0", "flags = 8", "0 AS state", "kind IN (1, 2)", "+ 128 * (x)", "{floor(q, 2, 0)}"],
)
def test_a_bare_number_is_found(text: str) -> None:
    assert BARE.search(text)


def test_every_word_of_a_statement_is_known_and_every_statement_is_filled() -> None:
    assert [name for name in sql.paths() if WORD.search(sql.statement(name))] == []
    used = {word for path in FILES for one in WORD.findall(body(path)) for word in one.split("|")}
    assert len(used) > 50
    assert used <= {*words.NUMBERS, *words.TIMES}


def test_what_people_read_has_the_numbers_of_the_words() -> None:
    labelled = [
        one for one in vars(enums).values()
        if isinstance(one, type) and issubclass(one, IntegerChoices) and hasattr(words, one.__name__)
    ]  # fmt: skip
    assert len(labelled) == 8
    for choices in labelled:
        numbers = getattr(words, choices.__name__)
        assert {one.name: one.value for one in choices} == {one.name: one.value for one in numbers}


def test_lines_of_statements_have_at_most_120_characters() -> None:
    long = [path.name for path in FILES if any(len(line) > 120 for line in path.read_text("utf-8").splitlines())]
    assert long == []


def test_parts_of_statements_have_names_that_speak() -> None:
    """A letter may stand for the table beside it, as in ``leasequeue_job j``; what a statement makes has a name."""
    letters = {
        f"{path.parent.name}/{path.name}": found
        for path in FILES
        if (found := re.findall(r"(?:WITH|RECURSIVE|,) (\w) AS (?:MATERIALIZED )?\(", body(path)))
    }
    assert letters == {}


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        (r"late_ack =", "in_time"),
        (r"- xmax::text", "not_being_deleted"),
        (r"16384", "is_large"),
        (r"\{OF_CLAIM\}", "claim_flags"),
        (r"\{workflow\.CANCELLED\} AND w\.ended_at", "is_cancelled"),
        (r"interval '1 us' \* \{floor\(", "since"),
    ],
)
def test_a_rule_stands_in_one_part(rule: str, part: str) -> None:
    assert [path.stem for path in FILES if path.parent.name != "functions" and re.search(rule, body(path))] == [part]


def test_statements_name_the_times_of_jobs_that_something_else_starts() -> None:
    assert [path.name for path in FILES if re.search(r"900[01]-01-01", body(path))] == []
    assert words.TIMES == {"HELD": "'9000-01-01 00:00+00'", "CUT_OFF": "'9001-01-01 00:00+00'"}
