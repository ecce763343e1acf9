"""System checks that query the database: ``manage.py check --database default``, and ``migrate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction

from .. import conf
from ..exceptions import InvalidOption
from .settings import APP, Messages, has_psycopg_3

if TYPE_CHECKING:
    from django.db.backends.postgresql.base import DatabaseWrapper

#: The oldest server version that the statements support.
OLDEST_SERVER = 150_000


@checks.register(checks.Tags.database)
def check_databases(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Messages:
    """Check the server, the lease log, and the declared queues of the databases that hold queues."""
    if conf.problems() or not databases or not has_psycopg_3():
        return []
    from ..engine.queues import routing

    try:
        ours = [alias for alias in routing.aliases() if alias in databases and alias in django_settings.DATABASES]
    except ImproperlyConfigured:
        return []
    found: Messages = []
    for alias in ours:
        if connections[alias].vendor == "postgresql":
            found += _server(alias)
    return found


def _server(alias: str) -> Messages:
    connection = cast("DatabaseWrapper", connections[alias])
    version = connection.pg_version
    if version < OLDEST_SERVER:
        return [
            checks.Error(
                f"The server of the database {alias!r} is PostgreSQL {version // 10_000}; 15 is the oldest that works.",
                hint="Upgrade the server, or name another alias in LEASEQUEUE['DATABASE'].",
                id="leasequeue.E005",
            )
        ]
    found: Messages = [*_pooler(alias), *_role_settings(alias)]
    if f"{APP}_queue" not in connection.introspection.table_names():
        return found
    found += _other_schema(alias)
    for look in (_default_partition, _epoch, _drift, _recurring_rows):
        try:
            with transaction.atomic(using=alias):
                found += look(alias)
        except DatabaseError:
            # The tables are of another version: migrate helps, and may be running now.
            return found
    return found


def _pooler(alias: str) -> Iterator[checks.CheckMessage]:
    connection = cast("DatabaseWrapper", connections[alias])
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server = cursor.fetchone()[0]
    # A pooler reports its own process numbers to clients, for their cancel requests.
    if server != connection.connection.info.backend_pid:
        yield checks.Warning(
            f"The database {alias!r} is reached through a pooler, and 'DISABLE_SERVER_SIDE_CURSORS' is not set: in"
            " transaction mode prepared statements and LISTEN fail.",
            hint=f"In transaction mode set 'DISABLE_SERVER_SIDE_CURSORS': True in DATABASES[{alias!r}], and"
            f" LEASEQUEUE['LISTEN_DSN'] = {{{alias!r}: ...}}. In session mode silence this check.",
            id="leasequeue.W023",
        )


def _other_schema(alias: str) -> Iterator[checks.CheckMessage]:
    """Check the search path: a backend or a receiver of ``connection_created`` may set one for Django only."""
    from psycopg import Error

    from ..engine import pool

    query = f"SELECT to_regclass('{APP}_queue')::oid::bigint"  # nosec  # B608: of a constant
    with connections[alias].cursor() as cursor:
        cursor.execute(query)
        djangos = cursor.fetchone()
    try:
        with pool.connect(alias, timeout=2) as own:
            ours = own.execute(query).fetchone()
    except Error:  # for example no free connection
        return
    if ours != djangos:
        yield checks.Warning(
            f"Django's connection to the database {alias!r} finds the tables of the app {APP!r} in another schema than"
            " the connections of workers, reapers and async calls: jobs that are enqueued there never run.",
            hint=f"Set the search path in OPTIONS of DATABASES[{alias!r}] or for the role, not when Django connects:"
            " docs/how-to/second-database.md.",
            id="leasequeue.W030",
        )


#: Settings of a session that make our calls fail: a predicate of the harmful values, and the effect.
_HURTS = {
    "statement_timeout": (lambda value: 0 < int(value) < 1_000, "statements that take longer fail, claims among them"),
    "lock_timeout": (lambda value: 0 < int(value) < 1_000, "an enqueue that waits for another transaction fails"),
    "idle_in_transaction_session_timeout": (
        lambda value: 0 < int(value) < 1_000,
        "a task that is atomic loses its transaction while it computes",
    ),
    "default_transaction_isolation": (
        lambda value: value in ("repeatable read", "serializable"),
        "concurrent calls outside of a transaction fail with 'could not serialize access'",
    ),
    "default_transaction_read_only": (lambda value: value == "on", "nothing can be enqueued or run"),
}


def _role_settings(alias: str) -> Iterator[checks.CheckMessage]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT name, setting, source FROM pg_settings WHERE name = ANY (%s)", [list(_HURTS)])
        for name, value, source in cursor.fetchall():
            hurts, why = _HURTS[name]
            if hurts(value):
                yield checks.Warning(
                    f"Sessions of the database {alias!r} have {name} = {value} (set by: {source}): {why}.",
                    hint="Set it for other roles, or in OPTIONS of the aliases that need it: docs/reference/grants.md.",
                    id="leasequeue.W025",
                )


def _default_partition(alias: str) -> Iterator[checks.CheckMessage]:
    from ..engine import DjangoExecutor

    if DjangoExecutor(alias).fetch("event_default_rows", {"size": 1})[0][0]:
        yield checks.Warning(
            f"Events of the lease log of {alias!r} are in its default partition: numbers outran the partitions.",
            hint="Nothing is lost, but retention can only remove them all at once. See that a worker or 'manage.py"
            " runreaper' is always running, as a role that owns the tables, and raise"
            " LEASEQUEUE['EVENT_PARTITIONS_AHEAD'].",
            id="leasequeue.W017",
        )


def _epoch(alias: str) -> Iterator[checks.CheckMessage]:
    from ..engine import DjangoExecutor
    from ..engine.epoch import above_horizon
    from ..sql.log_notes import waiting_text

    if (above := DjangoExecutor(alias).run(above_horizon())) is not None:
        yield checks.Warning(
            f"The database {alias!r}: {waiting_text(above)}",
            hint="docs/how-to/backup.md says what a restore needs.",
            id="leasequeue.W028",
        )


def _drift(alias: str) -> Iterator[checks.CheckMessage]:
    from ..engine.queues.declared import drift

    try:
        found = drift(alias)
    except (InvalidOption, ImproperlyConfigured):
        return  # the check of the settings reports it
    for item in found:
        if not item.missing:
            yield checks.Warning(
                f"The settings and the database {alias!r} have different options of a queue: {item}.",
                hint="'manage.py leasequeue_queues sync' gives the queue the options of the settings; or take them"
                " out of the settings.",
                id="leasequeue.W013",
            )


def _recurring_rows(alias: str) -> Iterator[checks.CheckMessage]:
    from ..models import RecurringTask
    from ..models.recurring import InvalidSchedule, parse

    if alias != conf.settings.DATABASE:
        return
    for row in RecurringTask.objects.using(alias).filter(enabled=True).order_by("name")[:1_000]:
        try:
            parse(row.schedule, row.timezone, row.phase)
        except InvalidSchedule as error:
            yield checks.Warning(
                f"The recurring task {row.name!r} in the database {alias!r} does not run: {error}",
                hint="Change its schedule or time zone, or disable it.",
                id="leasequeue.W018",
            )
