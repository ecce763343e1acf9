"""Migrations, and the operations that several of them use. CONTRIBUTING.md has their rules."""

from pathlib import Path

from django.db import migrations, models
from pgtrigger.compiler import Trigger, UpsertTriggerSql
from pgtrigger.migrations import AddTrigger

from .. import sql

_FROZEN = Path(__file__).parent / "frozen"
_OPTIONS = ("constraints", "db_table", "default_permissions", "indexes", "managed", "permissions")


def table(name: str, /, **values) -> migrations.CreateModel:
    """Create a model from its fields by name and the options of its ``Meta``."""
    options = {option: values.pop(option) for option in _OPTIONS if option in values}
    return migrations.CreateModel(name, list(values.items()), options)


def queue(related_name: str = "+", field=models.ForeignKey, **values) -> models.ForeignKey:
    """Return the column ``queue_id``: without a constraint, so that a write does not look at the queue."""
    values = {"db_index": False, **values} if field is models.ForeignKey else values
    return field("leasequeue.queue", models.DO_NOTHING, related_name=related_name, db_constraint=False, **values)


def frozen(name: str, version: int) -> str:
    """Return the text of a function of the database: a copy of that version, or the present one if none is newer."""
    copy = _FROZEN / f"{name}_{version}.sql"
    return copy.read_text(encoding="utf-8") if copy.exists() else sql.function(name)


def function(name: str, version: int = 1) -> migrations.RunSQL:
    """Create a function of the database, or replace the version before, which comes back on the way backward."""
    text = frozen(name, version)
    if version == 1:
        return migrations.RunSQL(text, f"DROP FUNCTION leasequeue_{name}")
    before = frozen(name, version - 1)
    return migrations.RunSQL(*(made.replace("CREATE", "CREATE OR REPLACE", 1) for made in (text, before)))


def trigger(model: str, name: str, digest: str, event: str, table: str = "", **values: str) -> list:
    """Add a trigger. Backward its function goes with it, which django-pgtrigger leaves."""
    pgid = f"pgtrigger_{name}_{digest}"
    when, _, operation = event.partition(" ")
    text = UpsertTriggerSql(
        ignore_func_name="_pgtrigger_should_ignore",
        pgid=pgid,
        table=table or f"leasequeue_{model}",
        when=when,
        operation=operation,
        **values,
    )
    return [
        migrations.RunSQL(migrations.RunSQL.noop, f"DROP FUNCTION IF EXISTS {pgid}()"),
        AddTrigger(model, Trigger(name=name, sql=text)),
    ]


def guard(model: str, name: str, digest: str, event: str, *, raises: tuple[str, str], **values: str) -> list:
    """Add a trigger that refuses what it is fired by, with SQLSTATE 23514: ``raises`` has its constraint and message."""
    constraint, message = raises[0], raises[1].replace("'", "''")
    func = f"RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = '{constraint}', MESSAGE = '{message}';"
    return trigger(model, name, digest, event, func=func, **values)
