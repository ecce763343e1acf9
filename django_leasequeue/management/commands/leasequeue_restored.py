"""``manage.py leasequeue_restored``: repair a database after its rows were copied into it."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from django.core.management.base import CommandError, CommandParser

from django_leasequeue.engine import ConnectionExecutor, epoch
from django_leasequeue.engine.pool import connect
from django_leasequeue.management import LeaseQueueCommand, add_database, databases

#: Seconds between two tries for the lock of the lease log.
PAUSE = 0.5


class Command(LeaseQueueCommand):
    """Begin an epoch of the lease log, and set sequences forward."""

    help = (
        "Run it after a restore from a dump, or when you switch to a copy made by logical replication, before web and "
        "workers start there. It begins an epoch of the lease log, so that its readers go on where they stand, and "
        "sets sequences forward that stand behind their columns. A worker does the same within seconds of its start. "
        "Needs the owner of the tables. Does nothing where nothing was copied."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        parser.add_argument(
            "--wait", type=float, default=30.0, metavar="SECONDS",
            help="for transactions that have written to the log (%(default)s)",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        for alias in databases(options):
            with connect(alias) as connection:
                sequences = epoch.set_sequences(ConnectionExecutor(connection))
                begun = self._begin(connection, alias, options["wait"])
            if sequences:
                self.stdout.write(f"{alias}: set forward {', '.join(sequences)}")
            if begun is None:
                self.stdout.write(f"{alias}: its rows were written here: no epoch has to begin")
                continue
            self.note("begin_epoch", alias, detail=begun._asdict())
            self.stdout.write(
                f"{alias}: epoch {begun.epoch} has begun: readers go on where they stand. {begun.moved} rows of the log"
                " were written here before"
            )

    @staticmethod
    def _begin(connection: psycopg.Connection[Any], alias: str, wait: float) -> epoch.Begun | None:
        end = time.monotonic() + wait
        while True:
            try:
                return epoch.begin(connection)
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() > end:
                    raise CommandError(
                        f"A transaction that has written to the lease log of {alias} is open. Stop web and workers, or"
                        " end it (leasequeue_status names the oldest), and run this again."
                    ) from None
                time.sleep(PAUSE)
            except psycopg.errors.InsufficientPrivilege as error:
                text = str(error).splitlines()[0]
                raise CommandError(f"{text}. Run this as the owner of the tables, the role that migrates.") from error
