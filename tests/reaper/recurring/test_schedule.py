"""Schedules: what they accept, and when they tick, across changes of the clocks."""

import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_leasequeue.models.recurring import CronsimMissing, InvalidSchedule, is_tick, newest, parse

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago"]
MIDDAY = (2026, 1, 5, 12, 30)
LINES = ["*/15 * * * *", "0 * * * *", "30 2 * * *", "45 1 * * *", "0 0 * * *", "15 1,2,3 * * *", "0 9 * * 1-5"]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]  # year, month, day, hour, minute


def local(zone: str, *parts: int) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone)).astimezone(UTC)  # type: ignore[misc,arg-type]  # as above


def ticks(text: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    schedule, found = parse(text, zone), []
    while (start := schedule.next(start)) < end:
        found.append(start)
    return found


@pytest.mark.parametrize(("text", "zone", "after", "first"), [
    ("0 9 * * *", "UTC", (2026, 1, 5, 12), (2026, 1, 6, 9)), ("0 9 * * *", ZONES[1], (2026, 1, 5, 12), (2026, 1, 6, 8)),
    ("0 9 * * *", ZONES[1], (2026, 7, 5, 12), (2026, 7, 6, 7)),
    ("30 * * * * *", "UTC", (2026, 1, 5, 12), (2026, 1, 5, 12, 0, 30)),
    # Words.
    ("@hourly", "UTC", MIDDAY, (2026, 1, 5, 13)), ("@daily", "UTC", MIDDAY, (2026, 1, 6)),
    ("@midnight", "UTC", MIDDAY, (2026, 1, 6)), ("@weekly", "UTC", MIDDAY, (2026, 1, 11)),
    ("@monthly", "UTC", MIDDAY, (2026, 2, 1)), ("@YEARLY", "UTC", MIDDAY, (2027, 1, 1)),
    ("@annually", "UTC", MIDDAY, (2027, 1, 1)), (" 0 0 * * * ", "UTC", MIDDAY, (2026, 1, 6)),
    # Intervals tick at multiples, for everybody.
    ("every 90 seconds", ZONES[4], (2026, 1, 5, 12), (2026, 1, 5, 12, 1, 30)),
    ("every 90 seconds", ZONES[4], (2026, 1, 5, 12, 0, 1, 500_000), (2026, 1, 5, 12, 1, 30)),
    ("every minute", "UTC", (2026, 1, 5, 12), (2026, 1, 5, 12, 1)),
    ("Every 2 Hours", "UTC", (2026, 1, 5, 12), (2026, 1, 5, 14)),
    ("every 1 day", "UTC", (2026, 1, 5, 12), (2026, 1, 6)),
])  # fmt: skip
def test_the_first_tick_after(text, zone, after, first) -> None:
    assert parse(text, zone).next(utc(*after)) == utc(*first)


def test_an_interval_needs_no_library(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    parse.cache_clear()
    assert parse("every 7 seconds").next(utc(2026, 1, 1)) > utc(2026, 1, 1)
    with pytest.raises(CronsimMissing, match=r"pip install \"django-leasequeue\[cron\]\".*every 5 minutes"):
        parse("0 0 * * *")


@pytest.mark.parametrize(("text", "zone", "message"), [
    ("", "UTC", "schedule must be a text"), ("x" * 129, "UTC", "at most 128"), (None, "UTC", "schedule must be a text"),
    ("nonsense", "UTC", "is not a schedule"), ("* * * *", "UTC", "is not a schedule"),
    ("61 * * * *", "UTC", "Bad minute"), ("0 0 31 2 *", "UTC", "is not a schedule"),
    ("@reboot", "UTC", "is not a schedule"), ("every", "UTC", "must be an interval like"),
    ("every 0 seconds", "UTC", "must be an interval like"), ("every 2 fortnights", "UTC", "must be an interval like"),
    ("every 9999 days", "UTC", "must be an interval like"), ("0 0 * * *", "Mars/Olympus", "timezone must be a name"),
    ("0 0 * * *", "../etc/passwd", "timezone must be a name"), ("0 0 * * *", "", "timezone must be a name"),
    ("0 0 * * *", "Europe", "timezone must be a name"),
])  # fmt: skip
def test_what_is_no_schedule_is_refused(text, zone, message) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        parse(text, zone)


def test_a_time_that_clocks_leave_out_runs_right_after_and_one_that_comes_twice_once() -> None:
    # Berlin, 2026-03-29: 02:00 becomes 03:00.
    days = ticks("30 2 * * *", "Europe/Berlin", utc(2026, 3, 28), utc(2026, 3, 31))
    assert days == [utc(2026, 3, 28, 1, 30), local("Europe/Berlin", 2026, 3, 29, 3), utc(2026, 3, 30, 0, 30)]
    assert len(ticks("0 * * * *", "Europe/Berlin", local("Europe/Berlin", 2026, 3, 29), utc(2026, 3, 29, 22))) == 22
    # Berlin, 2026-10-25: 03:00 becomes 02:00.
    days = ticks("30 2 * * *", "Europe/Berlin", utc(2026, 10, 24), utc(2026, 10, 27))
    assert days == [utc(2026, 10, 24, 0, 30), utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]
    assert parse("30 2 * * *", "Europe/Berlin").next(utc(2026, 10, 25, 1, 10)) == utc(2026, 10, 26, 1, 30)
    hours = ticks("*/30 * * * *", "Europe/Berlin", utc(2026, 10, 24, 23, 59), utc(2026, 10, 25, 3))
    assert {later - earlier for earlier, later in pairwise(hours)} == {timedelta(minutes=30)}


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_comes_once_on_each_day_of_a_year(zone) -> None:
    found = ticks("30 2 * * *", zone, local(zone, 2026, 1, 1), local(zone, 2027, 1, 1))
    assert len({tick.astimezone(ZoneInfo(zone)).date() for tick in found}) == len(found) == 365


@cache
def changes(zone: str) -> list[datetime]:
    """The hours in which the clocks of a zone change, 2025 to 2027."""
    hours = [utc(2025, 1, 1) + timedelta(hours=number) for number in range(3 * 366 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    return [hours[number] for number in range(1, len(hours)) if offsets[number] != offsets[number - 1]]


@st.composite
def zones_and_moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone, and a moment that is near a change of its clocks half of the time."""
    zone = draw(st.sampled_from(ZONES))
    if changes(zone) and draw(st.booleans()):
        return zone, draw(st.sampled_from(changes(zone))) + timedelta(seconds=draw(st.integers(-10_000, 10_000)))
    return zone, utc(2025, 1, 1) + timedelta(seconds=draw(st.floats(0, 3 * 365 * 86_400)))


# The first moments of a zone take long to find on a busy machine.
@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(text=st.sampled_from([*LINES, "every 7 minutes"]), place=zones_and_moments())
def test_ticks_go_forward_and_are_their_own_answer(text, place) -> None:
    zone, after = place
    schedule = parse(text, zone)
    first = schedule.next(after)
    second = schedule.next(first)
    assert after < first < second
    assert is_tick(schedule, first)
    assert not is_tick(schedule, first - timedelta(seconds=30))
    assert schedule.next(first - timedelta(microseconds=1)) == first
    assert schedule.next(first - timedelta(seconds=0.5)) == first


@given(text=st.sampled_from(LINES), place=zones_and_moments(), pause=st.integers(0, 5 * 86_400))
def test_the_newest_tick_of_a_pause_is_the_last_one_before_its_end(text, place, pause) -> None:
    zone, start = place
    schedule = parse(text, zone)
    due = schedule.next(start)
    now = due + timedelta(seconds=pause)
    expected, tick = due, due
    while (tick := schedule.next(tick)) <= now:
        expected = tick
    assert newest(schedule, due, now) == expected


def test_a_long_pause_is_not_walked_through(monkeypatch) -> None:
    schedule = parse("*/5 * * * * *")
    calls = []
    step = schedule.next

    def counted(after: datetime) -> datetime:
        calls.append(after)
        return step(after)

    monkeypatch.setattr(schedule, "next", counted)
    now = utc(2026, 6, 1)
    assert newest(schedule, utc(2020, 1, 1), now) == now
    assert len(calls) < 20_000
