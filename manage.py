#!/usr/bin/env python
"""Django's command line for the demo and test project."""

import os
import sys

from django.core.management import execute_from_command_line

from django_leasequeue.devdb import DevDBError
from testproject.database import start_embedded_database

# These are asked about the database, or about nothing at all, and must not start it.
_WITHOUT_DATABASE = {"leasequeue_devdb", "help", "--help", "-h", "version", "--version"}


def main() -> None:
    """Run a command of the test project."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    if len(sys.argv) > 1 and not _WITHOUT_DATABASE.intersection(sys.argv[1:]):
        try:
            start_embedded_database()
        except DevDBError as error:
            sys.exit(str(error))
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
