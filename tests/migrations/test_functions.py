"""A migrated database has exactly the functions of ``sql/functions/`` and the triggers of the models.

Migrations read the present text of a function, and copies in ``migrations/frozen/`` of the versions before.
"""

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


def made() -> dict[str, list[int]]:
    """The versions of each function that migrations make, in their order."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(migrations.__file__).parent.glob("0*.py")))
    found: dict[str, list[int]] = {}
    for name, version in re.findall(r'function\("(\w+)"(?:, (\d+))?\)', text):
        found.setdefault(name, []).append(int(version or 1))
    return found


def test_migrations_make_every_function_version_after_version() -> None:
    assert {name: list(range(1, len(versions) + 1)) for name, versions in made().items()} == made()
    assert sorted(made()) == NAMES


def test_a_copy_is_frozen_of_every_version_but_the_present_one() -> None:
    before = {f"{name}_{version}.sql" for name, versions in made().items() for version in versions[:-1]}
    assert {path.name for path in FROZEN.glob("*")} == before


def test_the_second_version_replaces_the_first_which_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "epoch_1.sql").write_text("CREATE FUNCTION leasequeue_epoch() first", encoding="utf-8")
    monkeypatch.setattr(migrations, "_FROZEN", tmp_path)
    first, second = migrations.function("epoch"), migrations.function("epoch", 2)
    assert (first.sql, first.reverse_sql) == (
        "CREATE FUNCTION leasequeue_epoch() first",
        "DROP FUNCTION leasequeue_epoch",
    )
    assert second.sql == sql.function("epoch").replace("CREATE", "CREATE OR REPLACE", 1)
    assert second.reverse_sql == "CREATE OR REPLACE FUNCTION leasequeue_epoch() first"


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
