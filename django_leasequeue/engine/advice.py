"""Errors of the database that mean a mistake in the installation, and what to do about each, in one line."""

from __future__ import annotations

import psycopg

from .outage import psycopg_error

_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction)
_POOLED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)


def advice(error: BaseException) -> str | None:
    """Return what is wrong with the installation and what to do; ``None`` if the error does not tell."""
    found = psycopg_error(error)
    if isinstance(found, _MISSING):
        return f"The tables are missing or old: run migrate ({str(found).splitlines()[0]})."
    if isinstance(found, _POOLED):
        return (
            "A prepared statement is gone: the database is behind a pooler in transaction mode (pgbouncer). Set"
            " 'DISABLE_SERVER_SIDE_CURSORS': True in DATABASES, and LEASEQUEUE['LISTEN_DSN']."
        )
    return None
