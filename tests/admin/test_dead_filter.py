"""The filter of dead letters: from a query string and back, with clear errors."""

from datetime import UTC, datetime, timedelta

import pytest

from django_leasequeue.engine.dead.filter import MAX_TESTS, DeadFilter, PayloadTest, from_query
from django_leasequeue.exceptions import InvalidOption

pytestmark = pytest.mark.usefixtures("clock")

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("query", [
    "", "queue=mail", "project=-&queue=mail&task=shop.tasks.charge&fingerprint=abc&tag=eu",
    "since=2029-12-31T10%3A00%3A00Z&until=2030-01-01T11%3A30%3A00Z", "deliveries=3", "deliveries=%3E%3D3",
    "deliveries=3..5", "text=card+declined+%26+more",
    "payload=data.kwargs.customer+%3D+17&payload=meta.region+%21%3D+eu", "fingerprint=-",
])  # fmt: skip
def test_a_query_string_and_back(query: str) -> None:
    wanted = from_query(query)
    assert from_query(wanted.query()) == wanted
    assert set(wanted.query().split("&")) == set(query.split("&"))


def test_what_is_no_filter_means_any_and_a_frozen_one_ends_now() -> None:
    assert from_query("queue=&task=&since=&deliveries=&payload=&text=+") == DeadFilter()
    assert from_query("page=2&_changelist=x").empty
    assert from_query("queue=a").frozen(NOW).until == NOW
    assert from_query("until=1h").frozen(NOW).until == NOW - timedelta(hours=1)


@pytest.mark.parametrize(("query", "wanted"), [
    ("project=-&fingerprint=-&queue=-", DeadFilter(project="", fingerprint="", queue="-")),
    *((f"since={ago}", DeadFilter(since=NOW - timedelta(minutes=minutes))) for ago, minutes in (
        ("90min", 90), ("2h", 120), ("7d ago", 7 * 1_440), ("30 s", 0.5),
    )),
    ("since=2029-12-31T10:00", DeadFilter(since=datetime(2029, 12, 31, 10, tzinfo=UTC))),  # UTC, where none is said
    ("since=2029-12-31T10:00%2B02:00", DeadFilter(since=datetime(2029, 12, 31, 8, tzinfo=UTC))),
    *((f"deliveries={words}", DeadFilter(least=least, most=most)) for words, least, most in (
        ("3", 3, 3), (">=3", 3, None), ("> 3", 4, None), ("<=5", None, 5), ("<5", None, 4), ("3..5", 3, 5),
        ("3-5", 3, 5),
    )),
])  # fmt: skip
def test_what_a_query_says(query: str, wanted: DeadFilter) -> None:
    assert from_query(query) == wanted


@pytest.mark.parametrize(("text", "test", "as_json", "word"), [
    ("data.a.b = x", PayloadTest("data", ("a", "b"), True, "x"), '"x"', "x"),
    ("data.args.0=17", PayloadTest("data", ("args", "0"), True, "17"), "17", "17"),
    ('meta.region != "eu"', PayloadTest("meta", ("region",), False, '"eu"'), '"eu"', None),
    ("tags.customer = 7", PayloadTest("tags", ("customer",), True, "7"), "7", "7"),
    ("data.note = a = b", PayloadTest("data", ("note",), True, "a = b"), '"a = b"', "a = b"),
    ('data.a = "17"', PayloadTest("data", ("a",), True, '"17"'), '"17"', None),
])  # fmt: skip
def test_tests_of_the_payload(text: str, test: PayloadTest, as_json: str, word: str | None) -> None:
    assert (PayloadTest.parse(text), test.as_json, test.word) == (test, as_json, word)
    assert PayloadTest.parse(str(test)) == test


@pytest.mark.parametrize(("query", "words"), [
    ("since=yesterday", "how long ago"), ("since=99999999h", "how long ago"), ("deliveries=many", ">=3"),
    ("payload=customer=3", "data.kwargs.customer"), ("payload=data..a=3", "data.kwargs.customer"),
    ("payload=data.a", "data.kwargs.customer"),
    ("&".join(f"payload=data.a={n}" for n in range(MAX_TESTS + 1)), "at most"), ("since=1h&until=2h", "later than"),
    ("text=" + "x" * 600, "500 bytes"), ("queue=a%00b", "without NUL"), ("text=" + "x" * 9000, "at most"),
])  # fmt: skip
def test_what_is_wrong_is_said(query: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        from_query(query)
