"""Every migration after those of the first release is safe on large tables in use; each rule refuses a bad example."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.db import connection, migrations, models
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint
from django.db.models.functions import Random

from django_leasequeue.migrations import function

from .linter import INITIAL, problems

ADD, ALTER = migrations.AddField, migrations.AlterField
INDEX = Index(fields=["node"], name="leasequeue_result_node")
POSITIVE = CheckConstraint(condition=Q(deliveries__gte=0), name="leasequeue_result_deliveries")


def migration(*operations: Any, **attributes: Any) -> Migration:
    return type("Migration", (Migration,), {"operations": operations, **attributes})("9999_example", "leasequeue")


def backfill(apps: Any, schema_editor: Any) -> None:
    """Would change rows."""


@pytest.fixture
def apart(db: None) -> Iterator[Any]:
    """A connection outside of the test's transaction, in which indexes may be made concurrently."""
    made = connection.copy()
    yield made
    made.close()


def rules(example: Migration, connection: Any) -> set[str]:
    state = MigrationLoader(None).project_state()
    return {problem.partition(":")[0] for problem in problems(example, state, connection)}


def test_every_migration_after_the_first_release_is_safe(apart: Any) -> None:
    loader = MigrationLoader(None)
    ours = [key for key in loader.graph.nodes if key[0] == "leasequeue"]
    assert {name for _, name in ours} >= set(INITIAL)
    for key in ours:
        if key[1] not in INITIAL:
            state = loader.project_state(key, at_end=False)
            assert problems(loader.graph.nodes[key], state, apart) == [], key


@pytest.mark.parametrize(("rule", "example"), [
    ("adding-field-with-default", migration(ADD("jobresult", "new", models.FloatField(db_default=Random())))),
    ("ban-drop-default", migration(ADD("jobresult", "new", models.IntegerField(default=0)))),
    ("changing-column-type", migration(ALTER("jobresult", "deliveries", models.BigIntegerField()))),
    ("adding-not-nullable-field", migration(ALTER("jobresult", "node", models.TextField()))),
    ("require-concurrent-index-creation", migration(migrations.AddIndex("jobresult", INDEX))),
    ("require-concurrent-index-deletion", migration(migrations.RemoveIndex("jobresult", "leasequeue_result_failed"))),
    ("concurrently-apart", migration(AddIndexConcurrently("jobresult", INDEX), ADD("jobresult", "new", models.TextField(null=True)), atomic=False)),
    ("concurrently-apart", migration(AddIndexConcurrently("jobresult", INDEX))),
    ("constraint-missing-not-valid", migration(migrations.AddConstraint("jobresult", POSITIVE))),
    ("disallowed-unique-constraint", migration(migrations.AddConstraint("jobresult", UniqueConstraint(fields=["claim"], name="leasequeue_result_claim")))),
    ("renaming-column", migration(migrations.RenameField("jobresult", "node", "worker"))),
    ("renaming-table", migration(migrations.RenameModel("Attempt", "FailedAttempt"))),
    ("ban-drop-column", migration(migrations.RemoveField("jobresult", "node"))),
    ("ban-drop-table", migration(migrations.DeleteModel("Attempt"))),
    ("unused-since", migration(migrations.RemoveField("jobresult", "node"), unused_since="0.0.1")),
    ("irreversible", migration(migrations.RunSQL("SELECT 1"))),
    ("irreversible", migration(migrations.RunPython(backfill), atomic=False)),
    ("data-in-one-transaction", migration(migrations.RunPython(backfill, migrations.RunPython.noop))),
    ("data-in-one-statement", migration(migrations.RunSQL("UPDATE leasequeue_jobresult SET node = ''", migrations.RunSQL.noop))),
])  # fmt: skip
def test_a_bad_example_is_refused(rule: str, example: Migration, apart: Any) -> None:
    assert rule in rules(example, apart)


@pytest.mark.parametrize("example", [
    migration(ADD("jobresult", "new", models.IntegerField(db_default=0)), ADD("attempt", "new", models.TextField(null=True))),
    migration(function("emit")),
    migration(AddIndexConcurrently("jobresult", INDEX), atomic=False),
    migration(AddConstraintNotValid("jobresult", POSITIVE)),
    migration(migrations.CreateModel("New", [("id", models.BigAutoField(primary_key=True))], {"indexes": [Index(fields=["-id"], name="new_id")]})),
    migration(migrations.RunPython(backfill, migrations.RunPython.noop), atomic=False),
])  # fmt: skip
def test_a_good_example_is_taken(example: Migration, apart: Any) -> None:
    assert rules(example, apart) == set()
