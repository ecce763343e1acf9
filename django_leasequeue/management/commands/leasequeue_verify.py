"""``manage.py leasequeue_verify``: compare the tables with the lease log."""

from __future__ import annotations

import json
import re
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
from django_leasequeue.management import LeaseQueueCommand, add_database, databases

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
        parser.add_argument(
            "--since",
            default=None,
            metavar="AGE|TIME",
            help=_("only events from then on: 90m, 24h, 7d, or an ISO time"),
        )
        parser.add_argument(
            "--limit", type=int, default=1_000, help=_("differences printed of each kind of check (%(default)s)")
        )
        parser.add_argument(
            "--mend",
            action="store_true",
            help=_(
                "first lower the floors that hide waiting jobs, as the reaper does, and set sequences forward that are"
                " behind; with --large remove what is found"
            ),
        )
        parser.add_argument(
            "--large",
            action="store_true",
            help=_(
                "look in the storage of large payloads, and nowhere else, for objects older than a day that no row of"
                " any database of this site names"
            ),
        )
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
                self.stdout.write(_("Database {name}").format(name=alias))
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
            raise CommandError(
                _("{number} differences between the lease log and the tables").format(number=total), returncode=1
            )

    def _verify(self, alias: str, limit: int, since: datetime | None, *, mend: bool) -> Verification:
        with connect(alias) as connection:
            mended = ConnectionExecutor(connection).run(mend_floors()) if mend else []
            sequences = epoch.set_sequences(ConnectionExecutor(connection)) if mend else []
            with snapshot(connection) as executor:
                found: Verification = executor.run(verify(limit, since=since))
        for floor in mended:
            text = _("A floor of {project}/{queue} was lowered from {before} to {after}: jobs waited below it")
            self.stderr.write(
                text.format(project=floor.project, queue=floor.queue, before=floor.value, after=floor.low)
            )
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
        self.stdout.write(
            _("{number} objects that no row names, {removed} removed").format(number=found, removed=removed)
        )
        if found > removed:
            raise CommandError(
                _("{number} objects in the storage that no row names").format(number=found - removed), returncode=1
            )

    def _print(self, found: Verification) -> None:
        for item in found.differences:
            where = (
                f"{item.project or ''}/{item.queue}"
                if item.queue
                else _("queue number {number}").format(number=item.queue_id)
            )
            of = _("job {job} of {queue}").format(job=item.seq, queue=where) + ": " if item.queue_id else ""
            self.stdout.write(f"{item.difference}: {of}{item.meaning}")
            self.stdout.write(
                "    "
                + _("expected {expected}, found {found}").format(
                    expected=json.dumps(item.expected), found=json.dumps(item.found)
                )
            )
        if found.total > len(found.differences):
            self.stdout.write(_("... and {number} more").format(number=found.total - len(found.differences)))
        seen = _("{jobs} jobs in the log, {leases} live leases, {differences} differences").format(
            jobs=found.jobs_with_events, leases=found.leases, differences=found.total
        )
        self.stdout.write(
            seen
            + (", " + _("{number} leases older than the log").format(number=found.unknown) if found.unknown else "")
        )


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    if (age := _AGE.match(text)) is not None:
        return clock.now() - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(_("--since must be an age like 24h or an ISO time; it is {given!r}.").format(given=text))
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
