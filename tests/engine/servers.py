"""Short words for a database that is on a server of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from django_leasequeue import engine
from django_leasequeue.devdb.server import Server
from django_leasequeue.engine import ConnectionExecutor, NewJob, epoch
from django_leasequeue.engine.topics import log


@contextmanager
def executor(server: Server) -> Iterator[ConnectionExecutor]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield ConnectionExecutor(connection)


def run(server: Server, work: Any) -> Any:
    with executor(server) as own:
        return own.run(work)


def enqueue(server: Server, *data: object, queue: str = "jobs") -> list[int]:
    return [job.seq for job in run(server, engine.enqueue(queue, [NewJob(item) for item in data]))]


def events(server: Server) -> list[tuple[int, int, list[int]]]:
    """The rows of the log, in the order of its readers."""
    with executor(server) as own:
        return own.connection.execute("SELECT txid, id, seqs FROM leasequeue_leaseevent ORDER BY txid, id").fetchall()


def note(server: Server) -> bool:
    """What the reaper does each second."""
    return bool(run(server, log.note_timeline()))


def begin(server: Server) -> epoch.Begun | None:
    with executor(server) as own:
        return epoch.begin(own.connection)
