"""``manage.py leasequeue_status``: the status of queues, workers, the reaper and the lease log."""

from __future__ import annotations

import json
from dataclasses import astuple
from operator import attrgetter, itemgetter
from typing import Any

import psycopg
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from django_leasequeue.conf.loglines import one_line
from django_leasequeue.engine import clock
from django_leasequeue.engine.clock import span
from django_leasequeue.management import LeaseQueueCommand, add_database, databases, failure, table
from django_leasequeue.reaper.concerns import BOUNDS, Bounds
from django_leasequeue.reaper.status import ReaperStatus, read_status

#: Seconds that a bound may have: a hundred days.
MAX_SECONDS = 8_640_000
#: Values that a line of a list begins with, or has in its middle.
_QUEUE = attrgetter("queue", "type", "ready", "delayed", "in_flight", "dead", "records")
_COUNTS = attrgetter("concurrency", "running", "completed", "failed", "retried", "lost")
_TICKS = attrgetter("name", "service", "schedule", "timezone", "last_tick_at", "next_tick_at")


class Command(LeaseQueueCommand):
    """Show how full the queues are."""

    help = gettext_noop(
        "Show how the queues, the workers, the reaper and the lease log are doing, and what deserves attention. Short"
        " statements only: it may be run at any time."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        parser.add_argument("--project", default="", help=_("the tenant whose queues are listed (default: none)"))
        parser.add_argument("--size", type=int, default=50, help=_("lines of each list at most (%(default)s)"))
        parser.add_argument("--json", action="store_true", help=_("print one JSON object"))
        parser.add_argument("--check", action="store_true", help=_("exit code 1 if anything deserves attention"))
        for name, value, what in (
            ("waiting", BOUNDS.waiting, _("seconds that the oldest ready job of a queue may wait")),
            ("lease", BOUNDS.lease, _("seconds that a lease may be held")),
            ("late", BOUNDS.late, _("seconds that a recurring task may be late")),
            ("transaction", BOUNDS.transaction, _("seconds that a transaction may be open")),
            ("unclaimed", BOUNDS.unclaimed, _("seconds that ready jobs that are not tasks may wait for any claim")),
        ):
            parser.add_argument(f"--{name}", type=int, default=value, metavar="SECONDS", help=f"{what} (%(default)s)")
        dead = _("jobs of a queue that may die in 10 min (%(default)s)")
        parser.add_argument("--dead", type=int, default=BOUNDS.dead, metavar="N", help=dead)

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["size"] <= 1_000:
            raise CommandError(_("--size must be from 1 to 1000."))
        names = BOUNDS._fields
        if not all(0 <= options[name] <= MAX_SECONDS for name in names):
            raise failure(_("--{names} take 0 to {most}."), names=", --".join(names), most=MAX_SECONDS)
        aliases = databases(options)
        bounds = Bounds(**{name: options[name] for name in names})
        found, problems = {}, []
        for alias in aliases:
            try:
                found[alias] = read_status(alias, project=options["project"], size=options["size"], bounds=bounds)
                problems += found[alias].problems
            except (psycopg.OperationalError, DatabaseError) as error:
                if len(aliases) == 1:
                    raise
                text = _("The database {database} does not answer: {error}")
                problems.append(text.format(database=alias, error=str(error).splitlines()[0]))
        if not options["json"]:
            for number, each in enumerate(found.values()):
                self.stdout.write("\n" if number else "", ending="")
                self._print(each)
            if problems:
                self.stdout.write("\n" + _("To look at:"))
            for problem in problems:
                self.stdout.write(self.style.WARNING(f"  {one_line(str(problem))}"))
        elif len(aliases) == 1:
            self.stdout.write(json.dumps(found[aliases[0]].as_dict(), default=str))
        else:
            values = {alias: each.as_dict() for alias, each in found.items()}
            self.stdout.write(json.dumps({"databases": values, "problems": problems}, default=str))
        if options["check"] and problems:
            text = ngettext("{number} thing deserves attention.", "{number} things deserve attention.", len(problems))
            raise failure(text, number=len(problems), returncode=1)

    def _print(self, found: ReaperStatus) -> None:
        now, leader, log, size = clock.now(), found.leader, found.log, f"{found.job_bytes / 1e6:.1f}"
        text = _("Database {database}, PostgreSQL {server}, jobs take {size} MB")
        self.line(text, database=found.database, server=found.server, size=size)
        if leader is None:
            self.line(_("Reaper: none leads"))
        else:
            text = _("Reaper: {holder} leads from {address}, term {term}")
            self.line(text, holder=leader.holder, address=leader.address, term=leader.term)
            for duty in filter(itemgetter("error"), leader.duties):
                text = "  " + _("duty {name}: {error} Succeeded {time} ago.")
                self.line(text, name=duty["name"], error=duty["error"], time=span(duty["succeeded"]))
        text = _("Lease log: {events} events, {partitions} partitions ({free} ahead), {size} MB")
        size = f"{log.bytes / 1e6:.1f}"
        self.line(text, events=log.head, partitions=log.partitions, free=log.free, size=size)
        queues = []
        for row in found.queues:
            note = "paused" if row.paused_at else "" if row.exact else "estimated"
            ages = (span(now - at if at else None) for at in (row.oldest_at, row.claimed_at))
            queues.append((*_QUEUE(row), *ages, note))
        head = ("name", "type", "ready", "delayed", "in flight", "dead", "records", "waiting for", "last claim", "")
        self._list(_("Queues"), head, queues)
        if len(found.totals) > 1:
            sums = ("project", "queues", "ready", "delayed", "in flight", "dead", "records", "dead lettered", "as of")
            self._list(_("Projects (newest samples)"), sums, found.totals)
        columns = ("node", "state", "queues", "jobs at once", "running", "done", "failed", "retried", "lost", "seen")
        workers = [
            (each.node, each.state, ",".join(each.queues) or "*", *_COUNTS(each), f"{span(each.seen)} ago")
            for each in found.workers
        ]
        self._list(_("Workers"), columns, workers)
        ticks = [
            (*_TICKS(each), "off" if not each.enabled else "ended" if each.ended_at else "") for each in found.recurring
        ]
        self._list(_("Recurring"), ("name", "service", "schedule", "zone", "last", "next", ""), ticks)
        if found.limits:
            limits = ("name", "allows", "keys", "waiting", "slots taken")
            self._list(_("Limits that jobs wait for"), limits, [astuple(row) for row in found.limits])

    def _list(self, title: str, head: tuple[str, ...], rows: list[Any]) -> None:
        self.stdout.write(f"\n{title}")
        self.stdout.write(table(head, rows) if rows else "  " + _("none"))
