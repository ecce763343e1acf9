"""Forward, back to zero, forward again, on a real database; and nothing is left that a migration should say."""

import json
import secrets
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from django_leasequeue.devdb import url_from_database
from tests.support.environment import child_environment, python

#: Run in a process of its own: migrations change what is installed.
SCRIPT = """
import json, sys
import django
from django.conf import settings
settings.LEASEQUEUE = {
    "QUEUES": {"declared": {"preset": "django"}},
    "RECURRING": {"report": {"task": "tests.reaper.recurring.tasks.report", "schedule": "every hour"}},
}
django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

LEFT = '''
SELECT 'relation ' || relname FROM pg_class WHERE relname LIKE 'leasequeue%%' AND relkind IN ('r', 'p', 'S', 'i', 'I', 'v')
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename LIKE 'leasequeue%%'
UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE proname LIKE 'pgtrigger%%' OR proname LIKE 'leasequeue%%'
UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname LIKE 'pgtrigger%%'
UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typname LIKE 'leasequeue%%'
'''

def installed():
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        return sorted(row[0] for row in cursor.fetchall())

def works():
    from django_leasequeue import engine
    from django_leasequeue.models import LeaseEvent
    from tests.support.rows import rows
    engine.run(engine.create("work"))
    engine.run(engine.enqueue("work", [engine.NewJob(data=1), engine.NewJob(data=2)]))
    (job,) = engine.run(engine.claim("work", "n"))
    assert engine.run(engine.ack([job.seq], "n")).ok == [job.seq]
    try:
        rows(LeaseEvent).update(node="x")
    except Exception as error:
        return type(error).__name__
    return "no trigger"

found = {}
call_command("migrate", verbosity=0)
found["first"] = installed()
found["works"] = works()

names = sorted(name for app, name in MigrationLoader(connection).disk_migrations if app == "leasequeue")
for name in reversed(names):
    call_command("migrate", "leasequeue", name, verbosity=0)
call_command("migrate", "leasequeue", "zero", verbosity=0)
found["zero"] = installed()
print("-- forward", file=sys.stderr)
for name in names:
    call_command("migrate", "leasequeue", name, verbosity=0)
call_command("migrate", verbosity=0)
found["again"] = installed()
found["works again"] = works()
print(json.dumps(found))
"""


@pytest.fixture
def scratch_url(test_database_url: str) -> Iterator[str]:
    """An empty database beside the test database."""
    name = f"test_migrations_{secrets.token_hex(4)}"
    database = connections["default"].settings_dict
    with psycopg.connect(url_from_database(database), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield url_from_database({**database, "NAME": name})
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def run(*command: str, url: str, settings: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = child_environment(url)
    if settings is not None:
        environment["DJANGO_SETTINGS_MODULE"] = settings
    return python("-W", "error::DeprecationWarning:django_leasequeue", *command, env=environment)


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("settings", [
    pytest.param("testproject.settings", marks=pytest.mark.sample), "testproject.settings_without_trigger_schema",
])  # fmt: skip
def test_forward_back_and_forward_again(scratch_url: str, settings: str) -> None:
    done = run("-c", SCRIPT, url=scratch_url, settings=settings)
    assert done.returncode == 0, done.stderr[-3_000:]
    back, forward = done.stderr.split("-- forward")
    assert "not those of this version" not in back, "what is declared is no matter on the way back"
    assert "Traceback" not in done.stderr
    assert "The declared queues are not made: the tables are not those of this version. Run migrate." in forward
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["works"] == found["works again"] == "IntegrityError"
    assert found["zero"] == []
    assert (found["first"], "relation leasequeue_leaseevent_default" in found["first"]) == (found["again"], True)


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("settings", ["testproject.settings", "testproject.settings_without_trigger_schema"])
def test_no_change_waits_for_a_migration(test_database_url: str, settings: str) -> None:
    done = run("manage.py", "makemigrations", "--check", "--dry-run", url=test_database_url, settings=settings)
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    assert "No changes detected" in done.stdout
