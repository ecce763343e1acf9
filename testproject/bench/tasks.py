"""The tasks that the worker modes run. Loaded by workers only, under the settings of ``worker_settings``."""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import threading
import time
from functools import cache
from typing import Any

import psycopg
from django.db import connection

from django_leasequeue import conf
from django_leasequeue.engine import pool
from django_leasequeue.tasks import Batch, current, task

from . import notes, stamps
from .options import STEPS
from .sql import statement

_count = itertools.count(1)

#: Milliseconds that a job takes that is not to be quick.
NAP_MS = 20

_own = threading.local()


@task
def noop(number: int) -> None:
    """Do nothing."""


@task(batch=100)
def noops(batch: Batch) -> None:
    """Do nothing."""


@task
def touch(number: int) -> None:
    """Run one statement on Django's connection."""
    connection.cursor().execute("SELECT 1")


@task(batch=100)
def touches(batch: Batch) -> None:
    """Run one statement for all calls."""
    connection.cursor().execute("SELECT 1")


@task
def stamp(number: int) -> None:
    """Tell the benchmark when this job began."""
    _socket().send(stamps.STAMP.pack(number, time.monotonic_ns()))


@task
def tally(number: int) -> None:
    """Count, where the benchmark can see it without asking the database."""
    # next() of a count is one step for all threads; a value that an older one overwrites is wrong for a moment only.
    stamps.STAMP.pack_into(_counter(), 0, next(_count), 0)


@task
def note(number: int) -> None:
    """Note when this job ran."""
    notes.note(number)


@task
def nap(number: int) -> None:
    """Take ``NAP_MS``, and note the end."""
    time.sleep(NAP_MS / 1000)
    notes.note(number)


@task
def five_steps(number: int) -> None:
    """Do five durable steps."""
    job = current()
    assert job is not None
    for _ in range(STEPS):
        job.step("step", int)


@task
def five_inserts(number: int) -> None:
    """Do by hand what five steps do: five rows, each committed."""
    for step in range(STEPS):
        params = {"job": number, "name": f"step#{step}", "value": "0"}
        with psycopg.Cursor(_connection()) as cursor:
            cursor.execute(statement("bare_step_insert"), params, prepare=True)


def _connection() -> psycopg.Connection[Any]:
    """Return a connection of this thread's own."""
    if (found := getattr(_own, "connection", None)) is None:
        using = os.environ.get("LEASEQUEUE_BENCH_DATABASE") or conf.settings.DATABASE
        found = _own.connection = psycopg.connect(**pool.connection_parameters(using), autocommit=True)
    return found


@cache
def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.connect(stamps.address())
    return made


@cache
def _counter() -> mmap.mmap:
    return stamps.counter()
