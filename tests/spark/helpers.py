"""Rows of the lease log as tests want them, beside the engine: exact times and kinds; histories of jobs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import EventKind
from tests.engine.helpers import claim, enqueue, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A connection beside the engine.
Database = psycopg.Connection[Any]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def place(dsn: str) -> dict[str, str]:
    return {name: value for name, value in psycopg.conninfo.conninfo_to_dict(dsn).items() if isinstance(value, str)}


def words(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(connection: Database, **fields: Any) -> None:
    """Write one event of one job; what is not named gets a plain default."""
    row = {"occurred_at": NOON, "queue_id": 1, "seq": 1, "kind": EventKind.ENQUEUED, **fields}
    seq = row.pop("seq")
    row |= {"kind": int(row["kind"]), "low": seq, "high": seq, "seqs": [seq]}
    for name in ("deliveries", "waited", "ran"):
        if row.get(name) is not None:
            row[name] = [row[name]]
    batch(connection, **row)


def batch(connection: Database, **row: Any) -> None:
    if row.get("detail") is not None:
        row["detail"] = json.dumps(row["detail"])
    names = ", ".join(row)
    marks = ", ".join(f"%({name})s" for name in row)
    connection.execute(f"INSERT INTO leasequeue_leaseevent ({names}) VALUES ({marks})", row)


def many(connection: Database, count: int, *, jobs: int = 50, **fields: Any) -> None:
    """Write many events in one transaction, seq 1 to ``count``, in rows of so many jobs."""
    row = {"occurred_at": NOON, "queue_id": 1, "kind": int(EventKind.ENQUEUED), **fields}
    names = ", ".join(row)
    marks = ", ".join(f"%({name})s" for name in row)
    connection.execute(
        f"INSERT INTO leasequeue_leaseevent (low, high, seqs, {names})"
        f" SELECT min(n), max(n), array_agg(n ORDER BY n), {marks} FROM generate_series(1::bigint, {count}) n"
        f" GROUP BY (n - 1) / {jobs} ORDER BY 1",
        row,
    )


def fail(queue: str, node: str, size: int, fingerprint: str = "f1") -> None:
    """Claim jobs and release them for an error: where one try is all, they die of it."""
    for job in claim(size, queue, node):
        failure = engine.Failure("app.Boom", "boom", "", fingerprint)
        engine.run(engine.release([engine.Release(job.seq, job.token, failure=failure)], node))


def work() -> None:
    """Ten jobs: eight done, one dead, one open; done by two nodes."""
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    enqueue(*(NewJob(data=n, name="t") for n in range(10)))
    for node in ("a", "b"):
        for job in claim(4, node=node):
            engine.run(engine.ack([job.seq], node, tokens=[job.token]))
    fail("work", "a", 1)


SCHEMA = (
    "id bigint, txid bigint, occurred_at timestamp, queue string, project string, seq bigint, waited int,"
    " ran int, deadline timestamp, deliveries int, event string, node string, name string, detail string"
)


class History:
    """Events of jobs, told in seconds after noon."""

    queue = "work"

    def __init__(self, lease: float = 30) -> None:
        self.lease = lease
        self.rows: list[tuple[Any, ...]] = []
        self._ids, self._seqs = itertools.count(1), itertools.count(1)

    def event(self, seq: int, event: str, second: float, **fields: Any) -> None:
        number, detail = next(self._ids), fields.get("detail")
        waited = None if fields.get("waited") is None else round(fields["waited"] * 1000)
        deadline = at(second + self.lease) if event in {"claimed", "extended"} else None
        detail = None if detail is None else json.dumps(detail)
        place = (number, number, at(second), self.queue, "", seq, waited, fields.get("ran"), deadline)
        self.rows.append((*place, None, event, fields.get("node"), fields.get("task", "t"), detail))

    def job(self, enqueued: float, *tries: tuple[str, float, float, str], fingerprint: str = "boom") -> None:
        """One job: (node, claimed, ended, outcome) a try."""
        seq, ready = next(self._seqs), enqueued
        self.event(seq, "enqueued", enqueued)
        for node, claimed, ended, outcome in tries:
            self.event(seq, "claimed", claimed, node=node, waited=claimed - ready)
            ready = ended
            failed = outcome in {"failed", "released", "dead_lettered"}
            detail = {"error_type": "E", "fingerprint": fingerprint} if failed else None
            for event in ("released", outcome) if outcome == "dead_lettered" else (outcome,):
                self.event(seq, event, ended, node=node, detail=detail)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows, SCHEMA)
