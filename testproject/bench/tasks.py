"""The tasks that the worker modes run. Loaded by workers only, under the settings of ``worker_settings``."""

from __future__ import annotations

import itertools
import mmap
import socket
import time
from functools import cache

from django_leasequeue.tasks import task

from . import notes, stamps

_count = itertools.count(1)

#: Milliseconds that a job takes that is not to be quick.
NAP_MS = 20


@task
def noop(number: int) -> None:
    """Do nothing."""


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


@cache
def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.connect(stamps.address())
    return made


@cache
def _counter() -> mmap.mmap:
    return stamps.counter()
