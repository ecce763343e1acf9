"""Advice to operators from the gold tables, also on what would make workflows shorter; figures in words."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin

from ..metrics.charts import figure, hour_of_week

#: A row of a gold table, and the rows of all by name.
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

#: A lake whose last run is older than this is called stale.
STALE = timedelta(hours=24)
#: Events that end so long before the last run are called late.
LATE = timedelta(hours=1)
#: What advice is taken from.
RECENT = timedelta(hours=168)
#: A node that did nothing for so long before the newest event is not running any more.
GONE = timedelta(hours=6)
#: Seconds of work that may wait before more workers are advised.
MUCH = 900.0
#: Jobs below which no backlog is one, and no percentile of an hour counts; attempts below which no lease is judged.
MANY, SOME = 100, 20
#: Hours with long waits below which they are a burst.
HOURS, DAY = 3, timedelta(hours=24)
#: The fingerprint that silver gives to expired leases.
LEASE_EXPIRED = "lease_expired"
#: Things to do that the page shows.
MOST_ACTIONS = 5
#: Workflows that are listed.
MOST_WORKFLOWS = 10
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def utc(at: datetime) -> datetime:
    """Return a time in UTC; Spark's times bear no zone and are UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def queue_name(row: Row) -> str:
    """Return the name of a row's queue, with its project."""
    return f"{row['project']}/{row['queue']}" if row.get("project") else str(row["queue"])


def when(at: datetime) -> str:
    """Return a time: ``Thursday 14 March 2030, 09:05``."""
    return f"{utc(at):%A %-d %B %Y, %H:%M}"


