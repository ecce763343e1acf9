"""A test database of one's own on a server that others use as well."""

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Self

import psycopg
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import DeadlockDetected

from django_leasequeue.devdb import url_from_database
from django_leasequeue.engine.pool import connection_parameters


class OwnDatabase:
    """Reserves a database name by a lock that ends with its owner, and drops the databases of runs that were killed."""

    def __init__(self, database: Mapping[str, Any]) -> None:
        self._database = database
        self._prefix = f"test_{database['NAME'][:40]}_"
        self.name = self._prefix + secrets.token_hex(4)

    def __enter__(self) -> Self:
        self._connection = self._connect()
        self._lock(self.name)
        self._drop_abandoned()
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def _connect(self) -> psycopg.Connection:
        try:
            return psycopg.connect(url_from_database({**self._database, "NAME": "postgres"}), autocommit=True)
        except psycopg.OperationalError:
            # Some hosted servers have no such database. Locks count within one database: all runs take the same way.
            return psycopg.connect(url_from_database(self._database), autocommit=True)

    def _lock(self, name: str) -> bool:
        row = self._connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone()
        return bool(row and row[0])

    def _drop_abandoned(self) -> None:
        pattern = f"^{re.escape(self._prefix)}[0-9a-f]{{8}}$"
        rows = self._connection.execute("SELECT datname FROM pg_database WHERE datname ~ %s", [pattern]).fetchall()
        for (name,) in rows:
            if name != self.name and self._lock(name):
                self._connection.execute(
                    sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                )
                self._connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [name])


@contextlib.contextmanager
def database_alias(name: str, database: Mapping[str, Any]) -> Iterator[str]:
    """One more entry of ``DATABASES`` for a while. Its connection goes with it: the next user of the name opens one."""
    connections.settings[name] = connections.configure_settings({name: dict(database), "default": {}})[name]
    try:
        yield name
    finally:
        if hasattr(connections._connections, name):
            with contextlib.suppress(psycopg.Error):
                connections[name].close()
            del connections[name]
        del connections.settings[name]


#: What ``migrate`` writes, and no test changes.
_KEPT = {"auth_permission", "django_content_type"}

#: Truncating sixty tables takes a tenth of a second, whatever is in them; deleting a few rows takes milliseconds, and
#: leaves dead ones behind, so a table of more than eight pages is truncated. Guards do not fire.
_EMPTY = """
DO $$
DECLARE
    name text;
    large text[];
BEGIN
    SET LOCAL session_replication_role = replica;
    FOREACH name IN ARRAY '{%s}'::text[] LOOP
        IF (SELECT sum(pg_relation_size(t.oid)) FROM (
                SELECT name::regclass UNION SELECT relid FROM pg_partition_tree(name)) t(oid)) > 65536 THEN
            large := large || name;
        ELSE
            EXECUTE 'DELETE FROM ' || name;
        END IF;
    END LOOP;
    IF large IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || array_to_string(large, ', ') || ' CASCADE';
    END IF;
    -- Counted now: a lake's stream would take what is counted later for rows that were deleted by hand.
    PERFORM pg_stat_force_next_flush();
END $$
"""


@cache
def _statement(alias: str) -> str:
    connection = connections[alias]
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - _KEPT
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone()[0]:
            return _EMPTY % ",".join(sorted(tables))
    return f"TRUNCATE {', '.join(sorted(tables))} CASCADE"


#: Connections that empty tables, by what they lead to. They stay open: on a new one PostgreSQL reads anew what it knows
#: of the tables, and that takes four times as long.
_emptying: dict[str, psycopg.Connection] = {}


def empty_tables(alias: str) -> None:
    """Delete the rows of all tables that models have, though a server that outlives the test is at work in them."""
    dsn, statement = make_conninfo(**connection_parameters(alias)), _statement(alias)
    for left in reversed(range(5)):
        connection = _emptying.get(dsn)
        try:
            if connection is None or connection.closed:
                connection = _emptying[dsn] = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
            connection.execute(statement)
            return
        except psycopg.OperationalError as error:  # a deadlock, or the server was restarted
            if not left or not (connection is None or connection.closed or isinstance(error, DeadlockDetected)):
                raise


def close_emptying() -> None:
    """Close the connections that empty tables: a database is not dropped while somebody is connected."""
    while _emptying:
        _emptying.popitem()[1].close()
