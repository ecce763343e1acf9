"""Rows of the lease log as tests want them, beside the engine: exact times, transactions and kinds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import EventKind
from tests.engine.helpers import make

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
COLUMNS = (
    "id", "txid", "occurred_at", "queue_id", "seq", "claim", "enqueued_at", "deadline", "deliveries", "kind", "node",
    "name", "detail",
)  # fmt: skip


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(connection: psycopg.Connection[Any], **fields: Any) -> None:
    """Write one event; what is not named gets a plain default."""
    row = {"occurred_at": NOON, "queue_id": 1, "seq": 1, "kind": EventKind.ENQUEUED, **fields}
    row["kind"] = int(row["kind"])
    if row.get("detail") is not None:
        row["detail"] = json.dumps(row["detail"])
    names = ", ".join(row)
    marks = ", ".join(f"%({name})s" for name in row)
    connection.execute(f"INSERT INTO leasequeue_leaseevent ({names}) VALUES ({marks})", row)


def many(connection: psycopg.Connection[Any], count: int, **fields: Any) -> None:
    """Write many events in one transaction, seq 1 to ``count``."""
    row = {"occurred_at": NOON, "queue_id": 1, "kind": int(EventKind.ENQUEUED), **fields}
    names = ", ".join(row)
    marks = ", ".join(f"%({name})s" for name in row)
    connection.execute(
        f"INSERT INTO leasequeue_leaseevent (seq, {names}) SELECT n, {marks} FROM generate_series(1, {count}) n", row
    )


def work() -> None:
    """Ten jobs: eight done, one dead, one open; done by two nodes."""
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    engine.run(engine.enqueue("work", [NewJob(data=n, name="t") for n in range(10)]))
    for node in ("a", "b"):
        for job in engine.run(engine.claim("work", node, 4)):
            engine.run(engine.ack([job.seq], node, claims=[job.claim]))
    for job in engine.run(engine.claim("work", "a", 1)):
        failure = engine.Failure("app.Boom", "boom", "", "f1")
        engine.run(engine.release([engine.Release(job.seq, job.claim, failure=failure)], "a"))
