"""The page of the report: what to do, this week against the last one, curves, tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..metrics import charts
from . import advice
from .advice import LEASE_EXPIRED, Links, Row, Rows, change, lasted, percent, queue_name, utc, when

#: Queues and hours drawn in the charts. The files beside the page hold everything.
MOST_SERIES, MOST_HOURS = 7, 336
#: Rows of one table that the page shows.
MOST_ROWS = 50
#: Colours of series in the stylesheet (classes ``lq-tone-0`` and following).
TONES = 8
_SHEET = Path(__file__).parents[1] / "static" / "leasequeue" / "report.css"
#: Titles of columns that their names do not make.
_TITLES = {
    "delay": "Delayed", "retry_wait": "Between attempts", "n": "Attempts", "wanted_wait": "Wanted wait, s",
    "share": "Of the queue's", "seconds": "Worker time", "error_type": "Error", "one_node": "One node only",
    "first_at": "First", "last_at": "Last", "lease": "Lease, s", "p99": "Held, 99 % below, s", "near": "Nearly expired",
    "suggested": "Suggested, s", "hour_of_week": "Busiest hour", "expected": "Jobs expected", "ill_until": "Until",
    "expired": "Leases lost", "others_rate": "The others'", "speed": "Run time, times the others'",
    "path": "Its slowest steps", "help": "What would help", "waited": "Mean wait",
}  # fmt: skip


#: Columns of seconds that are told in words.
_DURATIONS = {"total", "seconds", "waited", "before", "after"}


def columns_of(names: str, **titles: str) -> dict[str, str]:
    """Return the columns of a table with their titles."""
    named = {**_TITLES, **titles}
    return {name: named.get(name, name.replace("_", " ").capitalize()) for name in names.split()}


_TIMES = columns_of("delay ready retry_wait run", run="Running")
_SPLIT = columns_of("queue n total", n="Jobs", total="Mean total") | _TIMES
_LEFT = "Of the 1 % that may be late"
_AIMS = columns_of("queue wanted_wait n share budget_left", share="Started in time", budget_left=_LEFT)
_COSTS = columns_of("queue task outcome error_type n seconds share")
_TENANTS = columns_of("tenant queue jobs completed failed seconds share waited", tenant="Value")
_OUTAGES = {"highest": "Most jobs", "ended": "Usual again", "seconds": "Lasted"}
_RECOVERIES = columns_of("queue began highest ended seconds", **_OUTAGES)
_CHANGES = columns_of("queue measure day before after", measure="Time", day="Since")
_POISON = columns_of("queue task error_type fingerprint failures jobs dead nodes one_node first_at last_at")
_LEASES = columns_of("queue node n lease p99 near expired extended advice suggested", expired="Expired")
_PEAKS = columns_of("queue hour_of_week expected run workers wanted_wait", run="Run, s")
_PERCENTILES = {"wait": "Wait, 99 % below", "run": "Run, 99 % below"}
_WEEKS = columns_of("queue enqueued completed failed wait run", failed="Failed or dead", **_PERCENTILES)
_NODES = columns_of("node verdict ill_since ill_until n unsuccessful expired rate others_rate speed")
_SLOWEST = {"name": "Workflow", "started_at": "Slowest began", "share": "Of it waiting"}
_WORKFLOWS = columns_of("name runs started_at state took share path help", **_SLOWEST)


def html(rows: Rows, *, links: Links | None = None, now: datetime | None = None) -> str:
    """Return the page."""
    made = now or datetime.now(UTC)
    links = links or Links()
    # Expired leases would fill the list: they come behind what the handlers said.
    errors = sorted(rows["poison"], key=lambda row: row["fingerprint"] == LEASE_EXPIRED)
    ill_first = sorted(rows["nodes"], key=lambda row: row["verdict"] not in {"sick", "slow"})
    nodes = [{**row, "link": links.node(str(row["node"]))} for row in ill_first]
    with timezone.override(UTC):
        parts = [
            format_html("<h1>Lease queue report</h1>{}", _fresh(rows, made)),
            _to_do(rows, made, links),
            _weeks(rows),
            *_service(rows),
            *_curves(rows),
            _section("Nodes", "Compared with the other nodes on the same queues.", table(nodes, _NODES)),
            _section("Failures that look alike", "", table(errors, _POISON)),
            _section(
                "Slowest workflows",
                "Of the newest seven days: the slowest run of each, and its critical path, the chain of jobs that took"
                " as long as all of it.",
                _workflows(rows),
            ),
            _section("Leases", "By queue, and by node on it.", table(sorted(rows["leases"], key=_by_advice), _LEASES)),
            *_heat(rows),
            _section(
                "Workers at the peak of the coming week",
                "Concurrent jobs with which 99 % of the jobs wait no longer than wanted, if they come evenly at random"
                " (M/M/c): take it as the least.",
                table(advice.peaks(rows), _PEAKS),
            ),
        ]
    style = _SHEET.read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Lease queue report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body>'
        + "\n".join(parts)
        + "</body></html>"
    )


def _fresh(rows: Rows, made: datetime) -> SafeString:
    """How far the figures reach and how old they are, and whether readers wait for events of a restored database."""
    span, run, newest = next(iter(rows["span"]), None), advice.last_run(rows), advice.newest_event(rows)
    waiting = format_html_join("", "<p><b>{}</b></p>", ((row["text"],) for row in rows.get("waiting", ())))
    if span is None or newest is None:
        return waiting + format_html('<p class="lq-quiet">{}</p>', "No events yet.")
    told = f"All figures and rules go by the newest event that was read, of {when(newest)}"
    if run:
        # The clock of the machine that ran the pipeline may be ahead of the database's or of this one's.
        lag, ago = (lasted(max(each, timedelta())) for each in (run - newest, made - run))
        told += f", {lag} before the lake was brought up to date, which was {ago} before this report"
    late = run is not None and run - newest > advice.LATE
    why = "Nothing happened since, or an open transaction holds readers back (see leasequeue_lake status)."
    quiet, why = ("", why) if late else ("lq-quiet", "")
    lines = '<p class="{}">{}. {}</p><p class="lq-quiet">Events from {} on. Made {}. All times are UTC.</p>'
    return waiting + format_html(lines, quiet, told, why, when(span["first_at"]), when(made))


def _to_do(rows: Rows, made: datetime, links: Links) -> SafeString:
    found = advice.actions(rows, made, links)
    if not found:
        return format_html('<section class="well"><h2>{}</h2></section>', "Nothing to do: all is well.")
    shown, left = found[: advice.MOST_ACTIONS], len(found) - advice.MOST_ACTIONS
    told = ((each.what, each.why, link_to(each.link, "Open in the admin"), each.rule, each.command) for each in shown)
    item = '<li><b>{}</b>: {}. {}<div class="lq-quiet">Rule: {}.</div><code>{}</code></li>'
    more = format_html('<p class="lq-quiet">{} more cost less.</p>', left) if left > 0 else ""
    items = format_html_join("", item, told)
    return format_html('<section class="do"><h2>To do, the costliest first</h2><ol>{}</ol>{}</section>', items, more)


def _section(title: str, note: str, body: SafeString) -> SafeString:
    return format_html("<h2>{}</h2>{}{}", title, format_html('<p class="lq-quiet">{}</p>', note) if note else "", body)


def _last_hour(rows: Rows) -> datetime | None:
    newest = advice.newest_event(rows)
    return newest and newest.replace(minute=0, second=0, microsecond=0)


def _weeks(rows: Rows) -> SafeString:
    """This week against the last one: counts of the newest 168 hours, percentiles of the newest seven days."""
    end = _last_hour(rows)
    counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows["throughput"]:
        week = (end - utc(row["hour"])) // timedelta(hours=168) if end else 2
        if week < 2:
            for name in ("enqueued", "completed", "failed"):
                counts[queue_name(row)][f"{name}{week}"] += row[name]
    times = {(queue_name(row), row["measure"]): row for row in rows["weeks"]}
    lines = []
    for name, sums in sorted(counts.items()):
        line: Row = {"queue": name}
        for what in ("enqueued", "completed", "failed"):
            this, last = sums[f"{what}0"], sums[f"{what}1"]
            line[what] = f"{charts.figure(this)} ({change(this, last)})"
        for what in ("wait", "run"):
            row = times.get((name, what), {})
            value, before = row.get("this_p99"), row.get("last_p99")
            line[what] = "-" if value is None else f"{lasted(value)} ({change(value, before)})"
        lines.append(line)
    note = "The newest seven days; in brackets the change."
    return _section("This week against the last", note, table(lines, _WEEKS))


def budget(left: float) -> str:
    """Return what is left of a budget: ``40 % left``, ``60 % over budget``, ``88 times over budget``."""
    if left >= 0:
        return f"{100 * left:.0f} % left"
    return f"{-100 * left:.0f} % over budget" if left > -2 else f"{int(-left)} times over budget"


def _service(rows: Rows) -> list[SafeString]:
    """How well the queues served in the newest seven days; sections without rows are left out."""
    split = [
        {**row, "total": row["total"] / row["n"]}
        | {part: percent(row[part] / row["total"] if row["total"] else None) for part in _TIMES}
        for row in rows["time_split"]
    ]
    tenants = [{**row, "tenant": row["tenant"] or "(none)"} for row in rows["tenants"]]
    tag = tenants[0]["tag"] if tenants else ""
    aims = [
        {**row, "share": f"{100 * row['share']:.2f} %", "budget_left": budget(row["budget_left"])}
        for row in rows["objectives"]
    ]
    told = (
        ("Objectives", "99 % of the jobs start within the wanted wait.", aims, _AIMS),
        ("Where the time went", "Of jobs that ended; shares of all their time from enqueue to end.", split, _SPLIT),
        ("What failed attempts cost", "Worker time that completed nothing.", rows["retry_cost"], _COSTS),
        (f"By {tag}", f"What each {tag} had, most worker time first.", tenants, _TENANTS),
        ("Backlogs and recovery", "At least 100 jobs, and three times the median.", rows["recoveries"], _RECOVERIES),
        ("Changes", "From this day on the daily median differs from before.", rows["changes"], _CHANGES),
    )
    return [_section(title, note, table(lines, columns)) for title, note, lines, columns in told if lines]


def tones(names: Sequence[str]) -> dict[str, int]:
    """Return a colour for each queue: by its name, so that it stays from chart to chart and from report to report."""
    taken: dict[str, int] = {}
    for name in sorted(names):
        tone = crc32(name.encode()) % TONES
        while tone in taken.values() and len(taken) < TONES:
            tone = (tone + 1) % TONES
        taken[name] = tone
    return taken


def _curves(rows: Rows) -> list[SafeString]:
    jobs: dict[str, float] = defaultdict(float)
    for row in rows["throughput"]:
        jobs[queue_name(row)] += row["enqueued"] + row["claimed"]
    shown = sorted(sorted(jobs, key=lambda name: (-jobs[name], name))[:MOST_SERIES])
    colours = tones(shown)
    hours = [utc(row["hour"]) for name in ("backlog", "throughput") for row in rows[name]]
    last = _last_hour(rows)
    if not hours or last is None:
        return []
    first = max(min(hours), last - timedelta(hours=MOST_HOURS - 1))
    times = [first + timedelta(hours=n) for n in range(int((last - first) / timedelta(hours=1)) + 1)]

    def chart(key: str, title: str, table: Sequence[Row], column: str, unit: str, between: str) -> SafeString:
        """Draw one column; an hour without a row has what it had before, nothing, or is unknown."""
        values: dict[str, dict[datetime, float]] = {name: defaultdict(float) for name in shown}
        for row in table:
            if row[column] is not None and queue_name(row) in values:
                values[queue_name(row)][utc(row["hour"])] += float(row[column])
        series = [charts.Series(name, _filled(values[name], times, between), colours[name]) for name in shown]
        return charts.chart(key, title, times, series, unit=unit)

    def measured(name: str) -> list[Row]:
        return [row for row in rows["queue_latency"] if row["measure"] == name]

    p99 = "99 % of the jobs below"
    return [
        format_html("<h2>{}</h2>", "Hour by hour"),
        chart("backlog", "Jobs that wait or run, at the end of the hour", rows["backlog"], "level", "jobs", "level"),
        chart("wait", f"Wait for a worker, seconds: {p99}", measured("wait"), "p99", "s", "unknown"),
        chart("run", f"Run time, seconds: {p99}", measured("run"), "p99", "s", "unknown"),
        chart("total", f"From enqueue to end, seconds: {p99}", measured("total"), "p99", "s", "unknown"),
        chart("done", "Jobs completed in the hour", rows["throughput"], "completed", "jobs", "zero"),
    ]


def _filled(known: dict[datetime, float], times: Sequence[datetime], between: str) -> list[float | None]:
    """Return a value for each hour."""
    before = [at for at in known if at < times[0]]
    level: float | None = known[max(before)] if before else None
    filled: list[float | None] = []
    for at in times:
        level = known.get(at, level)
        filled.append(level if between == "level" or at in known else 0 if between == "zero" else None)
    return filled


def _heat(rows: Rows) -> list[SafeString]:
    by_queue: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows["capacity"]:
        by_queue[queue_name(row)][row["hour_of_week"]] = float(row["arrivals"] or 0)
    first = sorted(by_queue, key=lambda name: (-sum(by_queue[name].values()), name))[:3]
    made = [charts.week(f"week-{n}", f"Usual jobs an hour: {name}", by_queue[name]) for n, name in enumerate(first)]
    return [format_html("<h2>{}</h2>", "Load by hour of the week"), *made] if made else []


def _by_advice(row: Row) -> tuple[str, bool, int, str]:
    order = {"longer": 0, "node": 1, "abandoned": 2, "shorter": 3}
    return queue_name(row), row["node"] is not None, order.get(row["advice"], 4), row["node"] or ""


def _workflows(rows: Rows) -> SafeString:
    lines = [
        {"name": slow.title, "runs": slow.runs, "started_at": slow.row["started_at"], "state": slow.row["state"]}
        | {"took": lasted(slow.took), "share": percent(slow.row["wait_share"])}
        | {"path": slow.path(), "help": slow.help()}
        for slow in advice.slowest(rows)
    ]
    return table(lines, _WORKFLOWS)


def link_to(address: str, text: str) -> SafeString | str:
    """Return a link, or nothing without an address."""
    return format_html('<a href="{}">{}</a>', address, text) if address else ""


def table(rows: Sequence[Row], columns: dict[str, str]) -> SafeString:
    """Return rows as a table with these columns, and a line that says how many more there are."""
    if not rows:
        return format_html('<p class="empty">{}</p>', "Nothing.")
    titles = ((_cell(rows[0], name)[0].replace("bad", ""), title) for name, title in columns.items())
    head = format_html_join("", '<th scope="col" class="{}">{}</th>', titles)

    def line(row: Row) -> SafeString:
        cells = ((*_cell(row, name), title) for name, title in columns.items())
        # On a phone a cell is a line with its title.
        return format_html_join("", '<td class="{0}" data-title="{2}">{1}</td>', cells)

    body = format_html_join("", "<tr>{}</tr>", ((line(row),) for row in rows[:MOST_ROWS]))
    left = len(rows) - MOST_ROWS
    more = format_html('<p class="lq-quiet">{} more are in the files beside this page.</p>', left) if left > 0 else ""
    framed = '<div class="lq-scroll lq-cards"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}'
    return format_html(framed, head, body, more)


def _cell(row: Row, name: str) -> tuple[str, SafeString | str]:
    """Return the class of a cell and what stands in it."""
    value: Any = row[name]
    if name == "queue":
        return "", queue_name(row)
    if name == "hour_of_week":
        return "", charts.hour_of_week(value)
    if name == "node":
        return "", link_to(row.get("link") or "", str(value)) or ("all" if value is None else str(value))
    if name in _DURATIONS and not isinstance(value, str):
        return "", "-" if value is None else lasted(value)
    if isinstance(value, bool):
        return "", "yes" if value else "no"
    if name == "share" and isinstance(value, float):
        return "", percent(value)
    if name == "day":
        return "", f"{value:%A %-d %B}"
    if isinstance(value, int | float):
        told = f"{100 * value:.1f} %" if name in {"rate", "others_rate"} else charts.figure(value)
        return "lq-number", told
    if isinstance(value, datetime):
        return "", when(value)
    return "bad" if value in {"sick", "slow", "longer", "abandoned"} else "", "" if value is None else str(value)
