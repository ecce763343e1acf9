"""A test database of one's own on a server that others use as well."""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Self

import psycopg
from psycopg import sql

from django_leasequeue.devdb import url_from_database


class OwnDatabase:
    """Reserves a database name for one test run and drops the databases of runs that were killed.

    The name's owner holds an advisory lock on it for as long as its process lives; a name that can be locked has lost
    its owner.

    Args:
        database: the entry of ``DATABASES`` to make the name from.
    """

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
