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
#: Rows of one table that the page shows, and tenants.
MOST_ROWS, MOST_TENANTS = 50, 50
#: Colours of series in the stylesheet (classes ``lq-tone-0`` and following).
TONES = 8
_SHEET = Path(__file__).parents[1] / "static" / "leasequeue" / "report.css"


def columns_of(names: str, **titles: str) -> dict[str, str]:
    """Return the columns of a table with their titles, those that are not given made of the name."""
    return {name: titles.get(name, name.replace("_", " ").capitalize()) for name in names.split()}


_TIMES = columns_of("delay ready retry_wait run", delay="Delayed", retry_wait="Between attempts", run="Running")
_SPLIT = columns_of("queue n total", n="Jobs", total="Mean total") | _TIMES
_AIMS = columns_of("queue wanted_wait n", wanted_wait="Wanted wait, s", n="Attempts")
_AIMS |= columns_of("share budget_left", share="Started in time")
_COSTED = {"seconds": "Worker time", "share": "Of the queue's"}
_COSTS = columns_of("queue task outcome error_type n", error_type="Error", n="Attempts") | _COSTED
_TENANTS = columns_of("tenant queue jobs completed failed", tenant="Value") | _COSTED | {"waited": "Mean wait"}
_OUTAGES = {"highest": "Most jobs", "ended": "Usual again", "seconds": "Lasted"}
_RECOVERIES = columns_of("queue began highest ended seconds", **_OUTAGES)
_CHANGES = columns_of("queue measure day before after", measure="Time", day="Since")
_POISON = columns_of("queue task error_type fingerprint failures jobs dead nodes", error_type="Error")
_POISON |= columns_of("one_node first_at last_at", one_node="One node only", first_at="First", last_at="Last")
_LEASES = columns_of("queue node n lease p99", n="Attempts", lease="Lease, s", p99="Held, 99 % below, s")
_LEASES |= columns_of("near expired extended advice suggested", near="Nearly expired", suggested="Suggested, s")
_PEAKS = columns_of(
    "queue hour_of_week expected run", hour_of_week="Busiest hour", expected="Jobs expected", run="Run, s"
)
_PEAKS |= columns_of("workers wanted_wait", wanted_wait="Wanted wait, s")
_WEEKS = columns_of("queue enqueued completed failed", failed="Failed or dead")
_WEEKS |= {"wait": "Wait, 99 % below", "run": "Run, 99 % below"}
_NODES = columns_of("node verdict ill_since ill_until n unsuccessful", ill_until="Until", n="Attempts")
_NODES |= columns_of("expired rate", expired="Leases lost")
_NODES |= {"others_rate": "The others'", "speed": "Run time, times the others'"}
_WORKFLOWS = columns_of("name runs started_at state took", name="Workflow", started_at="Slowest began")
_WORKFLOWS |= {"share": "Of it waiting", "path": "Its slowest steps", "help": "What would help"}


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
    """How old the figures are, and how far they reach."""
    span, run = next(iter(rows["span"]), None), advice.last_run(rows)
    if span is None or span["newest_at"] is None:
        return format_html('<p class="lq-quiet">{}</p>', "No events yet.")
    # The clock of the machine that ran the pipeline may be ahead of this one's.
    ago = max(made - run, timedelta()) if run else None
    age = f"The lake was brought up to date {lasted(ago)} before this report. " if ago is not None else ""
    told = '<p class="lq-quiet">{}Events from {} to {}. Made {}. All times are UTC.</p>'
    return format_html(told, age, when(span["first_at"]), when(span["newest_at"]), when(made))


def _to_do(rows: Rows, made: datetime, links: Links) -> SafeString:
    found = advice.actions(rows, made, links)
    if not found:
        return format_html('<section class="well"><h2>{}</h2></section>', "Nothing to do: all is well.")
    told = ((each.what, each.why, link_to(each.link, "Open in the admin")) for each in found)
    items = format_html_join("", "<li><b>{}</b>: {}. {}</li>", told)
    return format_html('<section class="do"><h2>To do</h2><ol>{}</ol></section>', items)


def _section(title: str, note: str, body: SafeString) -> SafeString:
    return format_html("<h2>{}</h2>{}{}", title, format_html('<p class="lq-quiet">{}</p>', note) if note else "", body)


def _weeks(rows: Rows) -> SafeString:
    """This week against the last one: counts of the newest 168 hours, percentiles of the newest seven days."""
    end = max((row["hour"] for row in rows["throughput"] if row["hour"] is not None), default=None)
    counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows["throughput"]:
        week = (end - row["hour"]) // timedelta(hours=168) if end is not None and row["hour"] is not None else 2
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


