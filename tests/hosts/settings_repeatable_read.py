"""A role whose transactions are repeatable read, unless they say otherwise."""

from django.core.management import call_command
from django.db import connection

from tests.hosts.settings_plain import *  # noqa: F403


def prepare() -> None:
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'repeatable read'")
    connection.close()
