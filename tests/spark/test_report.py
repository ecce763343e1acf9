"""The report: its page, for an operator; the files beside it, exact as Parquet and safe as CSV; the files it reads."""

import csv
import json
import re
import shlex
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.utils.html import conditional_escape
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.metrics.charts import DAYS
from django_leasequeue.spark import bronze, pipeline, report
from django_leasequeue.spark.advice import Links, actions, change, lasted, when
from django_leasequeue.spark.layout import FORMATS, Lake
from django_leasequeue.spark.page import budget, html, tones
from django_leasequeue.sql.log_notes import waiting_text
from tests.spark import gold
from tests.spark.conftest import plan
from tests.spark.helpers import SCHEMA, History, at

NOW = datetime(2030, 3, 14, 12, 20, tzinfo=UTC)  # a Thursday
HOUR = NOW.replace(minute=0)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.items: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.colours: dict[str, set[str]] = defaultdict(set)
        self._tone = ""
        self._legend = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._legend = (self._legend or found.get("class") == "lq-legend") and tag != "figure"
        if tag in {"link", "script", "img", "iframe"}:
            raise AssertionError(f"{tag} loads something")
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag == "g":
            self._tone = found.get("class") or ""
        if tag == "li":
            self.items.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in {"meta", "path", "rect"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"meta", "path", "rect"}:
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "li" in self.open:
            self.items[-1] += data
            if self._legend:
                self.colours[data].add(self._tone)
        if self.open and self.open[-1] in {"td", "th", "a", "b"} and self.rows and "tr" in self.open:
            self.rows[-1][-1] += data


def tables() -> dict[str, list[dict[str, Any]]]:
    """Two queues, a node that is ill, one that was, dead jobs, a backlog, waits in a busy hour."""

    def place(queue: str, **fields: Any) -> dict[str, Any]:
        return {"project": "", "queue": queue, **fields}

    counts = [
        place(queue, hour=HOUR - timedelta(hours=n), enqueued=many, claimed=many, completed=many, failed=0)
        for queue in ("mail", "images")
        for n, many in ((0, 10), (1, 20), (167, 30), (168, 40), (335, 5), (336, 1_000))
    ]
    names = ("node", "rate", "others_rate", "speed", "ill_since", "ill_until")

    def ill(*values: Any) -> dict[str, Any]:
        return {**node, "verdict": "sick", **dict(zip(names, values, strict=True))}

    node = {"n": 900, "unsuccessful": 300, "expired": 20, "first_at": HOUR - timedelta(days=9), "last_at": NOW}
    forecast = [
        place("mail", hour_of_week=hour, expected=1000.0 + peak, run=2.0, workers=4 + peak, wanted_wait=5.0)
        for hour, peak in ((hour, hour == 86) for hour in range(168))
    ]
    return {
        "run": [{"at": NOW - timedelta(minutes=12)}],
        "span": [{"first_at": HOUR - timedelta(days=16), "newest_at": NOW - timedelta(minutes=20)}],
        "throughput": counts,
        "backlog": [
            place("images", hour=HOUR - timedelta(hours=3), level=0), place("images", hour=HOUR, level=700),
            place("mail", hour=HOUR - timedelta(hours=2), level=0),
        ],
        "queue_latency": [
            *[place("mail", hour=HOUR - timedelta(hours=n), measure="wait", p99=10.0 * n, n=900) for n in (20, 22, 24)],
            place("images", hour=HOUR, measure="run", p99=3.0, n=900),
        ],
        "use": [place("mail", hour=HOUR - timedelta(hours=20), nodes=2, busy=3.4, most=4)],
        "weeks": [place("mail", measure="wait", this_n=5, this_p50=1.0, this_p99=9.0, last_p99=3.0)],
        "nodes": [
            ill("web 1/a", 0.33, 0.004, 1.1, datetime(2030, 3, 12, 9, 5, tzinfo=UTC), None),
            ill("mended", 0.2, 0.01, 1.0, HOUR - timedelta(days=8), HOUR - timedelta(days=7)),
        ],
        "poison": [
            place("images", task="resize", error_type="<Bad>", fingerprint="f1", failures=50, jobs=10, dead=10)
            | {"nodes": 3, "one_node": False, "first_at": HOUR - timedelta(days=2), "last_at": HOUR}
        ],
        "leases": [
            place("mail", node=None, n=1_000, lease=30.0, p99=28.0, near=90, expired=12, extended=0)
            | {"advice": "longer", "suggested": 84.0}
        ],
        "workflows": [], "critical_paths": [],
        "objectives": [place("mail", wanted_wait=5.0, n=900, in_time=886, share=0.984, budget_left=-0.6)],
        "time_split": [place("mail", n=10, total=100.0, delay=50.0, ready=5.0, retry_wait=5.0, run=40.0)],
        "retry_cost": [place("mail", task="send", outcome="failed", error_type="E", n=3, seconds=90.0, share=0.2)],
        "tenants": [
            place("mail", tag="tenant", tenant="acme & co", jobs=9, completed=8, failed=1)
            | {"seconds": 60.0, "share": 0.4, "waited": 1.0},
            place("mail", tag="tenant", tenant=None, jobs=1, completed=0, failed=0)
            | {"seconds": 0.0, "share": 0.0, "waited": None},
        ],
        "recoveries": [place("mail", began=HOUR - timedelta(hours=5), highest=900, ended=None, seconds=None)],
        "changes": [place("mail", measure="run", day=HOUR.date(), before=1.0, after=3.0, ratio=3.0, errors=9.0)],
        "quality": [{"check": "a job has one row", "rows": 9, "violations": 0}],
        "capacity": [place("mail", hour_of_week=hour, arrivals=float(hour)) for hour in range(168)],
        "forecast": [*forecast, place("images", hour_of_week=3, expected=1.0, run=1.0, workers=1, wanted_wait=5.0)],
    }  # fmt: skip


