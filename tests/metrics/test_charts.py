"""Charts: well-formed SVG without scripts and styles, honest scales, figures for who cannot see them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from django_leasequeue.metrics import charts
from tests.admin.pages import Page

TIMES = [datetime(2030, 1, 1, 12, tzinfo=UTC) + timedelta(minutes=n) for n in range(5)]


def test_a_chart_is_well_formed_and_has_neither_script_nor_style() -> None:
    html = charts.chart("c", "Jobs <b>", TIMES, [charts.Series("a & b", [1, 2, None, 4, 5])], unit="jobs")
    ET.fromstring(html)
    page = Page(html)
    assert not {"script", "style", "b"} & {tag for tag, _ in page.tags}
    assert page.inline == []


def test_a_chart_says_its_figures_and_unknown_ones_leave_a_gap() -> None:
    path = next(each for each in ET.fromstring(charts.sparkline([1, 1, None, 1, 1], "x")).iter("path"))
    assert path.get("d", "").count("M") == 2
    series = [charts.Series("done", [1, 2, None, 4000, 5])]
    root = ET.fromstring(charts.chart("c", "Jobs", TIMES, series, unit="a minute", stacked=True))
    (svg,) = [each for each in root.iter("svg") if each.get("role") == "img"]
    names = svg.get("aria-labelledby", "").split()
    said = {each.get("id"): each.text for each in root.iter() if each.get("id") in names}
    assert said == {"c-title": "Jobs", "c-desc": "done: 5 at the end, at most 4,000 a minute."}
    assert [cell.text for cell in root.iter("td")] == ["1", "2", "–", "4,000", "5"]  # noqa: RUF001


@pytest.mark.parametrize(("top", "expected"), [
    (0, [0, 1]), (1, [0, 0.25, 0.5, 0.75, 1]), (40, [0, 10, 20, 30, 40]), (41, [0, 20, 40, 60]), (float("nan"), [0, 1]),
])  # fmt: skip
def test_ticks_are_round_and_reach_the_top(top: float, expected: list[float]) -> None:
    assert charts.ticks(top) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [None], [None, None], [0], [7]])
def test_few_values_still_draw(values: list[float | None]) -> None:
    ET.fromstring(charts.sparkline(values, "x"))
    for stacked in (False, True):
        ET.fromstring(charts.chart("c", "x", TIMES[: len(values)], [charts.Series("a", values)], stacked=stacked))


def test_a_week_names_its_busiest_hour() -> None:
    root = ET.fromstring(charts.week("w", "Jobs an hour", {0: 2, 86: 40, 167: 1}))
    assert [each.text for each in root.iter("desc")] == ["Most on Thursday 14:00 to 15:00: 40."]
    shades = [float(each.get("fill-opacity", "")) for each in root.iter("rect")]
    assert (shades[1], len(shades)) == (max(shades), 3)


@pytest.mark.parametrize(("hours", "expected"), [
    (6, ["12:00", "13:00", "14:00", "15:00", "16:00", "17:00"]),
    (30, ["01 Jan 12:00", "01 Jan 17:00", "01 Jan 22:00", "02 Jan 03:00", "02 Jan 08:00", "02 Jan 13:00"]),
    (80, ["Wed 02 Jan", "Thu 03 Jan", "Fri 04 Jan"]),
    (336, ["Wed 02 Jan", "Fri 04 Jan", "Sun 06 Jan", "Tue 08 Jan", "Thu 10 Jan", "Sat 12 Jan", "Mon 14 Jan"]),
])  # fmt: skip
def test_days_stand_at_their_midnights_and_no_times_overlap(hours: int, expected: list[str]) -> None:
    times = [TIMES[0] + timedelta(hours=n) for n in range(hours)]
    html = charts.chart("c", "x", times, [charts.Series("a", [1.0] * hours)])
    marks = [each for each in ET.fromstring(html).iter("text") if each.get("class", "").startswith("lq-time")]
    assert [mark.text for mark in marks] == expected
    places = [float(mark.get("x", "")) for mark in marks]
    # A letter is at most 6.5 wide in the chart's own coordinates.
    width = 6.5 * len(expected[0])
    assert all(right - left > width for left, right in pairwise(places))
