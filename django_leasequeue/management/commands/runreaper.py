"""``manage.py runreaper``: the reaper in its own process."""

from __future__ import annotations

import signal
import threading
from typing import Any

import psycopg
from django.core.management.base import CommandParser
from django.db import DatabaseError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue.checks.settings import TAG
from django_leasequeue.conf.loglines import set_up_logging
from django_leasequeue.management import LeaseQueueCommand, add_database, databases, failure, require_tables
from django_leasequeue.reaper import Reaper


class Command(LeaseQueueCommand):
    """Run the reaper."""

    # As for runworker: it needs no URLs and views of the project.
    requires_system_checks = (TAG,)
    help = gettext_noop(
        "Do what is done once for all workers: bring back expired leases and due jobs, remove what is past its time,"
        " keep the lease log's partitions, enqueue recurring tasks. Any number may run, and every runworker does it as"
        " well: one leads, the others wait. Ends with SIGTERM or SIGINT and hands over at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        once = _("do every duty once and end (exit code 1 if one failed), or end at once if another reaper leads")
        parser.add_argument("--once", action="store_true", help=once)
        parser.add_argument("--json-logs", action="store_true", help=_("log lines as JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        set_up_logging(as_json=options["json_logs"], verbosity=options["verbosity"])
        aliases = databases(options)
        reapers = [Reaper(alias) for alias in aliases]
        for alias in aliases:
            require_tables(alias)
        if options["once"]:
            self._once(reapers)
        else:
            _run(reapers)

    def _once(self, reapers: list[Reaper]) -> None:
        """Do every duty once in each database: one that fails does not keep the others from it."""
        failed = []
        for reaper in reapers:
            where = f"{reaper.using}: " if len(reapers) > 1 else ""
            try:
                if not reaper.wait_to_lead():
                    self.stdout.write(where + _("Another reaper leads: nothing to do."))
                    continue
                self.stdout.write(where + _("Done: {duties}.").format(duties=", ".join(reaper.round())))
                failed += [f"{where}{name}" for name in reaper.failing]
            except (psycopg.Error, DatabaseError) as error:
                failed.append(f"{reaper.using}: {error}")
            finally:
                reaper.resign()
        if failed:
            raise failure(_("Failed: {duties}."), duties=", ".join(failed))


def _run(reapers: list[Reaper]) -> None:
    """Run until a signal comes; a second one ends the process as it would end any other."""
    before: dict[int, Any] = {}
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, stop)
    for reaper in reapers:
        reaper.start()
    stopping.wait()
    for reaper in reapers:
        reaper.stop()
