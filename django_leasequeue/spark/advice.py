"""Advice to operators from the gold tables, also on what would make workflows shorter; figures in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin

from ..metrics.charts import figure, hour_of_week

#: A row of a gold table, and the rows of all by name.
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

#: A lake whose last run is older than this is called stale.
STALE = timedelta(hours=24)
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
_EACH = 3
#: Workflows that are listed.
MOST_WORKFLOWS = 10
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def utc(at: datetime) -> datetime:
    """Return a time of Spark's, which bears no zone, as the UTC that it is."""
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
    """One thing to do: in a few words, why, and where."""

    what: str
    why: str
    link: str = ""


def actions(rows: Rows, now: datetime, links: Links) -> list[Action]:
    """Return what is to be done, the most urgent first."""
    first = (_stale(rows, now), _broken(rows), _nodes(rows, now, links), _poison(rows, links))
    return list(chain(*first, _backlog(rows), _waits(rows), _workflows(rows), _leases(rows)))


def _newest(rows: Rows) -> datetime | None:
    return next((utc(row["newest_at"]) for row in rows["span"] if row["newest_at"] is not None), None)


def last_run(rows: Rows) -> datetime | None:
    """Return when the lake was last brought up to date."""
    return next((row["at"] for row in rows["run"]), None)


def _stale(rows: Rows, now: datetime) -> list[Action]:
    """Rule: the last run ended more than a day ago."""
    at = last_run(rows)
    if at is None or now - at <= STALE:
        return []
    why = f"the last run was {lasted(now - at)} ago; what follows is as old"
    return [Action("Bring the lake up to date: manage.py leasequeue_lake run", why)]


def _broken(rows: Rows) -> list[Action]:
    """Rule: a check of the tables failed."""
    broken = [f"{row['check']}: not {figure(row['violations'])} times" for row in rows["quality"] if row["violations"]]
    if not broken:
        return []
    return [Action("Trust no figure that depends on these", "checks of the tables failed: " + "; ".join(broken))]


def _nodes(rows: Rows, now: datetime, links: Links) -> list[Action]:
    """Rule: a node is sick or slow against the others on its queues, it goes on, and it worked in the last 6 hours."""
    end = _newest(rows) or now
    found = []
    for row in rows["nodes"]:
        if row["verdict"] not in {"sick", "slow"} or row["ill_until"] is not None or row["ill_since"] is None:
            continue
        if end - utc(row["last_at"]) > GONE:
            continue
        since = utc(row["ill_since"])
        if row["verdict"] == "sick":
            what = "Stop"
            how = f"{percent(row['rate'])} of its attempts failed or lost their lease, of the others'"
            how += f" on the same queues {percent(row['others_rate'])}"
        else:
            what, how = "Look at", f"its jobs take {row['speed']:.1f} times as long as the others'"
        told = f"{row['verdict']} since {when(since)} UTC ({lasted(end - since)}): {how}"
        found.append(Action(f"{what} {row['node']}", told, links.node(str(row["node"]))))
    return found[:_EACH]


def _poison(rows: Rows, links: Links) -> list[Action]:
    """Rule: jobs are dead of one error of the last seven days. Expired leases are no error: see the leases."""
    end = _newest(rows)
    found = []
    for row in rows["poison"]:
        if not row["dead"] or row["fingerprint"] == LEASE_EXPIRED:
            continue
        if end is not None and end - utc(row["last_at"]) >= RECENT:
            continue
        what = f"Mend {row['task'] or 'the task'} of {queue_name(row)}, then redrive {figure(row['dead'])} dead"
        why = f"all of {row['error_type']}, from {when(row['first_at'])} to {when(row['last_at'])} UTC, on"
        jobs, nodes = ("job" if row["dead"] == 1 else "jobs"), ("node" if row["nodes"] == 1 else "nodes")
        found.append(Action(f"{what} {jobs}", f"{why} {row['nodes']} {nodes}", links.dead_letters))
    return found[:_EACH]