def test_the_first_thing_is_what_to_do() -> None:
    links = Links("https://ops/admin/workers/", "https://ops/admin/dead/")
    page = Page(html(tables(), links=links, now=NOW))
    assert [item.split(":")[0] for item in page.items[:5]] == [
        "Give images more workers", "Stop web 1/a", "Lengthen the leases of mail from 30 seconds to 84 seconds",
        "Plan at least 5 concurrent jobs for mail (Thursday 14", "Mend resize of images, then redrive 10 dead jobs",
    ]  # fmt: skip
    assert "sick since Tuesday 12 March 2030, 09:05 UTC (2 days 2 hours)" in page.items[1]
    assert "33 %" in page.items[1]
    assert page.items[4].endswith(
        "Rule: jobs are dead of one error that was seen in the newest 7 days."
        "manage.py leasequeue_dlq retry --queue images --fingerprint f1"
    )
    assert "4 were there in the last week" in page.items[3]
    assert "longest from Wednesday 13 March 2030, 12:00 UTC: 4 minutes" in page.items[3]
    assert page.links[:2] == ["https://ops/admin/workers/?node=web%201%2Fa", "https://ops/admin/dead/"]
    # One that was mended is no work any more, but stands in the table.
    assert not any("mended" in item for item in page.items)
    assert any(row[:2] == ["mended", "sick"] for row in page.rows)


def changed(**rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The week with other rows in tables: the first one's fields, and what is said of them here."""
    week = tables()
    return week | {name: [{**week[name][0], **row} for row in each] for name, each in rows.items()}


def hours(*ages: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"hour": HOUR - timedelta(hours=n), **fields} for n in ages]


