"""``manage.py runreaper``: the reaper's duties in a process of its own."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from django_leasequeue.management.base import LeaseQueueCommand, require_tables
from django_leasequeue.reaper import Reaper


class Command(LeaseQueueCommand):
    """Run the reaper."""

    help = (
        "Do what is done once for all workers: bring back expired leases and due jobs, remove what is past its time,"
        " keep the lease log's partitions, enqueue recurring tasks. Any number may run, and every runworker does it as"
        " well: one leads, the others wait. Ends with SIGTERM or SIGINT and hands over at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=None, help="alias of the database (default: LEASEQUEUE['DATABASE'])")
        parser.add_argument(
            "--once",
            action="store_true",
            help="do every duty once and end (exit code 1 if one failed), or end at once if another reaper leads",
        )
        parser.add_argument("--json-logs", action="store_true", help="log lines as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        from django_leasequeue.worker.logs import set_up_logging

        set_up_logging(as_json=options["json_logs"], verbosity=options["verbosity"])
        reaper = Reaper(options["database"])
        require_tables(options["database"])
        if options["once"]:
            self._once(reaper)
        else:
            _run(reaper)

    def _once(self, reaper: Reaper) -> None:
        try:
            if not reaper.lead():
                self.stdout.write("Another reaper leads: nothing to do.")
                return
            done = reaper.round()
        except (psycopg.Error, DatabaseError) as error:
            raise CommandError(f"The database failed: {error}") from error
        finally:
            reaper.resign()
        self.stdout.write(f"Done: {', '.join(done)}.")
        if reaper.failing:
            raise CommandError(f"Failed: {', '.join(reaper.failing)}.")


def _run(reaper: Reaper) -> None:
    """Run until a signal comes; a second one ends the process as it would end any other."""
    before: dict[int, Any] = {}

    def stop(number: int, frame: object) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        reaper.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, stop)
    reaper.run()
