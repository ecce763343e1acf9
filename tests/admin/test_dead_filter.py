"""The filter of dead letters: from a query string and back, with clear errors."""

from datetime import UTC, datetime, timedelta

import pytest

from django_leasequeue.engine import clock
from django_leasequeue.engine.dead.filter import MAX_TESTS, DeadFilter, PayloadTest, from_query
from django_leasequeue.exceptions import InvalidOption

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _clock():
    with clock.hold(clock.Clock(NOW)):
        yield


@pytest.mark.parametrize(
    "query",
    [
        "", "queue=mail", "project=-&queue=mail&task=shop.tasks.charge&fingerprint=abc&tag=eu",
        "since=2029-12-31T10%3A00%3A00Z&until=2030-01-01T11%3A30%3A00Z", "deliveries=3", "deliveries=%3E%3D3",
        "deliveries=3..5", "text=card+declined+%26+more",
        "payload=data.kwargs.customer+%3D+17&payload=meta.region+%21%3D+eu", "fingerprint=-",
    ],
)  # fmt: skip
def test_a_query_string_and_back(query: str) -> None:
    wanted = from_query(query)
    assert from_query(wanted.query()) == wanted
    assert set(wanted.query().split("&")) == set(query.split("&"))


def test_empty_values_mean_any() -> None:
    assert from_query("queue=&task=&since=&deliveries=&payload=&text=+") == DeadFilter()
    assert from_query("page=2&_changelist=x").empty


def test_the_dash_stands_for_the_empty_project_and_fingerprint() -> None:
    wanted = from_query("project=-&fingerprint=-&queue=-")
    assert (wanted.project, wanted.fingerprint, wanted.queue) == ("", "", "-")


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90min", timedelta(minutes=90)), ("2h", timedelta(hours=2)), ("7d ago", timedelta(days=7)),
        ("30 s", timedelta(seconds=30)),
    ],
)  # fmt: skip
def test_times_ago(text: str, ago: timedelta) -> None:
    assert from_query(f"since={text}").since == NOW - ago


def test_a_time_without_an_offset_is_utc() -> None:
    assert from_query("since=2029-12-31T10:00").since == datetime(2029, 12, 31, 10, tzinfo=UTC)
    assert from_query("since=2029-12-31T10:00%2B02:00").since == datetime(2029, 12, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("3", (3, 3)), (">=3", (3, None)), ("> 3", (4, None)), ("<=5", (None, 5)), ("<5", (None, 4)), ("3..5", (3, 5)),
        ("3-5", (3, 5)),
    ],
)  # fmt: skip
def test_deliveries(text: str, bounds: tuple[int | None, int | None]) -> None:
    wanted = DeadFilter(least=bounds[0], most=bounds[1])
    assert from_query(f"deliveries={text}") == wanted


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("data.a.b = x", PayloadTest("data", ("a", "b"), True, "x")),
        ("data.args.0=17", PayloadTest("data", ("args", "0"), True, "17")),
        ('meta.region != "eu"', PayloadTest("meta", ("region",), False, '"eu"')),
        ("tags.customer = 7", PayloadTest("tags", ("customer",), True, "7")),
        ("data.note = a = b", PayloadTest("data", ("note",), True, "a = b")),
    ],
)
def test_tests_of_the_payload(text: str, test: PayloadTest) -> None:
    assert PayloadTest.parse(text) == test
    assert PayloadTest.parse(str(test)) == test


def test_values_of_tests() -> None:
    assert (PayloadTest.parse("data.a = 17").as_json, PayloadTest.parse("data.a = 17").word) == ("17", "17")
    assert (PayloadTest.parse("data.a = x y").as_json, PayloadTest.parse("data.a = x y").word) == ('"x y"', "x y")
    assert (PayloadTest.parse('data.a = "17"').as_json, PayloadTest.parse('data.a = "17"').word) == ('"17"', None)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=yesterday", "how long ago"), ("since=99999999h", "how long ago"), ("deliveries=many", ">=3"),
        ("payload=customer=3", "data.kwargs.customer"), ("payload=data..a=3", "data.kwargs.customer"),
        ("payload=data.a", "data.kwargs.customer"),
        ("&".join(f"payload=data.a={n}" for n in range(MAX_TESTS + 1)), "at most"), ("since=1h&until=2h", "later than"),
        ("text=" + "x" * 600, "500 bytes"), ("queue=a%00b", "without NUL"), ("text=" + "x" * 9000, "at most"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(query: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        from_query(query)


def test_a_frozen_filter_ends_now() -> None:
    assert from_query("queue=a").frozen(NOW).until == NOW
    assert from_query("until=1h").frozen(NOW).until == NOW - timedelta(hours=1)