EXPIRED = {"fingerprint": "lease_expired", "dead": 500}
#: What is other than in the week when an advice speaks; each time when it is silent.
SPEAK_AND_SILENT: dict[str, list[dict[str, list[dict[str, Any]]]]] = {
    "Bring": [{"run": [{"at": NOW - timedelta(hours=25)}]}, {"run": [{"at": NOW - timedelta(hours=23)}]}],
    "Trust": [{"quality": [{"violations": 1}]}, {}],
    "Stop": [
        {}, {"nodes": [{"verdict": "well"}]}, {"nodes": [{"ill_until": HOUR}]},
        {"nodes": [{"last_at": NOW - timedelta(hours=7)}]},
    ],
    "Look at": [{"nodes": [{"verdict": "slow"}]}, {}],
    # 120 dead of one error behind leases that expired; these, and what is long over, say nothing of a task.
    "Mend": [
        {"poison": [*({**EXPIRED, "task": str(n)} for n in range(9)), {"dead": 120}]},
        {"poison": [EXPIRED]}, {"poison": [{"dead": 0}]}, {"poison": [{"last_at": HOUR - timedelta(days=8)}]},
    ],
    # Few jobs are no backlog, nor are those that were there a day before, or that an hour's work takes away.
    "Give images": [
        {"backlog": [*hours(30, level=300), *hours(0, level=700)]},
        {"backlog": hours(0, level=36)}, {"backlog": [*hours(30, level=600), *hours(0, level=700)]},
        {"backlog": hours(0, level=700), "throughput": [{"queue": "images", "completed": 90_000}]},
    ],
    # One burst asks for nobody, nor do waits that more slots than the forecast needs have not prevented.
    "Plan": [
        {}, {"queue_latency": hours(22, p99=240.0)}, {"queue_latency": hours(20, 21, 22, p99=240.0, n=99)},
        {"queue_latency": hours(20, 21, 22, p99=4.9)}, {"queue_latency": hours(190, 191, 192, p99=240.0)},
        {"use": [{"most": 6}]},
    ],
    "Lengthen": [
        {}, {"leases": [{"near": 19}]}, {"leases": [{"advice": "abandoned"}]}, {"leases": [{"node": "a"}]},
    ],
    "Find out": [
        {"leases": [{"advice": "abandoned", "expired": 50, "p99": 33.0, "lease": 60.0}]},
        {"leases": [{"advice": "abandoned", "expired": 19}]}, {"leases": [{"advice": "node", "expired": 50}]},
    ],
}  # fmt: skip


def written(root: Path, week: dict[str, list[dict[str, Any]]], format: str) -> dict[str, list[dict[str, Any]]]:
    """Write tables of a week in two files each, and return what the report reads of them."""
    for name, rows in week.items():
        half = len(rows) // 2
        gold.write(root, name, [rows[half:], rows[:half]], format)
    return {name: report._in_order(name, report._read(root / "gold" / name)).to_pylist() for name in week}


