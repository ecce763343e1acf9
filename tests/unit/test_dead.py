"""What is said of dead letters: fingerprints of their errors, and no formula in a CSV."""

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from django_leasequeue.engine.dead import export
from django_leasequeue.engine.dead.fingerprint import fingerprint, fingerprint_of, mask, place_of


def _caught(fails: Callable[..., object]) -> Callable[..., BaseException]:
    def call(*args: Any) -> BaseException:
        try:
            fails(*args)
        except Exception as error:  # noqa: BLE001
            return error
        raise AssertionError

    return call


@_caught
def _fails(message: object = "it broke", kind: type[Exception] = ValueError) -> None:
    raise kind(message)


@_caught
def _fails_elsewhere(message: object) -> None:
    raise ValueError(message)


@_caught
def _fails_in_a_library() -> None:
    json.loads("{")


@_caught
def _fails_at(first: bool) -> None:
    if first:
        raise KeyError("a")
    raise KeyError("a")  # another line


@_caught
def _does_not_parse(name: str) -> None:
    compile("def", name, "exec")


def test_it_is_16_hexadecimal_digits_whatever_the_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    hostile = ("'" * 200_000, "0" * 200_000, "a@" * 100_000, "/" * 200_000, "f" * 200_000, "\ud800 broke")
    for found in (fingerprint(_fails()), fingerprint(Mute()), *(fingerprint_of("E", text) for text in hostile)):
        assert re.fullmatch(r"[0-9a-f]{16}", found)
    words = "deadbeef is a face, decade: cafe"
    assert mask(words) == words


@pytest.mark.parametrize(("one", "other"), [
    ("user 1017 not found", "user 40812 not found"), ("<Thing at 0x7f3a2c>", "<Thing at 0x55ee01ff>"),
    (f"no key '{'alice ' * 9}'", f"no key '{'bob ' * 9}'"), (f'got "{"a" * 2_000}', f'got "{"b" * 2_000}'),
    ("job 01936d2e-1234-7abc-8def-0123456789ab", "job ffffffff-0000-4000-9000-000000000000"),
    ("commit 4f2a91c0de", "commit 0badc0ffee12"), ("no cus_9s6XKzkNRiz8i3Pq", "no cus_Ab6XKzkNRiz8i3P7"),
    ("mail to a.b+c@example.org refused", "mail to someone@sub.example.com refused"),
    ("cannot open /srv/data/orders-1.csv today", "cannot open /srv/data/orders-2.csv today"),
    ("503 for https://shop.test/orders/17", "503 for https://shop.test/orders/4"),
    ("took 1.25 s at 12:30:01", "took 999 s at 01:02:03"), ("spaces   and\nlines", "spaces and lines"),
    ("until 2026-11-25 no", "until 2025-01-02 no"),
    ("bad: line 1 column 24 (char 23)", "bad: line 7 column 2 (char 9)"),
])  # fmt: skip
def test_what_differs_from_case_to_case_does_not_count(one: str, other: str) -> None:
    assert fingerprint(_fails(one)) == fingerprint(_fails(other))
    assert fingerprint_of("E", one) == fingerprint_of("E", other)


@pytest.mark.parametrize(("one", "other"), [
    ("HTTP 500", "HTTP 502"), ("no key 'alice'", "no key 'bob'"), ('no column "a_b"', 'no column "a_c"'),
    ("503 for https://shop.test/orders/17", "503 for https://shop.test/customers/17"),
    ("can't do this: it isn't there at all, and won't", "can't do that: it isn't there at all, and won't"),
    ("needs version 3.11", "needs version 3.12"), ("exit code 1", "exit code 137"),
])  # fmt: skip
def test_what_a_person_keeps_apart_is_apart(one: str, other: str) -> None:
    assert fingerprint_of("E", one) != fingerprint_of("E", other)


def test_class_message_and_place_count() -> None:
    same = fingerprint(_fails("it broke"))
    assert fingerprint(_fails("it bent")) != same
    assert fingerprint(_fails("it broke", RuntimeError)) != same
    assert fingerprint(_fails_elsewhere("it broke")) != same
    assert fingerprint(_fails("it broke")) == same
    assert fingerprint(_fails("a", KeyError)) != fingerprint(_fails("b", KeyError))
    assert fingerprint(_fails_at(True)) != fingerprint(_fails_at(False))


def test_the_place_is_the_innermost_line_of_the_hosts_code_and_not_the_file() -> None:
    assert place_of(_fails_in_a_library()) == f'{__name__}:_fails_in_a_library:json.loads("{{")'
    error = TypeError("missing an argument")
    assert place_of(error) == ""
    assert fingerprint(error, "shop.tasks.one") != fingerprint(error, "shop.tasks.two")
    assert fingerprint(_does_not_parse("one.py")) == fingerprint(_does_not_parse("other.py"))


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1", "－1", "＠SUM(1)"],  # noqa: RUF001
)
def test_what_looks_like_a_formula_is_text(text: str) -> None:
    assert export.as_text(text) == f"'{text}"
    written = "".join(export.lines([{"cell": text}], ["cell"], "csv"))
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["cell"], [f"'{text}"]]


@pytest.mark.parametrize("value", ["", "orders", "a=b", "1-2", " =1", -1, 2.5, None, True])
def test_everything_else_is_left_as_it_is(value: object) -> None:
    written = "".join(export.lines([{"cell": value, "next": 1}], ["cell", "next"], "csv"))
    assert written.splitlines()[1] == f"{'' if value is None else value},1"
