"""Calls of ``leasequeue_enqueue``, as the tests make them."""

import json
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from psycopg import sql

from django_leasequeue import engine

ADD = "tests.tasks.samples.add"
LATER = datetime(2040, 5, 6, 7, 8, 9, 120_000, UTC)


def call(task: str | None = ADD, payload: Any = None, **options: Any) -> tuple[sql.Composed, list[Any]]:
    """The text and the parameters of a call in SQL; dicts are jsonb."""
    given = {"task": task, "payload": payload, **options}
    names = sql.SQL(", ").join(
        sql.SQL("{} => %s::jsonb" if name in ("payload", "tags") else "{} => %s").format(sql.Identifier(name))
        for name in given
    )
    values = [
        json.dumps(value) if name in ("payload", "tags") and value is not None else value
        for name, value in given.items()
    ]
    return sql.SQL("SELECT leasequeue_enqueue({})").format(names), values


def enqueue(task: str | None = ADD, payload: Any = None, **options: Any) -> str:
    text, values = call(task, payload, **options)
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return str(cursor.fetchone()[0])


def on(executor: engine.ConnectionExecutor, *given: Any, **options: Any) -> str:
    found = executor.connection.execute(*call(*given, **options)).fetchone()
    assert found is not None
    return str(found[0])
