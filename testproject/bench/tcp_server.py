"""A throwaway PostgreSQL that listens on TCP, with a copy of the lease log: JDBC speaks nothing else.

The embedded server has a Unix socket only, and any local user could connect to a port of its. So this one listens on an
address of its own within the loopback network, and asks for a password that is made up for it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from django_leasequeue.devdb import Server
from django_leasequeue.devdb.server import PORT, SUPERUSER
from django_leasequeue.engine import pool

from .sql import statement

_HBA = "local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n"


@contextmanager
def with_events(using: str, scratch: Path) -> Iterator[dict[str, str]]:
    """Start a server, copy the events of a database into it, and stop it afterwards.

    Args:
        using: alias of the database.
        scratch: a directory for its data.

    Returns:
        host, port, user, password, dbname of the copy.

    Raises:
        DevDBError: there are no programs of PostgreSQL (extra ``embedded``), or it does not start.
    """
    # All of 127.0.0.0/8 is this machine on Linux; elsewhere there is one address, and the port may be taken.
    linux = sys.platform == "linux"
    host = f"127.77.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}" if linux else "127.0.0.1"
    password = secrets.token_urlsafe(16)
    server = Server(scratch / "pg", durable=False)
    server.start()
    try:
        with server.connect() as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET listen_addresses = {}").format(sql.Literal(host)))
            connection.execute(sql.SQL("ALTER SYSTEM SET shared_buffers = '256MB'"))
            connection.execute(
                sql.SQL("ALTER USER {} PASSWORD {}").format(sql.Identifier(SUPERUSER), sql.Literal(password))
            )
        server.stop()
        (server.data_dir / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
        server.start()
        with psycopg.connect(**pool.connection_parameters(using)) as there, server.connect() as here:
            _copy(there, here)
        yield {
            "host": host,
            "port": str(PORT),
            "user": SUPERUSER,
            "password": password,
            "dbname": server.django_database()["NAME"],
        }
    finally:
        server.stop("immediate")


def _copy(there: psycopg.Connection[Any], here: psycopg.Connection[Any]) -> None:
    columns = there.execute(statement("event_columns")).fetchall()
    table = sql.Identifier("leasequeue_leaseevent")
    shape = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns)
    here.execute(sql.SQL("CREATE TABLE {} ({})").format(table, shape))
    # Transactions of the other server would lie beyond this one's horizon.
    values = sql.SQL(", ").join(sql.SQL("1::bigint") if name == "txid" else sql.Identifier(name) for name, _ in columns)
    reading = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(values, table)
    writing = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(table)
    with here.transaction(), there.cursor().copy(reading) as out, here.cursor().copy(writing) as into:
        for block in out:
            into.write(block)
    here.execute(sql.SQL("VACUUM ANALYZE {}").format(table))
