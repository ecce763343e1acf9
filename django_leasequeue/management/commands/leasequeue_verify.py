"""``manage.py leasequeue_verify``: compare the tables with the lease log."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue.engine import ConnectionExecutor, clock, epoch, mend_floors
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.verify import Verification, find_strays, remove_strays, snapshot, verify
from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.management import LeaseQueueCommand, add_database, databases, failure

_AGE = re.compile(r"(\d+)([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Command(LeaseQueueCommand):
    """Check the tables against each other."""

    help = gettext_noop(
        "Rebuild from the lease log where every job is and who holds it, and compare that with the tables. Prints "
        "every difference; exit code 1 if there is any. Reads one consistent snapshot, and changes nothing without "
        "--mend. The log must "
        "reach back to the beginning of the oldest live lease (EVENT_RETENTION_DAYS); older leases count as unknown."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        since = _("only events from then on: 90m, 24h, 7d, or an ISO time")
        parser.add_argument("--since", metavar="AGE|TIME", help=since)
        parser.add_argument(
            "--limit", type=int, default=1_000, help=_("differences printed of each kind of check (%(default)s)")
        )
        mend = _(
            "first lower the floors that hide waiting jobs, as the reaper does, and set sequences forward that are"
            " behind; with --large remove what is found"
        )
        parser.add_argument("--mend", action="store_true", help=mend)
        large = _(
            "look in the storage of large payloads, and nowhere else, for objects older than a day that no row of any"
            " database of this site names"
        )
        parser.add_argument("--large", action="store_true", help=large)
        parser.add_argument("--json", action="store_true", help=_("print one JSON object"))

    def handle(self, *args: Any, **options: Any) -> None:
        if options["limit"] < 1:
            raise CommandError(_("--limit must be at least 1."))
        if options["large"]:
            self._large(options["limit"], mend=options["mend"])
            return
        since = _since(options["since"])
        aliases = databases(options)
        found: dict[str, Verification] = {}
        for alias in aliases:
            if len(aliases) > 1 and not options["json"]:
                self.line(_("Database {name}"), name=alias)
            found[alias] = self._verify(alias, options["limit"], since, mend=options["mend"])
            if not options["json"]:
                self._print(found[alias])
        if options["json"]:
            values = {}
            for alias, each in found.items():
                differences = [{**item._asdict(), "meaning": item.meaning} for item in each.differences]
                values[alias] = {**each._asdict(), "differences": differences}
            self.stdout.write(json.dumps(values[aliases[0]] if len(aliases) == 1 else values, default=str))
        if total := sum(each.total for each in found.values()):
            raise failure(_("{number} differences between the lease log and the tables"), number=total, returncode=1)

    def _verify(self, alias: str, limit: int, since: datetime | None, *, mend: bool) -> Verification:
        with connect(alias) as connection:
            mended = ConnectionExecutor(connection).run(mend_floors()) if mend else []
            sequences = epoch.set_sequences(ConnectionExecutor(connection)) if mend else []
            with snapshot(connection) as executor:
                found: Verification = executor.run(verify(limit, since=since))
        for floor in mended:
            text = _("A floor of {project}/{queue} was lowered from {before} to {after}: jobs waited below it")
            place = {"project": floor.project, "queue": floor.queue}
            self.stderr.write(text.format(**place, before=floor.value, after=floor.low))
        for sequence in sequences:
            self.stderr.write(_("The sequence {sequence} was set forward").format(sequence=sequence))
        return found

    def _large(self, limit: int, *, mend: bool) -> None:
        found = removed = 0
        try:
            for names in find_strays():
                for name in names[: max(0, limit - found)]:
                    self.stdout.write(name)
                found += len(names)
                if mend:
                    removed += remove_strays(names)
        except LargeStorageError as error:
            raise CommandError(str(error)) from error
        self.line(_("{number} objects that no row names, {removed} removed"), number=found, removed=removed)
        if found > removed:
            raise failure(_("{number} objects in the storage that no row names"), number=found - removed, returncode=1)

    def _print(self, found: Verification) -> None:
        for item in found.differences:
            where = f"{item.project or ''}/{item.queue}"
            if not item.queue:
                where = _("queue number {number}").format(number=item.queue_id)
            of = _("job {job} of {queue}").format(job=item.seq, queue=where) + ": " if item.queue_id else ""
            self.stdout.write(f"{item.difference}: {of}{item.meaning}")
            text = "    " + _("expected {expected}, found {found}")
            self.line(text, expected=json.dumps(item.expected), found=json.dumps(item.found))
        if found.total > len(found.differences):
            self.line(_("... and {number} more"), number=found.total - len(found.differences))
        text = _("{jobs} jobs in the log, {leases} live leases, {differences} differences")
        if found.unknown:
            text += ", " + _("{number} leases older than the log")
        counts = {"jobs": found.jobs_with_events, "leases": found.leases, "number": found.unknown}
        self.line(text, **counts, differences=found.total)


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    if (age := _AGE.match(text)) is not None:
        with suppress(ValueError, OverflowError):
            return clock.now() - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise failure(_("--since must be an age like 24h or an ISO time; it is {given!r}."), given=text)
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
