"""A schema that is not public: its search path stands among the options of the connection."""

from django.core.management import call_command

from testproject.settings import DATABASES
from tests.hosts.settings_plain import *  # noqa: F403

SCHEMA = "first"
DATABASES = {
    "default": {
        **DATABASES["default"],
        "OPTIONS": {**DATABASES["default"].get("OPTIONS", {}), "options": f"-c search_path={SCHEMA}"},
    }
}


def prepare() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    call_command("migrate", verbosity=0)
