"""A producer that adds one job at a time, as a Django project does, and the barest one that is its ceiling.

``python -m testproject.bench.producer QUEUE COUNT`` calls a task on Django's own connection, in autocommit,
under the settings of ``worker_settings``. ``... COUNT`` alone inserts rows into the ceiling's table, without Django.
Both print, as JSON, after none, one, two, ... five fifths of the jobs: the time in seconds, and the CPU seconds that
PostgreSQL's process for this connection has used (``null`` where they cannot be read).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from testproject.bench import processes
from testproject.bench.child import watch

DATABASE_VARIABLE = "LEASEQUEUE_BENCH_DATABASE"
FIFTHS = 5

Mark = tuple[float, float | None]


def run(count: int, backend: int, database: str, add: Callable[[int], object]) -> list[Mark]:
    """Add ``count`` jobs; return the marks.

    Args:
        count: how many.
        backend: what ``pg_backend_pid()`` said on the connection.
        database: its database.
        add: adds the job of this number.
    """
    local = processes.postmaster_of(backend, database) is not None
    marks: list[Mark] = []
    done = 0
    for fifth in range(FIFTHS + 1):
        for number in range(done, count * fifth // FIFTHS):
            add(number)
            done += 1
        marks.append((time.perf_counter(), processes.cpu_seconds(backend) if local else None))
    return marks


def tasks(queue: str, count: int) -> list[Mark]:
    """Call a task so many times; what Django asks of a new connection is asked before."""
    import django

    django.setup()
    from django.db import connections

    from testproject.bench.tasks import noop

    connection = connections[os.environ[DATABASE_VARIABLE]]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), current_database()")
        backend, database = cursor.fetchone()
    call = noop.using(queue_name=queue)
    return run(count, backend, database, call.enqueue)


def bare(dsn: str, count: int) -> list[Mark]:
    """Insert so many rows."""
    import psycopg

    from testproject.bench.bare import BareQueue
    from testproject.bench.bench import jobs_of

    with psycopg.connect(dsn, autocommit=True) as connection:
        table = BareQueue(connection)
        jobs = jobs_of(count)
        info = connection.info
        return run(count, info.backend_pid, info.dbname, lambda number: table.enqueue(jobs[number]))


def main(arguments: list[str]) -> None:
    """Run what the arguments say."""
    from testproject.bench.bare_worker import DSN_VARIABLE

    threading.Thread(target=watch, daemon=True).start()
    *queue, count = arguments
    found: Any = tasks(queue[0], int(count)) if queue else bare(os.environ[DSN_VARIABLE], int(count))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
