"""Starts the embedded PostgreSQL for programs that use these settings."""

import os


def start_embedded_database() -> None:
    """Start the embedded PostgreSQL unless ``DATABASE_URL`` names another one; it goes on running afterwards.

    Raises:
        DevDBError: it cannot be started, or no PostgreSQL is installed.
    """
    if "DATABASE_URL" not in os.environ:
        from testproject.settings import EMBEDDED_DATABASE

        EMBEDDED_DATABASE.start()
