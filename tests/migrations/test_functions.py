"""A migrated database has exactly the functions of ``sql/functions/`` and the triggers of the models.

After a change on purpose: ``UPDATE_SNAPSHOTS=1 make test ARGS=tests/migrations/test_functions.py`` writes the newest
frozen copy of each function, from which migrations make it. CONTRIBUTING.md says when it needs another copy.
"""

import os
import re
from pathlib import Path

import pgtrigger
import pytest
from django.db import connection, transaction

from django_leasequeue import migrations, sql

PRESENT = sorted((Path(sql.__file__).parent / "functions").iterdir())
FROZEN = Path(migrations.__file__).parent / "frozen"
NAMES = [path.stem for path in PRESENT]
EVERY = "SELECT proname FROM pg_proc WHERE proname LIKE 'leasequeue%'"
DEFINITION = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = %s"


def copies(name: str) -> dict[int, Path]:
    """The frozen copies of a function by version."""
    return {
        int(found[1]): path for path in FROZEN.iterdir() if (found := re.fullmatch(rf"{name}_(\d+)\.sql", path.name))
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_newest_frozen_copy_is_the_present_text(name: str) -> None:
    newest = max(copies(name).items())[1]
    if os.environ.get("UPDATE_SNAPSHOTS"):
        newest.write_text(sql.function(name) + "\n", encoding="utf-8")
    assert newest.read_text(encoding="utf-8") == sql.function(name) + "\n"


def test_every_frozen_copy_is_of_a_function_and_made_by_a_migration() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FROZEN.parent.glob("0*.py"))
    for path in FROZEN.iterdir():
        name, version = path.stem.rsplit("_", 1)
        assert name in NAMES
        assert f'"{name}"' in text, f"no migration makes {name}"
        assert int(version) <= len(copies(name)), "versions follow each other"


def test_every_function_says_what_it_does() -> None:
    for path in PRESENT:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("-- Purpose: "), path
        assert f"\nCREATE FUNCTION leasequeue_{path.stem}(" in text, path


@pytest.mark.django_db
def test_a_migrated_database_has_these_functions_and_no_others() -> None:
    with connection.cursor() as cursor:
        cursor.execute(EVERY)
        assert sorted(name for (name,) in cursor.fetchall()) == [f"leasequeue_{name}" for name in NAMES]


@pytest.mark.django_db
@pytest.mark.parametrize("name", NAMES)
def test_a_migrated_database_has_the_present_text(name: str) -> None:
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute(DEFINITION, [f"leasequeue_{name}"])
        migrated = cursor.fetchone()
        cursor.execute(sql.function(name).replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1))
        cursor.execute(DEFINITION, [f"leasequeue_{name}"])
        assert cursor.fetchone() == migrated
        transaction.set_rollback(True)


@pytest.mark.django_db
def test_a_migrated_database_has_the_triggers_of_the_models() -> None:
    ours = [(model, trigger) for model, trigger in pgtrigger.registered() if model._meta.app_label == "leasequeue"]
    assert len(ours) >= 7
    for model, trigger in ours:
        assert trigger.get_installation_status(model) == ("INSTALLED", True), f"{model}: {trigger}"
