"""The base of the management commands: errors in one line, the audit, and tables of text.

The modules of `commands` import it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.db import Error as DjangoError
from django.utils.translation import gettext

from django_leasequeue import conf
from django_leasequeue.conf.loglines import one_line
from django_leasequeue.engine import audit, pool
from django_leasequeue.engine.outage import advice, missing_right, passes
from django_leasequeue.engine.queues import routing
from django_leasequeue.exceptions import LeaseQueueError


class LeaseQueueCommand(BaseCommand):
    """A command that needs the tables, and reports errors in one line."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        self.help = gettext(self.help)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            if options.get("database"):
                routing.check_alias(options["database"])
            return super().execute(*args, **options)
        except (LeaseQueueError, ImproperlyConfigured, DjangoError, psycopg.Error) as error:
            text = advice(error)
            if isinstance(error, DjangoError | psycopg.Error) and not (text or missing_right(error) or passes(error)):
                raise
            raise CommandError(text or str(error).strip()) from error

    def line(self, text: str, **facts: object) -> None:
        """Write a line to standard output: a template and its facts, in one line, whoever has named them."""
        self.stdout.write(text.format(**{name: one_line(str(fact)) for name, fact in facts.items()}))

    def note(self, action: str, using: str, **facts: Any) -> None:
        """Write a line of the audit: the user of the shell did this."""
        audit.write(action, audit.shell(), **facts, using=using)


def number(text: str) -> float:
    """Return a finite number of the command line."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def failure(text: str, *, returncode: int = 1, **facts: object) -> CommandError:
    """Return the error of a template and its facts."""
    return CommandError(text.format(**facts), returncode=returncode)


@contextmanager
def by_owner() -> Iterator[None]:
    """Name the role to run a command as if this one lacks the right."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        text = gettext("{error}. Run this as the owner of the tables, the role that migrates.")
        raise failure(text, error=str(error).splitlines()[0]) from error


def add_database(parser: CommandParser) -> None:
    """Add ``--database``, which ``databases`` reads."""
    parser.add_argument("--database", help=gettext("only this database (default: every one that holds queues)"))


def databases(options: dict[str, Any]) -> list[str]:
    """Return the aliases of the databases that a command is for."""
    return [options["database"]] if options["database"] else routing.aliases()


def require_tables(alias: str) -> None:
    """Refuse to start without the tables; ignore an unreachable database."""
    try:
        with pool.connect(alias, patience=conf.settings.STATEMENT_TIMEOUT or None) as own:
            own.execute("SELECT FROM leasequeue_queue LIMIT 0")
    except (psycopg.Error, DatabaseError) as error:
        text = advice(error)
        if text is not None:
            if alias != conf.settings.DATABASE:
                text = f"{text[:-1]} --database {alias}, or name the databases of queues in LEASEQUEUE['DATABASES']."
            raise CommandError(text) from error


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as a table of text with fitting columns, numbers right-aligned."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    columns = []
    for number, name in enumerate(head):
        right = bool(values) and all(isinstance(row[number], int | float) for row in values)
        column = [name, *(row[number] for row in cells)]
        width = max(map(len, column))
        columns.append([text.rjust(width) if right else text.ljust(width) for text in column])
    return "\n".join("  ".join(parts).rstrip() for parts in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return one_line(str(value))  # others may have named it