def _service(rows: Rows) -> list[SafeString]:
    """How well the queues served in the newest seven days; sections without rows are left out."""
    split = [
        {**row, "total": lasted(row["total"] / row["n"])}
        | {part: percent(row[part] / row["total"] if row["total"] else None) for part in _TIMES}
        for row in rows["time_split"]
    ]
    tenants = [
        {**row, "tenant": row["tenant"] or "(none)", "seconds": lasted(row["seconds"]), "share": percent(row["share"])}
        | {"waited": "-" if row["waited"] is None else lasted(row["waited"])}
        for row in rows["tenants"][:MOST_TENANTS]
    ]
    tag = rows["tenants"][0]["tag"] if tenants else ""
    costs = [{**row, "seconds": lasted(row["seconds"]), "share": percent(row["share"])} for row in rows["retry_cost"]]
    outages = [
        {**row, "seconds": "-" if row["ended"] is None else lasted(row["seconds"])} for row in rows["recoveries"]
    ]
    aims = [
        {**row, "share": f"{100 * row['share']:.2f} %", "budget_left": f"{100 * row['budget_left']:.0f} %"}
        for row in sorted(rows["objectives"], key=lambda row: row["share"])
    ]
    changed = [
        {**row, "day": f"{row['day']:%A %-d %B}", "before": lasted(row["before"]), "after": lasted(row["after"])}
        for row in rows["changes"]
    ]
    told = (
        ("Objectives", "99 % of the jobs start within the wanted wait.", aims, _AIMS),
        ("Where the time went", "Of jobs that ended; shares of all their time from enqueue to end.", split, _SPLIT),
        ("What failed attempts cost", "Worker time that completed nothing.", costs, _COSTS),
        (f"By {tag}", f"What each {tag} had, most worker time first.", tenants, _TENANTS),
        ("Backlogs and recovery", "At least 100 jobs, and three times the median.", outages, _RECOVERIES),
        ("Changes", "From this day on the daily median differs from before.", changed, _CHANGES),
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
    hours = [row["hour"] for name in ("backlog", "throughput") for row in rows[name] if row["hour"] is not None]
    if not hours:
        return []
    last = max(hours)
    first = max(min(hours), last - timedelta(hours=MOST_HOURS - 1))
    times = [first + timedelta(hours=n) for n in range(int((last - first) / timedelta(hours=1)) + 1)]

    def chart(key: str, title: str, table: Sequence[Row], column: str, unit: str, between: str) -> SafeString:
        """Draw one column; an hour without a row has what it had before, nothing, or is unknown."""
        values: dict[str, dict[datetime, float]] = {name: defaultdict(float) for name in shown}
        for row in table:
            if row["hour"] is not None and row[column] is not None and queue_name(row) in values:
                values[queue_name(row)][row["hour"]] += float(row[column])
        series = [charts.Series(name, _filled(values[name], times, between), colours[name]) for name in shown]
        return charts.chart(key, title, [utc(time) for time in times], series, unit=unit)

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
    numbers = [SafeString(' class="lq-number"') if _numeric(name, rows[0][name]) else "" for name in columns]
    head = format_html_join("", '<th scope="col"{}>{}</th>', zip(numbers, columns.values(), strict=True))
    lines = (format_html_join("", "{}", ((_cell(row, name),) for name in columns)) for row in rows[:MOST_ROWS])
    body = format_html_join("", "<tr>{}</tr>", ((line,) for line in lines))
    left = len(rows) - MOST_ROWS
    more = format_html('<p class="lq-quiet">{} more are in the files beside this page.</p>', left) if left > 0 else ""
    framed = '<div class="lq-scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}'
    return format_html(framed, head, body, more)


def _numeric(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and name != "hour_of_week"


def _cell(row: Row, name: str) -> SafeString:
    value: Any = row[name]
    if name == "queue":
        return format_html("<td>{}</td>", queue_name(row))
    if name == "hour_of_week":
        return format_html("<td>{}</td>", charts.hour_of_week(value))
    if name == "node":
        link = row.get("link")
        return format_html("<td>{}</td>", link_to(link, str(value)) if link else "all" if value is None else value)
    if isinstance(value, bool):
        return format_html("<td>{}</td>", "yes" if value else "no")
    if _numeric(name, value):
        told = f"{100 * value:.1f} %" if name in {"rate", "others_rate"} else charts.figure(value)
        return format_html('<td class="lq-number">{}</td>', told)
    if isinstance(value, datetime):
        return format_html("<td>{}</td>", when(value))
    bad = value in {"sick", "slow", "longer", "abandoned"}
    return format_html("<td{}>{}</td>", SafeString(' class="bad"') if bad else "", "" if value is None else str(value))