@pytest.fixture(scope="module", params=FORMATS)
def week(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """The format, and the week as it is read from files of that format."""
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = tables()
    run = made.pop("run")
    return request.param, {**written(tmp_path_factory.mktemp("week"), made, request.param), "run": run}


@pytest.mark.parametrize("what", SPEAK_AND_SILENT)
def test_each_advice_speaks_by_its_rule_and_is_silent_else(what: str, week: tuple[str, Any], tmp_path: Path) -> None:
    format, base = week
    found = []
    for number, rows in enumerate(SPEAK_AND_SILENT[what]):
        other = {name: each for name, each in changed(**rows).items() if name in rows}
        run = {"run": other.pop("run")} if "run" in other else {}
        told = actions({**base, **written(tmp_path / str(number), other, format), **run}, NOW, Links())
        found.append([each for each in told if each.what.startswith(what)])
    speak, *silent = found
    assert [bool(each.why and each.rule and each.command.startswith("manage.py ")) for each in speak] == [True]
    assert silent == [[]] * len(silent)


def test_at_most_five_things_the_costliest_first() -> None:
    dead = [{"task": f"t{n}", "fingerprint": f"f{n}", "dead": n, "last_at": HOUR} for n in range(1, 27)]
    week = changed(poison=dead)
    found = actions(week, NOW, Links())
    assert [each.cost for each in found] == sorted((each.cost for each in found), reverse=True)
    page = Page(html(week, now=NOW))
    assert [item.split(":")[0] for item in page.items[:6]][3:5] == [
        "Mend t26 of images, then redrive 26 dead jobs", "Mend t25 of images, then redrive 25 dead jobs",
    ]  # fmt: skip
    assert "Mend" not in page.items[5]
    assert f"{len(found) - 5} more cost less." in html(week, now=NOW)


@pytest.mark.parametrize("format", FORMATS)
def test_the_status_lists_the_tables_of_a_lake(tmp_path: Path, format: str) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    week = tables()
    for name in ("poison", "span"):
        gold.write(tmp_path, name, [week[name], []], format)
    (empty,) = list(report.inventory(tmp_path / "none", NOW))
    assert empty.endswith(": no events, no run")
    for name, told in (("silver", {"newest_at": int(HOUR.timestamp() * 1e6)}), ("run", {"ended_at": NOW.timestamp()})):
        (tmp_path / "_notes" / name).mkdir(parents=True)
        (tmp_path / "_notes" / name / "part-0.txt").write_text(json.dumps(told))
    lake, poison, span = report.inventory(tmp_path, NOW + timedelta(minutes=5))
    assert lake == f"lake {tmp_path}: events up to Thursday 14 March 2030, 12:00 UTC, last run 5 minutes ago"
    told = "Delta, version 1" if format == "delta" else "Parquet"
    assert re.fullmatch(
        rf"table gold/poison: {told}, written .* ago, ordered by -dead -failures project queue task fingerprint", poison
    )
    assert span.startswith(f"table gold/span: {told}, written ")
    assert span.endswith(", in no order")


def test_commands_are_quoted_for_a_shell() -> None:
    week = changed(poison=[{"project": "shop a", "queue": "it's", "fingerprint": "f$1"}])
    (told,) = [each.command for each in actions(week, NOW, Links()) if each.what.startswith("Mend")]
    assert shlex.split(told)[2:] == ["retry", "--queue", "it's", "--fingerprint", "f$1", "--project", "shop a"]


def test_without_a_site_nothing_is_linked_and_each_colour_has_one_for_a_dark_ground() -> None:
    text = html(tables(), now=NOW)
    assert Page(text).links == []
    assert "http" not in text
    assert "<Bad>" not in text
    light, dark = text.split("@media screen and (prefers-color-scheme: dark)")
    for tone in range(8):
        assert f".lq-tone-{tone} {{ --tone: " in light
        assert f".lq-tone-{tone} {{ --tone: " in dark


def test_when_all_is_well_the_page_says_so() -> None:
    rows = {**{name: [] for name in tables()}, "run": [{"at": NOW}], "span": tables()["span"]}
    assert "Nothing to do: all is well." in html(rows, now=NOW)
    assert "No events yet." in html({**rows, "span": []}, now=NOW)


def test_how_fresh_the_figures_are_and_checks_that_failed_come_first() -> None:
    text = html(tables(), now=NOW)
    assert (
        "the newest event that was read, of Thursday 14 March 2030, 12:00, 8 minutes before the lake was brought up to"
        " date, which was 12 minutes before this report." in text
    )
    assert "open transaction" not in text
    # What happened long before the run makes all figures old.
    old = html(changed(span=[{"newest_at": NOW - timedelta(hours=7)}]), now=NOW)
    assert "6 hours 48 minutes before the lake was brought up to date" in old
    assert "an open transaction holds readers back" in old
    late = Page(html(tables(), now=NOW + timedelta(days=3))).items[0]
    assert late.startswith("Bring the lake up to date: the last run was 3 days ")
    text = html(changed(quality=[{"violations": 2}], run=[{"at": NOW + timedelta(seconds=40)}]), now=NOW)
    assert Page(text).items[0].startswith("Trust no figure that depends on these: a job has one row: not 2 times. ")
    assert "which was 0 seconds before this report" in text


def test_what_the_lake_cannot_read_after_a_restore_stands_at_the_head() -> None:
    said = waiting_text(6_036)
    assert "6,036 rows of the lease log lie above the horizon" in said
    for rows in (tables(), {**tables(), "span": []}):
        head = html({**rows, "waiting": [{"text": said}]}, now=NOW).partition("<h2>")[0]
        assert conditional_escape(said) in head
        assert "horizon" not in html(rows, now=NOW)


def test_how_well_the_queues_served() -> None:
    rows = Page(html(tables(), now=NOW)).rows
    start = next(n for n, row in enumerate(rows) if row[:2] == ["Queue", "Busiest hour"])
    assert [row[:2] + row[4:5] for row in rows[start + 1 :]] == [
        ["mail", "Thursday 14:00 to 15:00", "5"],
        ["images", "Monday 03:00 to 04:00", "1"],
    ]
    for row in (
        ["mail", "5", "900", "98.40 %", "60 % over budget"],
        ["mail", "10", "10 seconds", "50 %", "5.0 %", "5.0 %", "40 %"],
        ["mail", "send", "failed", "E", "3", "90 seconds", "20 %"],
        ["mail", "Thursday 14 March 2030, 07:00", "900", "", "-"],
        ["mail", "run", "Thursday 14 March", "1 second", "3 seconds"],
    ):
        assert row in rows
    (mail,) = [row for row in rows if row[0] == "mail" and "(" in row[1]]
    assert mail[1] == "60 (+33 %)"  # 10 + 20 + 30 against 40 + 5
    assert mail[4] == "9 seconds (3.0 times)"


def test_the_path_of_a_slow_workflow_says_what_would_help() -> None:
    """One of each name, the slowest first; the time that nobody took a ready step asks for workers."""

    def workflow(number: int, name: str, waited: float, queued: float, ran: float) -> dict[str, Any]:
        times = {"waited": waited, "queued": queued, "ran": ran, "wait_share": waited / (waited + ran)}
        found = {"project": "", "workflow": f"id-{number}", "name": name, "state": "completed", "steps": 4}
        return {**found, **times, "started_at": HOUR}

    def step(number: int, place: int, label: str, queue: str, times: tuple[float, float, float]) -> dict[str, Any]:
        told = dict(zip(("waited", "queued", "ran"), times, strict=True))
        found = {"project": "", "workflow": f"id-{number}", "step": place, "label": label, "task": "t"}
        return {**found, "queue": queue, **told}

    late = {
        **tables(),
        "nodes": [],
        "workflows": [
            workflow(1, "nightly", 5_000, 4_800, 1_000), workflow(2, "nightly", 10, 5, 10), workflow(3, "", 10, 5, 600),
            workflow(4, "held", 700, 5, 100),
        ],
        "critical_paths": [
            step(1, 3, "resize", "images", (4_800.0, 4_700.0, 400.0)),
            step(1, 2, "split", "mail", (100.0, 90.0, 500.0)), step(3, 1, "", "mail", (10.0, 5.0, 600.0)),
            step(4, 1, "call", "mail", (700.0, 5.0, 100.0)),
        ],
    }  # fmt: skip
    page = Page(html(late, now=NOW))
    (action,) = [item for item in page.items if "workflow" in item]
    assert action.startswith(
        "Give images more workers when the workflow nightly runs: its slowest run took 1 hour 40 min"
    )
    start = next(n for n, row in enumerate(page.rows) if row[:1] == ["Workflow"])
    nightly, held, unnamed = page.rows[start + 1 : start + 4]
    assert nightly[:2] + nightly[4:6] == ["nightly", "2", "1 hour 40 minutes", "83 %"]
    assert nightly[6] == (
        "split (mail) waited 100 seconds and ran 8 minutes; resize (images) waited 1 hour 20 minutes and ran 7 minutes;"
        " 2 other steps took 3 minutes"
    )
    assert nightly[7].startswith("More workers on images: 1 hour 18 minutes")
    assert (unnamed[0], unnamed[7]) == ("id-3", "A faster t, or several in its place: it ran 10 minutes")
    assert (held[0], held[7].split(":")[0]) == ("held", "A look at limits and retries")


def test_a_queue_has_one_colour_in_all_charts() -> None:
    page = Page(html(tables(), now=NOW))
    found = {name: colours for name, colours in page.colours.items() if name in {"mail", "images"}}
    assert len(found) == 2
    assert all(len(colours) == 1 for colours in found.values())
    assert len(set.union(*found.values())) == 2
    # Also when a queue is added.
    assert tones(["mail", "images"]).items() <= tones(["mail", "images", "zoo"]).items()
    assert len(set(tones([f"q{n}" for n in range(8)]).values())) == 8


def test_words() -> None:
    assert when(NOW) == "Thursday 14 March 2030, 12:20"
    words = {0.25: "0.25 seconds", 42: "42 seconds", 90: "90 seconds", 3_600: "1 hour", 90_000: "1 day 1 hour"}
    assert {seconds: lasted(seconds) for seconds in words} == words
    changes = {
        (5, 0): "new", (0, 5): "-", (1, 1): "as before", (3, 4): "-25 %", (9, 3): "3.0 times",
        (900, 1): "over 100 times",
    }  # fmt: skip
    assert {pair: change(*pair) for pair in changes} == changes
    assert DAYS[NOW.weekday()] == "Thursday"
    budgets = {0.37: "37 % left", 0.0: "0 % left", -0.6: "60 % over budget", -88.53: "88 times over budget"}
    assert {left: budget(left) for left in budgets} == budgets


def test_formulas_are_text_in_csv_and_as_they_were_in_parquet(tmp_path: Path) -> None:
    columns = {
        "queue": pa.array(["=cmd|' /C calc'!A0", "orders", None], pa.string()),
        "error_type": pa.array(["@SUM(1)", "-1", "a=b"], pa.large_string()),
        "nodes": pa.array([["+1", "x"], [], None], pa.list_(pa.string())),
        "hours": pa.array([[-1, 2], None, []], pa.list_(pa.int64())),
        "n": pa.array([-1, 0, None], pa.int64()),
    }
    report._save(pa.table(columns), tmp_path / "poison")
    with (tmp_path / "poison.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(columns)
    assert rows == [
        ["'=cmd|' /C calc'!A0", "'@SUM(1)", "'+1 x", "'-1 2", "-1"],
        ["orders", "'-1", "", "", "0"],
        ["", "a=b", "", "", ""],
    ]
    assert parquet.read_table(tmp_path / "poison.parquet").to_pydict() == {
        name: column.to_pylist() for name, column in columns.items()
    }


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_report_of_some_days(spark: SparkSession, tmp_path: Path, monkeypatch: Any, format: str) -> None:
    if format == "delta":
        pytest.importorskip("deltalake")
    lake, history = Lake(spark, str(tmp_path / "lake"), format), History()
    for day in range(10):
        history.job(86_400 * day, ("a", 86_400 * day + 1, 86_400 * day + 2, "acked"))
    events = spark.createDataFrame(history.rows, SCHEMA).withColumn("queue_id", f.lit(1))
    monkeypatch.setattr(bronze, "read_or_none", lambda lake: bronze.with_days(events))
    assert pipeline.refine(lake) == 10
    pipeline.figure(lake)
    newest = pipeline.silver(lake, "jobs", at(86_400 * 3).date())
    assert newest.count() == 7
    if format == "delta":
        assert (len(newest.inputFiles()), len(pipeline.silver(lake, "jobs").inputFiles())) == (7, 10)
    else:
        (scan,) = [line for line in plan(newest).splitlines() if "PartitionFilters" in line]
        assert "isnotnull(job_day#" in scan
        assert f" >= {at(86_400 * 3).date()})" in scan
    text = report.write(*report.by_spark(lake, 7), tmp_path / "newest").read_text()
    assert "Events from Friday 4 January 2030, 12:00" in text
    # What pyarrow reads alone is what Spark reads.
    lake.put_note("run", {"ended_at": at(0).timestamp()})
    (found, run), (same, same_run) = report.in_directory(lake.root), report.by_spark(lake)
    assert run == same_run == {"ended_at": at(0).timestamp()}
    for name, table in found.items():
        assert report._in_order(name, table).to_pylist() == report._in_order(name, same[name]).to_pylist()
    assert "Events from Tuesday 1 January 2030, 12:00" in report.write(found, run, tmp_path / "all").read_text()
    with pytest.raises(InvalidOption, match="run the pipeline first"):
        report.in_directory(tmp_path)
