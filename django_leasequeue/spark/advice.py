"""What an operator is to do, from the gold tables: the first thing of the report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote, urljoin

from ..metrics.charts import figure, hour_of_week
from .paths import slowest
from .wording import Row, Rows, lasted, percent, queue_name, utc, when

#: A lake whose last run is older than this is called stale.
STALE = timedelta(hours=24)
#: Hours of the past that advice is taken from.
RECENT = 168
#: A node that did nothing for so long before the newest event is not running any more.
GONE = timedelta(hours=6)
#: Seconds of work that may wait before more workers are advised.
MUCH = 900.0
_EACH = 3


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the admin: of the workers' page and of the dead letters' page; empty where it is not known."""

    workers: str = ""
    dead_letters: str = ""

    @classmethod
    def of(cls, site: str | None) -> Links:
        """Return the links of a site, for example ``https://ops.example.com``.

        There are none where the project's admin has no such pages.
        """
        from django.urls import NoReverseMatch, reverse

        if not site:
            return cls()
        try:
            pages = [reverse(f"admin:leasequeue_{name}") for name in ("workers", "deadletters")]
        except NoReverseMatch:
            return cls()
        return cls(*[urljoin(site, page) for page in pages])

    def node(self, name: str) -> str:
        """Return the address of a worker."""
        return f"{self.workers}?node={quote(name, safe='')}" if self.workers else ""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: in a few words, why, and where."""

    what: str
    why: str
    link: str = ""


def actions(rows: Rows, now: datetime, links: Links) -> list[Action]:
    """Return what is to be done, the most urgent first.

    Args:
        rows: of the gold tables by name; ``run`` has the note of the last run.
        now: the time of the report.
        links: to the admin.
    """
    found = [
        *_stale(rows, now),
        *_broken(rows),
        *_nodes(rows, now, links),
        *_poison(rows, links),
        *_backlog(rows),
        *_waits(rows),
        *_workflows(rows),
    ]
    return [*found, *_leases(rows)]


def _newest(rows: Rows) -> datetime | None:
    return next((utc(row["newest_at"]) for row in rows["span"] if row["newest_at"] is not None), None)


def last_run(rows: Rows) -> datetime | None:
    """Return when the lake was last brought up to date."""
    return next((row["at"] for row in rows["run"]), None)


def _stale(rows: Rows, now: datetime) -> list[Action]:
    at = last_run(rows)
    if at is None or now - at <= STALE:
        return []
    return [
        Action(
            "Bring the lake up to date: manage.py leasequeue_lake run",
            f"the last run was {lasted(now - at)} ago; what follows is as old",
        )
    ]


def _broken(rows: Rows) -> list[Action]:
    broken = [f"{row['check']}: not {figure(row['violations'])} times" for row in rows["quality"] if row["violations"]]
    if not broken:
        return []
    return [Action("Trust no figure that depends on these", "checks of the tables failed: " + "; ".join(broken))]


def _nodes(rows: Rows, now: datetime, links: Links) -> list[Action]:
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
    end = _newest(rows)
    return [
        Action(
            f"Mend {row['task'] or 'the task'} of {queue_name(row)}, then redrive {figure(row['dead'])} dead"
            f" {'job' if row['dead'] == 1 else 'jobs'}",
            f"all of {row['error_type']}, from {when(row['first_at'])} to {when(row['last_at'])} UTC,"
            f" on {row['nodes']} {'node' if row['nodes'] == 1 else 'nodes'}",
            links.dead_letters,
        )
        for row in rows["poison"]
        if row["dead"] and (end is None or end - utc(row["last_at"]) < timedelta(hours=RECENT))
    ][:_EACH]


def _backlog(rows: Rows) -> list[Action]:
    levels: dict[str, tuple[datetime, float]] = {}
    for row in rows["backlog"]:
        if row["hour"] is not None:
            levels[queue_name(row)] = max(levels.get(queue_name(row), (row["hour"], 0.0)), (row["hour"], row["level"]))
    end = max((hour for hour, _ in levels.values()), default=None)
    done: dict[str, float] = defaultdict(float)
    for row in rows["throughput"]:
        if end is not None and row["hour"] is not None and end - row["hour"] < timedelta(hours=24):
            done[queue_name(row)] += row["completed"] / 24
    late = [
        (level / done[name] * 3_600 if done[name] else float("inf"), name, level)
        for name, (_, level) in levels.items()
        if level > 0
    ]
    return [
        Action(
            f"Give {name} more workers",
            f"{figure(level)} jobs wait or run; "
            + (
                f"at the rate of the last day that is {lasted(seconds)} of work"
                if done[name]
                else "none was completed in the last day"
            ),
        )
        for seconds, name, level in sorted(late, reverse=True)
        if seconds > MUCH
    ][:_EACH]


def peaks(rows: Rows) -> list[Row]:
    """Return of each queue the hour of the coming week that needs the most workers, the highest first."""
    highest: dict[str, Row] = {}
    for row in rows["forecast"]:
        name = queue_name(row)
        rank = (row["workers"] or 0, row["expected"] or 0)
        if name not in highest or rank > (highest[name]["workers"] or 0, highest[name]["expected"] or 0):
            highest[name] = row
    return sorted(highest.values(), key=lambda row: (-(row["workers"] or 0), queue_name(row)))


def _waits(rows: Rows) -> list[Action]:
    end = max((row["hour"] for row in rows["queue_latency"] if row["hour"] is not None), default=None)
    needs = {queue_name(row): row for row in peaks(rows)}
    worst: dict[str, Row] = {}
    for row in rows["queue_latency"]:
        name = queue_name(row)
        if row["measure"] != "wait" or end - row["hour"] >= timedelta(hours=RECENT):
            continue
        if name not in worst or row["p99"] > worst[name]["p99"]:
            worst[name] = row
    found = []
    for name, row in sorted(worst.items(), key=lambda item: -item[1]["p99"]):
        need = needs.get(name)
        if need is None or need["workers"] is None or row["p99"] <= need["wanted_wait"]:
            continue
        found.append(
            Action(
                f"Plan at least {need['workers']} concurrent {'job' if need['workers'] == 1 else 'jobs'} for {name}"
                f" ({hour_of_week(need['hour_of_week'])})",
                f"in the hour from {when(row['hour'])} UTC 1 % of its jobs waited longer than {lasted(row['p99'])};"
                f" wanted are {lasted(need['wanted_wait'])}",
            )
        )
    return found[:_EACH]


def _workflows(rows: Rows) -> list[Action]:
    """Workflows that could have ended much sooner if workers had been there."""
    return [
        Action(
            f"Give {slow.place} more workers when the workflow {slow.title} runs",
            f"its slowest run took {lasted(slow.took)}; {lasted(slow.queued)} of that its steps were ready and nobody"
            " took them",
        )
        for slow in slowest(rows)
        if slow.queued > MUCH and slow.queued > slow.took / 2
    ][:_EACH]


def _leases(rows: Rows) -> list[Action]:
    return [
        Action(
            f"Lengthen the leases of {queue_name(row)} from {lasted(row['lease'])} to {lasted(row['suggested'])}",
            f"{figure(row['expired'])} of {figure(row['n'])} expired, {figure(row['near'])} nearly did",
        )
        for row in sorted(rows["leases"], key=lambda row: -row["expired"])
        if row["node"] is None and row["advice"] == "longer"
    ][:_EACH]
