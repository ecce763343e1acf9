"""The ceiling: a job queue in the barest SQL that could do the same job, on the same server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from django_leasequeue.engine import NewJob, arrays, codec

from .sql import statement

Row = tuple[Any, ...]

_BACKSLASH, _ESCAPED, _NULL = "\\", "\\\\", "\\N"


class BareQueue:
    """One table, one index, four statements, all prepared.

    Args:
        connection: in autocommit mode, see ``engine.pool.connect``.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def enqueue(self, job: NewJob) -> int:
        """Add one job; return its number."""
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(
                statement("bare_insert"), {"key": job.key, "name": job.name, "data": _json(job)}, prepare=True
            )
            row = cursor.fetchone()
        assert row is not None
        return int(row[0])

    def enqueue_told(self, job: NewJob, channel: str) -> None:
        """Add one job and notify a channel."""
        params = {"key": job.key, "name": job.name, "data": _json(job), "channel": channel}
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement("bare_insert_notify"), params, prepare=True)

    def enqueue_many(self, jobs: Sequence[NewJob]) -> None:
        """Add many jobs through COPY."""
        self.copy(copy_text(jobs))

    def copy(self, text: str) -> None:
        """Add jobs that are in COPY's text format already."""
        with psycopg.Cursor(self.connection) as cursor, cursor.copy(statement("bare_copy")) as stream:
            stream.write(text)

    def claim(self, size: int) -> list[Row]:
        """Take up to ``size`` jobs: (id, key, name, data, ...)."""
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement("bare_claim"), {"size": size}, binary=True, prepare=True)
            return cursor.fetchall()

    def ack(self, rows: Sequence[Row]) -> None:
        """Delete jobs that are done."""
        self._settle("bare_ack", rows)

    def finish(self, rows: Sequence[Row]) -> None:
        """Delete jobs that are done, and keep a result of each."""
        self._settle("bare_finish", rows)

    def _settle(self, name: str, rows: Sequence[Row]) -> None:
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement(name), {"ids": arrays.integers([row[0] for row in rows])}, prepare=True)


def _json(job: NewJob) -> str | None:
    return None if job.data is None else codec.dumps(job.data)


def copy_text(jobs: Sequence[NewJob]) -> str:
    """Return jobs in COPY's text format; their keys and names need no escaping."""
    return "".join(
        [f"{job.key or _NULL}\t{job.name}\t{(_json(job) or 'null').replace(_BACKSLASH, _ESCAPED)}\n" for job in jobs]
    )