def _backlog(rows: Rows) -> list[Action]:
    """Rule: 100 jobs or more wait or run, over 15 minutes of the last day's work, and twice as many as a day before."""
    levels: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for row in rows["backlog"]:
        if row["hour"] is not None:
            levels[queue_name(row)].append((row["hour"], row["level"]))
    end = max((hour for known in levels.values() for hour, _ in known), default=None)
    done: dict[str, float] = defaultdict(float)
    for row in rows["throughput"]:
        if end is not None and row["hour"] is not None and end - row["hour"] < DAY:
            done[queue_name(row)] += row["completed"] / 24
    late = []
    for name, known in levels.items():
        _, level = max(known)
        before = max((each for each in known if end is not None and end - each[0] >= DAY), default=(end, 0.0))[1]
        seconds = level / done[name] * 3_600 if done[name] else float("inf")
        if level >= MANY and seconds > MUCH and (level >= 2 * before or not done[name]):
            late.append((seconds, name, level))
    found = []
    for seconds, name, level in sorted(late, reverse=True)[:_EACH]:
        left = f"at the rate of the last day that is {lasted(seconds)} of work"
        why = f"{figure(level)} jobs wait or run; {left if done[name] else 'none was completed in the last day'}"
        found.append(Action(f"Give {name} more workers", why))
    return found


def peaks(rows: Rows) -> list[Row]:
    """Return of each queue the hour of the coming week that needs the most workers, the highest first."""
    highest: dict[str, Row] = {}
    for row in sorted(rows["forecast"], key=lambda row: (-(row["workers"] or 0), -(row["expected"] or 0))):
        highest.setdefault(queue_name(row), row)
    return sorted(highest.values(), key=lambda row: (-(row["workers"] or 0), queue_name(row)))


def _waits(rows: Rows) -> list[Action]:
    """Rule: over 1 % waited too long in three hours of the week, and the forecast needs more slots than were there."""
    end = _newest(rows)
    if end is None:
        return []
    needs = {queue_name(row): row for row in peaks(rows)}
    there: dict[str, int] = defaultdict(int)
    for row in rows["use"]:
        if row["hour"] is not None and end - utc(row["hour"]) < RECENT:
            there[queue_name(row)] = max(there[queue_name(row)], row["most"], row["nodes"])
    late: dict[str, list[Row]] = defaultdict(list)
    for row in rows["queue_latency"]:
        need = needs.get(queue_name(row))
        if row["measure"] != "wait" or need is None or end - utc(row["hour"]) >= RECENT:
            continue
        if row["n"] >= MANY and row["p99"] > need["wanted_wait"]:
            late[queue_name(row)].append(row)
    found = []
    for name, hours in sorted(late.items(), key=lambda item: -max(row["p99"] for row in item[1])):
        need, worst = needs[name], max(hours, key=lambda row: row["p99"])
        if len(hours) < HOURS or (need["workers"] or 0) <= there[name]:
            continue
        what = f"Plan at least {need['workers']} concurrent jobs for {name} ({hour_of_week(need['hour_of_week'])})"
        why = f"{there[name]} were there in the last week; in {len(hours)} of its hours 1 % of the jobs waited longer"
        why += f" than the wanted {lasted(need['wanted_wait'])}, longest from {when(worst['hour'])} UTC:"
        found.append(Action(what, f"{why} {lasted(worst['p99'])}"))
    return found[:_EACH]


def _workflows(rows: Rows) -> list[Action]:
    """Rule: steps of its slowest run were ready for 15 minutes and half of its time, and no worker took them."""
    found = []
    for slow in slowest(rows):
        if slow.queued > max(MUCH, slow.took / 2):
            why = f"its slowest run took {lasted(slow.took)}; {lasted(slow.queued)} of that its steps were ready"
            what = f"Give {slow.place} more workers when the workflow {slow.title} runs"
            found.append(Action(what, f"{why} and nobody took them"))
    return found[:_EACH]


def _leases(rows: Rows) -> list[Action]:
    """Rule: 20 attempts or more, and over 1 %, held 80 % of the lease (longer), or expired though others did not."""
    found = []
    for row in sorted(rows["leases"], key=lambda row: -row["near"] - row["expired"]):
        if row["node"] is not None:
            continue
        if row["advice"] == "longer" and row["near"] >= SOME:
            what = f"Lengthen the leases of {queue_name(row)} from {lasted(row['lease'])} to {lasted(row['suggested'])}"
            why = f"{figure(row['near'])} of {figure(row['n'])} were held for over 80 % of it without an extension"
            found.append(Action(what, f"{why}, {figure(row['expired'])} expired"))
        elif row["advice"] == "abandoned" and row["expired"] >= SOME:
            what = f"Find out which workers of {queue_name(row)} stop or hang"
            why = f"{figure(row['expired'])} of {figure(row['n'])} leases expired, though 99 % of the others were held"
            why += f" below {lasted(row['p99'] or 0.0)} of {lasted(row['lease'])}: longer leases do not help"
            found.append(Action(what, why))
    return found[:_EACH]
