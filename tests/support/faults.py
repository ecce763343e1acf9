"""A PostgreSQL server of a test's own whose faults the test brings about, behind a proxy."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from django_leasequeue.devdb import url_from_database
from tests.support.databases import database_alias
from tests.support.proxy import Proxy
from tests.support.temporary_server import TemporaryServer


class Faulty:
    """A server that runs, its database migrated, the proxy that clients go through, and what can happen to both."""

    def __init__(self, server: TemporaryServer, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy
        #: The entry of ``DATABASES`` of a client.
        database = server.django_database()
        options = {**database.get("OPTIONS", {}), "connect_timeout": 2}
        self.database = {**database, "HOST": proxy.host, "PORT": str(proxy.port), "OPTIONS": options}
        self.url = url_from_database(self.database)

    def execute(self, *statements: str) -> None:
        """Execute statements as an operator, beside the proxy; of a read-only server as well."""
        conninfo = self.server.conninfo()
        with psycopg.connect(conninfo, autocommit=True, options="-c default_transaction_read_only=off") as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def set(self, name: str, value: str) -> None:
        """Set a parameter of the server for everybody, those who are connected included."""
        self.execute(f"ALTER SYSTEM SET {name} = {value}", "SELECT pg_reload_conf()")

    def reset(self, name: str) -> None:
        self.execute(f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


@contextmanager
def faulty(server: TemporaryServer) -> Iterator[Faulty]:
    """A proxy in front of a server, for the length of a test."""
    database = server.django_database()
    with Proxy(database["HOST"], int(database["PORT"])) as proxy:
        yield Faulty(server, proxy)


@contextmanager
def alias(found: Faulty, name: str = "faulty", *, direct: bool = False) -> Iterator[str]:
    """The server, through its proxy or directly, as a database alias of this process."""
    database = found.server.django_database() if direct else found.database
    with database_alias(name, database):
        yield name
