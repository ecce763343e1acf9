"""Dead letters: groups, pages and previews; the filter, from a query string and back, with clear errors."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead import search, triage
from django_leasequeue.engine.dead.filter import MAX_TESTS, DeadFilter, PayloadTest, from_query
from django_leasequeue.exceptions import InvalidOption
from tests.admin.letters import bury, failure, graves

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


def page(query: str = "", **options) -> triage.DeadPage:
    return engine.run(triage.dead_page(from_query(query), **options))


def groups(query: str = "", **options) -> triage.Groups:
    return engine.run(triage.dead_groups(from_query(query), **options))


def walk(look: Callable[..., Any], *given: Any, **options: Any) -> Iterator[Any]:
    after = None
    while True:
        found = look(*given, after=after, **options)
        yield found
        if (after := found.next) is None:
            return


class TestGroups:
    def test_one_a_queue_and_fingerprint_the_newest_first(self, clock: Clock) -> None:
        bury(3, "mail", failure=failure("a", "first"))
        start = clock.now
        clock.advance(minutes=30)
        bury(2, "shop", failure=failure("a"))
        clock.advance(minutes=30)
        last = bury(1, "mail", failure=failure("a", "newest", "shop.Timeout"))
        clock.advance(minutes=1)
        bury(4, "mail", failure=failure("b"))
        found = groups()
        assert [(g.queue, g.fingerprint, g.dead_letters, g.capped) for g in found.groups] == [
            ("mail", "b", 4, False), ("mail", "a", 4, False), ("shop", "a", 2, False),
        ]  # fmt: skip
        group = found.groups[1]
        assert (group.first_at, (group.last_at - start).total_seconds()) == (start, 3_600)
        assert (group.sample_seq, group.error, group.error_type) == (last[0], "newest", "shop.Timeout")
        assert (group.task, sum(group.bars), group.bars[0], group.bars[-1]) == ("shop.tasks.charge", 4, 3, 1)
        assert found.complete

    def test_counts_are_exact_above_every_cap(self, clock: Clock, settings) -> None:
        settings.LEASEQUEUE = {"COUNT_CAP": 5}
        bury(1_300, "mail", failure=failure("many"))
        bury(700, "shop", failure=failure("many"))
        bury(1, "mail", failure=failure("one"))
        found = groups()
        assert found.exact
        assert sorted((g.queue, g.fingerprint, g.dead_letters, g.capped) for g in found.groups) == [
            ("mail", "many", 1_300, False), ("mail", "one", 1, False), ("shop", "many", 700, False),
        ]  # fmt: skip
        assert max(found.groups[0].bars) <= triage.BUCKET_CAP + 1

    def test_the_largest_first_in_pages(self, clock: Clock) -> None:
        graves("mail")
        graves("shop")
        sizes = {("mail", "a"): 3, ("shop", "a"): 9, ("mail", "b"): 4, ("shop", "c"): 4, ("mail", "d"): 1}
        for (queue, cause), size in sizes.items():
            bury(size, queue, failure=failure(cause))
        pages = walk(groups, size=2, largest=True)
        seen = [(g.queue, g.fingerprint, g.dead_letters) for found in pages for g in found.groups]
        assert [size for *_, size in seen] == [9, 4, 4, 3, 1]
        assert {(queue, cause): size for queue, cause, size in seen} == sizes
        with pytest.raises(InvalidOption):
            groups(after="nonsense")

    def test_beyond_what_is_counted_each_look_says_the_same(self, clock: Clock, settings, monkeypatch) -> None:
        settings.LEASEQUEUE = {"COUNT_CAP": 5}
        monkeypatch.setattr(triage, "MAX_COUNTED", 8)
        bury(7, failure=failure("many"))
        clock.advance(seconds=1)
        bury(2, failure=failure("few"))
        for _ in range(3):
            found = groups(largest=True)
            counted = [(g.fingerprint, g.dead_letters, g.capped) for g in found.groups]
            assert (found.exact, counted) == (False, [("few", 2, False), ("many", 5, True)])
        monkeypatch.setattr(triage, "MAX_GROUPS", 1)
        found = groups()
        assert (len(found.groups), found.complete) == (1, False), "more than one call looks at"

    def test_counts_are_of_the_range_of_time_and_of_what_a_search_finds(self, clock: Clock) -> None:
        bury(4, failure=failure("a"))
        clock.advance(hours=5)
        bury(3, failure=failure("a", "no route to host"))
        for query, count in (("since=1h", 3), ("until=1h", 4), ("fingerprint=a", 7)):
            assert [g.dead_letters for g in groups(query).groups] == [count], query
        bury(3, failure=failure("b", "card declined"))
        (group,) = groups("text=ROUTE to").groups
        assert (group.fingerprint, group.dead_letters, sum(group.bars)) == ("a", 3, 3)


class TestPages:
    def test_newest_first_in_pages(self, clock: Clock) -> None:
        graves("a")
        graves("b")
        expected = []
        for number in range(6):
            expected += bury(2, "ab"[number % 2], failure=failure(f"p{number % 3}"))
            clock.advance(seconds=number % 2)
        seen = [row.seq for found in walk(page, size=5) for row in found.rows]
        dead_at = {row.seq: row.dead_at for row in page(size=50).rows}
        assert seen == sorted(expected, key=lambda seq: (dead_at[seq], seq), reverse=True)

    def test_each_filter(self, clock: Clock) -> None:
        graves("shop", project="acme")
        one = bury(1, "mail", name="a.b", tag="eu", failure=failure("x", "timed out"), key="order-77")
        two = bury(1, "shop", project="acme", data={"a": {"b": 5}, "list": [{"c": "v"}]})
        for query, expected in {
            "queue=mail": one, "project=acme": two, "project=-": one, "task=a.b": one, "tag=eu": one,
            "fingerprint=x": one, "text=TIMED": one, "text=order-77": one, "deliveries=1": two + one,
            "deliveries=2": [], "payload=data.a.b = 5": two, "payload=data.a.b != 5": one,
            "payload=data.list.0.c = v": two, 'payload=data.a.b = "5"': [],
            "payload=data.list = [{\"c\": \"v\"}]": two, "queue=none": [],
            "payload=data.a.b = 5&payload=data.x = 1": [], "text=100%25": [],
        }.items():  # fmt: skip
            assert [row.seq for row in page(query).rows] == expected, query

    def test_a_search_goes_on_where_it_stopped(self, clock: Clock, monkeypatch) -> None:
        seqs = bury(30)
        monkeypatch.setattr(search, "CHUNK", 4)
        monkeypatch.setattr(search, "PATIENCE", 0)
        pages = list(walk(page, "payload=data.kwargs.customer = 3", size=10))
        assert sorted(row.seq for found in pages for row in found.rows) == [seqs[3], seqs[13], seqs[23]]
        assert len(pages) > 5
        assert max(found.looked_at for found in pages) <= 4

    def test_deliveries_of_moved_letters_are_those_at_home(self, clock: Clock) -> None:
        graves("work", dead_letter="letters")
        bury(1)
        (row,) = page("queue=letters&deliveries=1").rows
        assert (row.deliveries, row.home, row.state) == (1, "work", "record")

    def test_many_queues_are_cut_at_one_time(self, clock: Clock, monkeypatch) -> None:
        monkeypatch.setattr(search, "MAX_ENTRIES", 300)
        seqs = []
        for name in ("a", "b", "c"):
            graves(name)
        for number in range(6):
            seqs += bury(60, "abc"[number % 3])
            clock.advance(seconds=1)
        assert [row.seq for found in walk(page, size=350) for row in found.rows] == sorted(seqs, reverse=True)


class TestPreview:
    def test_counts_parts_and_samples_and_a_selection(self, clock: Clock) -> None:
        seqs = bury(3, "mail", failure=failure("a", kind="Timeout"))
        bury(1, "shop", name="other")
        found = engine.run(triage.preview(from_query("")))
        assert (found.matches, found.capped, found.at) == (4, False, clock.now)
        assert (found.queues, dict(found.tasks)) == ([("mail", 3), ("shop", 1)], {"shop.tasks.charge": 3, "other": 1})
        assert (dict(found.errors), len(found.samples)) == ({"Timeout": 3, "shop.Declined": 1}, 4)
        assert engine.run(triage.preview(DeadFilter(), seqs=[*seqs[:2], 12345])).matches == 2

    def test_caps(self, clock: Clock, monkeypatch) -> None:
        bury(7)
        monkeypatch.setattr(triage, "SAMPLE", 2)
        found = engine.run(triage.preview(from_query("fingerprint=print-a")))
        assert (found.matches, found.capped, found.looked_at) == (7, False, 2)
        for name in ("MAX_PREVIEWED", "MAX_SEARCHED"):
            monkeypatch.setattr(triage, name, 5)
        for query in ("queue=work", "text=declined"):
            found = engine.run(triage.preview(from_query(query)))
            assert (found.matches, found.capped) == (5, True)


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
    with pytest.raises(InvalidOption, match="'page' is no filter here"):
        from_query("page=2")
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