def lasted(span: timedelta | float) -> str:
    """Return a duration in its one or two largest units: ``2 days 3 hours``, ``4 minutes``, ``1.5 seconds``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 120:
        told = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        return f"{told} second{'s' if told != '1' else ''}"
    parts = []
    rest = round(seconds / 60) * 60
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])


def percent(share: float | None) -> str:
    """Return a share: ``37 %``, ``0.4 %``."""
    if share is None:
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def change(this: float | None, last: float | None) -> str:
    """Return a change against the last week: ``+12 %``, ``three times``, ``as before``."""
    if not this or not last:
        return "new" if this else "-"
    ratio = this / last
    if abs(ratio - 1) < 0.005:
        return "as before"
    if ratio > 100:
        return "over 100 times"
    return f"{ratio:.1f} times" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


class Slow(NamedTuple):
    """The slowest run of a workflow, and what its steps say."""

    row: Row
    title: str
    #: How many of that name are among the slowest.
    runs: int
    steps: list[Row]
    #: The queue on which its slowest steps waited longest for a worker, and for how many seconds.
    place: str
    queued: float

    @property
    def took(self) -> float:
        return float(self.row["waited"] + self.row["ran"])

    def path(self) -> str:
        """Say where the time went: the slowest steps in their order, and what the others took together."""
        told = [
            f"{step['label'] or step['task'] or 'a job'} ({queue_name(step)}) waited {lasted(step['waited'])}"
            f" and ran {lasted(step['ran'])}"
            for step in self.steps
        ]
        others = self.row["steps"] - len(self.steps)
        if others > 0:
            rest = self.took - sum(step["waited"] + step["ran"] for step in self.steps)
            told.append(f"{others} other steps took {lasted(max(rest, 0.0))}")
        return "; ".join(told)

    def help(self) -> str:
        if not self.steps:
            return ""
        ran: dict[str, float] = defaultdict(float)
        for step in self.steps:
            ran[step["task"] or step["label"] or "the job"] += step["ran"]
        task = max(ran, key=lambda name: ran[name])
        held = sum(step["waited"] - step["queued"] for step in self.steps)
        if self.queued >= max(ran[task], held):
            return f"More workers on {self.place}: {lasted(self.queued)} its steps were ready and not claimed"
        if ran[task] >= held:
            return f"A faster {task}, or several in its place: it ran {lasted(ran[task])}"
        return f"A look at limits and retries: {lasted(held)} its steps were held back by them"


def slowest(rows: Rows) -> list[Slow]:
    """Return the slowest run of each workflow, the slowest first."""
    steps: dict[str, list[Row]] = defaultdict(list)
    for step in rows["critical_paths"]:
        steps[step["workflow"]].append(step)
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows["workflows"]:
        runs[row["project"], row["name"] or row["workflow"]].append(row)
    found = []
    for (project, name), mine in runs.items():
        row = max(mine, key=lambda each: each["waited"] + each["ran"])
        path = sorted(steps[row["workflow"]], key=lambda step: step["step"])
        waits: dict[str, float] = defaultdict(float)
        for step in path:
            waits[queue_name(step)] += step["queued"]
        place = max(waits, key=lambda queue: waits[queue], default="")
        title = f"{project}/{name}" if project else name
        found.append(Slow(row, title, len(mine), path, place, waits[place]))
    return sorted(found, key=lambda slow: (-slow.took, slow.title))[:MOST_WORKFLOWS]


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the admin: of the workers' page and of the dead letters' page; empty where it is not known."""

    workers: str = ""
    dead_letters: str = ""

    @classmethod
    def of(cls, site: str | None) -> Links:
        """Return the links of a site (``https://ops.example.com``), none where its admin has no such pages."""
        from django.urls import NoReverseMatch, reverse

        if not site:
            return cls()
        try:
            pages = [reverse(f"admin:leasequeue_{name}") for name in ("workers", "deadletters")]
        except NoReverseMatch:
            return cls()
        return cls(*[urljoin(site, page) for page in pages])

    def node(self, name: str) -> str:
        return f"{self.workers}?node={quote(name, safe='')}" if self.workers else ""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: in a few words, the figure, the rule that it broke, the command, and where to look."""

    what: str
    why: str
    rule: str
    command: str
    #: Jobs or attempts that it costs: the costliest thing comes first.
    cost: float
    link: str = ""


def actions(rows: Rows, now: datetime, links: Links) -> list[Action]:
    """Return what is to be done, the costliest first; before all what makes figures doubtful."""
    end = newest_event(rows) or now
    found = [*_stale(rows, now), *_broken(rows), *_nodes(rows, end, links), *_poison(rows, end, links)]
    found += [*_backlog(rows, end), *_waits(rows, end), *_workflows(rows), *_leases(rows)]
    return sorted(found, key=lambda each: (-each.cost, each.what))


def command(name: str, *words: object, row: Row | None = None) -> str:
    """Return a command of ``manage.py``, words quoted for a shell; ``row``: its project is named, where it has one."""
    project = ["--project", row["project"]] if row and row.get("project") else []
    return " ".join(["manage.py", name, *map(shlex.quote, map(str, [*words, *project]))])


def newest_event(rows: Rows) -> datetime | None:
    """Return the one clock of all rules: when the newest event that was read occurred."""
    return next((utc(row["newest_at"]) for row in rows["span"] if row["newest_at"] is not None), None)


def last_run(rows: Rows) -> datetime | None:
    """Return when the lake was last brought up to date."""
    return next((row["at"] for row in rows["run"]), None)


def _stale(rows: Rows, now: datetime) -> list[Action]:
    at = last_run(rows)
    if at is None or now - at <= STALE:
        return []
    why = f"the last run was {lasted(now - at)} ago; what follows is as old"
    rule = "the last run ended more than a day ago"
    return [Action("Bring the lake up to date", why, rule, command("leasequeue_lake run"), math.inf)]


def _broken(rows: Rows) -> list[Action]:
    broken = [f"{row['check']}: not {figure(row['violations'])} times" for row in rows["quality"] if row["violations"]]
    if not broken:
        return []
    rule, why = "a check of the tables failed", "; ".join(broken)
    return [Action("Trust no figure that depends on these", why, rule, command("leasequeue_verify"), math.inf)]


def _nodes(rows: Rows, end: datetime, links: Links) -> Iterator[Action]:
    for row in rows["nodes"]:
        if row["verdict"] not in {"sick", "slow"} or row["ill_until"] is not None or row["ill_since"] is None:
            continue
        if end - utc(row["last_at"]) > GONE:
            continue
        since = utc(row["ill_since"])
        if row["verdict"] == "sick":
            what, cost = "Stop", row["n"] * (row["rate"] - row["others_rate"])
            how = f"{percent(row['rate'])} of its attempts failed or lost their lease, of the others'"
            how += f" on the same queues {percent(row['others_rate'])}"
            rule = "a node fails four standard deviations and 5 points more often than the others on its queues"
        else:
            what, cost = "Look at", row["n"] * (1 - 1 / row["speed"])
            how = f"its jobs take {row['speed']:.1f} times as long as the others'"
            rule = "a node's jobs take over twice as long as the others'"
        rule += f", goes on, and worked in the newest {lasted(GONE)}"
        told = f"{row['verdict']} since {when(since)} UTC ({lasted(end - since)}): {how}"
        status, link = command("leasequeue_status"), links.node(str(row["node"]))
        yield Action(f"{what} {row['node']}", told, rule, status, cost, link)


def _poison(rows: Rows, end: datetime, links: Links) -> Iterator[Action]:
    for row in rows["poison"]:
        # Expired leases are no error: see the leases.
        if not row["dead"] or row["fingerprint"] == LEASE_EXPIRED:
            continue
        if end - utc(row["last_at"]) >= RECENT:
            continue
        jobs, nodes = ("job" if row["dead"] == 1 else "jobs"), ("node" if row["nodes"] == 1 else "nodes")
        what = f"Mend {row['task'] or 'the task'} of {queue_name(row)}, then redrive {figure(row['dead'])} dead {jobs}"
        why = f"all of {row['error_type']}, from {when(row['first_at'])} to {when(row['last_at'])} UTC, on"
        rule = f"jobs are dead of one error that was seen in the newest {lasted(RECENT)}"
        retry = command("leasequeue_dlq retry --queue", row["queue"], "--fingerprint", row["fingerprint"], row=row)
        yield Action(what, f"{why} {row['nodes']} {nodes}", rule, retry, row["dead"], links.dead_letters)


def _late(rows: Rows, end: datetime) -> list[tuple[Row, float, float]]:
    """Return queues with too much waiting: the row of the last hour, its level, and the seconds of work that it is."""
    levels: dict[str, list[Row]] = defaultdict(list)
    for row in rows["backlog"]:
        levels[queue_name(row)].append(row)
    done: dict[str, float] = defaultdict(float)
    for row in rows["throughput"]:
        if end - utc(row["hour"]) < DAY:
            done[queue_name(row)] += row["completed"] / 24
    found = []
    for name, known in levels.items():
        now = max(known, key=lambda row: row["hour"])
        before = max((row for row in known if end - utc(row["hour"]) >= DAY), key=lambda row: row["hour"], default=None)
        seconds = now["level"] / done[name] * 3_600 if done[name] else math.inf
        more = before is None or now["level"] >= 2 * before["level"] or not done[name]
        if now["level"] >= MANY and seconds > MUCH and more:
            found.append((now, now["level"], seconds))
    return found


def _backlog(rows: Rows, end: datetime) -> Iterator[Action]:
    rule = f"{MANY} jobs or more wait or run, over {lasted(MUCH)} of the last day's work and twice those of a day ago"
    for row, level, seconds in _late(rows, end):
        left = f"at the rate of the last day that is {lasted(seconds)} of work" if seconds < math.inf else ""
        why = f"{figure(level)} jobs wait or run; {left or 'none was completed in the last day'}"
        run = command("runworker --queues", row["queue"], row=row)
        yield Action(f"Give {queue_name(row)} more workers", why, rule, run, level)


def peaks(rows: Rows) -> list[Row]:
    """Return of each queue the hour of the coming week that needs the most workers, the highest first."""
    highest: dict[str, Row] = {}
    for row in sorted(rows["forecast"], key=lambda row: (-(row["workers"] or 0), -(row["expected"] or 0))):
        highest.setdefault(queue_name(row), row)
    return sorted(highest.values(), key=lambda row: (-(row["workers"] or 0), queue_name(row)))


def _waits(rows: Rows, end: datetime) -> Iterator[Action]:
    needs = {queue_name(row): row for row in peaks(rows)}
    # Where jobs wait now, the backlog asks for workers already.
    for row, *_ in _late(rows, end):
        needs.pop(queue_name(row), None)
    missed = {queue_name(row): row["n"] - row["in_time"] for row in rows["objectives"]}
    there: dict[str, int] = defaultdict(int)
    for row in rows["use"]:
        if end - utc(row["hour"]) < RECENT:
            there[queue_name(row)] = max(there[queue_name(row)], row["most"], row["nodes"])
    late: dict[str, list[Row]] = defaultdict(list)
    for row in rows["queue_latency"]:
        need = needs.get(queue_name(row))
        if row["measure"] != "wait" or need is None or end - utc(row["hour"]) >= RECENT:
            continue
        if row["n"] >= MANY and row["p99"] > need["wanted_wait"]:
            late[queue_name(row)].append(row)
    rule = f"over 1 % waited too long in {HOURS} hours of the week, and the forecast needs more slots than were there"
    for name, hours in late.items():
        need, worst = needs[name], max(hours, key=lambda row: (row["p99"], row["hour"]))
        if len(hours) < HOURS or (need["workers"] or 0) <= there[name]:
            continue
        what = f"Plan at least {need['workers']} concurrent jobs for {name} ({hour_of_week(need['hour_of_week'])})"
        why = f"{there[name]} were there in the last week; in {len(hours)} of its hours 1 % of the jobs waited longer"
        why += f" than the wanted {lasted(need['wanted_wait'])}, longest from {when(worst['hour'])} UTC:"
        why += f" {lasted(worst['p99'])}"
        run = command("runworker --queues", need["queue"], "--concurrency", need["workers"], row=need)
        yield Action(what, why, rule, run, missed.get(name, sum(row["n"] for row in hours) / 100))


def _workflows(rows: Rows) -> Iterator[Action]:
    rule = f"steps of its slowest run were ready for {lasted(MUCH)} and half of its time, and no worker took them"
    for slow in slowest(rows):
        if slow.queued > max(MUCH, slow.took / 2):
            why = f"its slowest run took {lasted(slow.took)}; {lasted(slow.queued)} of that its steps were ready"
            what = f"Give {slow.place} more workers when the workflow {slow.title} runs"
            step = next(step for step in slow.steps if queue_name(step) == slow.place)
            run, cost = command("runworker --queues", step["queue"], row=step), float(slow.row["steps"] * slow.runs)
            yield Action(what, f"{why} and nobody took them", rule, run, cost)


def _leases(rows: Rows) -> Iterator[Action]:
    for row in rows["leases"]:
        name = queue_name(row)
        if row["node"] is not None:
            continue
        if row["advice"] == "longer" and row["near"] >= SOME:
            what = f"Lengthen the leases of {name} from {lasted(row['lease'])} to {lasted(row['suggested'])}"
            why = f"{figure(row['near'])} of {figure(row['n'])} were held for over 80 % of it without an extension,"
            why += f" {figure(row['expired'])} expired"
            rule = f"{SOME} attempts or more, and over 1 %, came so near the end of their lease"
            length = f"lease_ms={round(row['suggested'] * 1_000)}"
            change = command("leasequeue_queues set", row["queue"], length, row=row)
            yield Action(what, why, rule, change, row["near"] + row["expired"])
        elif row["advice"] == "abandoned" and row["expired"] >= SOME:
            what = f"Find out which workers of {name} stop or hang"
            why = f"{figure(row['expired'])} of {figure(row['n'])} leases expired, though 99 % of the others were held"
            why += f" below {lasted(row['p99'] or 0.0)} of {lasted(row['lease'])}: longer leases do not help"
            rule = f"{SOME} leases or more, and over 1 %, expired on several nodes, and the others ended in good time"
            yield Action(what, why, rule, command("leasequeue_status"), row["expired"])
