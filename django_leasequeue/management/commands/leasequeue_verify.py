"""``manage.py leasequeue_verify``: compare the tables with the lease log."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_leasequeue.engine import ConnectionExecutor, clock, epoch, mend_floors
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.verify import Verification, find_strays, remove_strays, snapshot, verify
from django_leasequeue.exceptions import LargeStorageError
from django_leasequeue.management import LeaseQueueCommand, add_database, databases

_AGE = re.compile(r"(\d+)([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Command(LeaseQueueCommand):
    """Check the tables against each other."""

    help = (
        "Rebuild from the lease log where every job is and who holds it, and compare that with the tables. Prints "
        "every difference; exit code 1 if there is any. Reads one consistent snapshot, and changes nothing without "
        "--mend. The log must "
        "reach back to the beginning of the oldest live lease (EVENT_RETENTION_DAYS); older leases count as unknown."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        parser.add_argument(
            "--since", default=None, metavar="AGE|TIME", help="only events from then on: 90m, 24h, 7d, or an ISO time"
        )
        parser.add_argument(
            "--limit", type=int, default=1_000, help="differences printed of each kind of check (%(default)s)"
        )
        parser.add_argument(
            "--mend",
            action="store_true",
            help="first lower the floors that hide waiting jobs, as the reaper does, and set sequences forward that are"
            " behind; with --large remove what is found",
        )
        parser.add_argument(
            "--large",
            action="store_true",
            help="look in the storage of large payloads, and nowhere else, for objects older than a day that no row of"
            " any database of this site names",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["limit"] < 1:
            raise CommandError("--limit must be at least 1.")
        if options["large"]:
            self._large(options["limit"], mend=options["mend"])
            return
        since = _since(options["since"])
        aliases = databases(options)
        found: dict[str, Verification] = {}
        for alias in aliases:
            if len(aliases) > 1 and not options["json"]:
                self.stdout.write(f"Database {alias}")
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
            raise CommandError(f"{total} differences between the lease log and the tables", returncode=1)

    def _verify(self, alias: str, limit: int, since: datetime | None, *, mend: bool) -> Verification:
        with connect(alias) as connection:
            mended = ConnectionExecutor(connection).run(mend_floors()) if mend else []
            sequences = epoch.set_sequences(ConnectionExecutor(connection)) if mend else []
            with snapshot(connection) as executor:
                found: Verification = executor.run(verify(limit, since=since))
        for floor in mended:
            change = f"was lowered from {floor.value} to {floor.low}"
            self.stderr.write(f"A floor of {floor.project}/{floor.queue} {change}: jobs waited below it")
        for sequence in sequences:
            self.stderr.write(f"The sequence {sequence} was set forward")
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
        self.stdout.write(f"{found} objects that no row names, {removed} removed")
        if found > removed:
            raise CommandError(f"{found - removed} objects in the storage that no row names", returncode=1)

    def _print(self, found: Verification) -> None:
        for item in found.differences:
            where = f"{item.project or ''}/{item.queue}" if item.queue else f"queue number {item.queue_id}"
            of = f"job {item.seq} of {where}: " if item.queue_id else ""
            self.stdout.write(f"{item.difference}: {of}{item.meaning}")
            self.stdout.write(f"    expected {json.dumps(item.expected)}, found {json.dumps(item.found)}")
        if found.total > len(found.differences):
            self.stdout.write(f"... and {found.total - len(found.differences)} more")
        seen = f"{found.jobs_with_events} jobs in the log, {found.leases} live leases, {found.total} differences"
        self.stdout.write(seen + (f", {found.unknown} leases older than the log" if found.unknown else ""))


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
        raise CommandError(f"--since must be an age like 24h or an ISO time; it is {text!r}.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
