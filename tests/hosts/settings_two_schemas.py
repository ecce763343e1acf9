"""Two installs in two schemas of one database: one by the options of its connection, the other by a role.

The second has its whole smoke, with a worker and a reaper of its own, while those of the first go on.
"""

import os
import subprocess
import sys

from tests.hosts import SMOKE
from tests.hosts import settings_schema as first
from tests.hosts.settings_schema import *  # noqa: F403

SECOND = "second"
if os.environ.get("HOST_SCHEMA") == SECOND:
    DATABASES = {"default": {**first.DATABASES["default"], "USER": SECOND, "OPTIONS": {}}}


def prepare() -> None:
    from django.core.management import call_command
    from django.db import connection

    if connection.settings_dict["USER"] == SECOND:
        call_command("migrate", verbosity=0)
        return
    first.prepare()
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {SECOND} LOGIN")
        cursor.execute(f"CREATE SCHEMA {SECOND} AUTHORIZATION {SECOND}")
        cursor.execute(f"ALTER ROLE {SECOND} SET search_path = {SECOND}")


def while_a_worker_runs() -> str:
    """Run the smoke of the second install."""
    if os.environ.get("HOST_SCHEMA") != SECOND:
        print(f"  in the schema {SECOND}:", flush=True)
        subprocess.run([sys.executable, "-c", SMOKE], env={**os.environ, "HOST_SCHEMA": SECOND}, check=True)
    return "the installs of both schemas work beside each other"
