"""``manage.py leasequeue_restored``: repair a database after its rows were copied into it."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from django.core.management.base import CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue.engine import ConnectionExecutor, epoch
from django_leasequeue.engine.pool import connect
from django_leasequeue.management import LeaseQueueCommand, add_database, by_owner, databases, failure, number

#: Seconds between two tries for the lock of the lease log.
PAUSE = 0.5


class Command(LeaseQueueCommand):
    """Begin an epoch of the lease log, and set sequences forward."""

    help = gettext_noop(
        "Run it after a restore from a dump, or when you switch to a copy made by logical replication, before web and "
        "workers start there. It begins an epoch of the lease log, so that its readers go on where they stand, and "
        "sets sequences forward that stand behind their columns. A worker does the same within seconds of its start. "
        "Needs the owner of the tables. Does nothing where nothing was copied."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_database(parser)
        parser.add_argument(
            "--wait", type=number, default=30.0, metavar="SECONDS",
            help=_("for transactions that have written to the log (%(default)s)"),
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        for alias in databases(options):
            with connect(alias) as connection:
                sequences = epoch.set_sequences(ConnectionExecutor(connection))
                begun = self._begin(connection, alias, options["wait"])
            if sequences:
                self.line(_("{database}: set forward {sequences}"), database=alias, sequences=", ".join(sequences))
            if begun is None:
                self.line(_("{database}: its rows were written here: no epoch has to begin"), database=alias)
                continue
            self.note("begin_epoch", alias, detail=begun._asdict())
            text = _(
                "{database}: epoch {epoch} has begun: readers go on where they stand. {number} rows of the log were"
                " written here before"
            )
            self.line(text, database=alias, epoch=begun.epoch, number=begun.moved)

    @staticmethod
    def _begin(connection: psycopg.Connection[Any], alias: str, wait: float) -> epoch.Begun | None:
        end = time.monotonic() + wait
        while True:
            try:
                with by_owner():
                    return epoch.begin(connection)
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() > end:
                    text = _(
                        "A transaction that has written to the lease log of {database} is open. Stop web and workers,"
                        " or end it (leasequeue_status names the oldest), and run this again."
                    )
                    raise failure(text, database=alias) from None
                time.sleep(PAUSE)
