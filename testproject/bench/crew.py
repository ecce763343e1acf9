"""A worker that waits for jobs; they note in a file when they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_leasequeue import engine

from . import children, notes
from .bench import Bench, jobs_of
from .options import PROJECT

NAP, NOTE = "testproject.bench.tasks.nap", "testproject.bench.tasks.note"

WORKERS = 4


@contextmanager
def crew(bench: Bench, queue: str) -> Iterator[notes.Notes]:
    """Start a worker of ``WORKERS`` processes on a queue: it is idle, and has done as many jobs.

    Yields:
        What their jobs note from now on.
    """
    with notes.Notes() as told, _start(bench, queue, told) as worker:
        bench.executor.run(engine.enqueue(queue, jobs_of(WORKERS, name=NOTE), project=PROJECT))
        wait(bench, told, WORKERS)
        worker.check()
        told.forget()
        yield told


def _start(bench: Bench, queue: str, told: notes.Notes) -> children.Child:
    return children.worker(bench.options.using, queue, "--processes", str(WORKERS), environment=told.environment)


def wait(bench: Bench, told: notes.Notes, jobs: int) -> None:
    """Wait until so many jobs have noted.

    Raises:
        ChildFailed: they have not in time.
    """
    if not told.wait(jobs, bench.patience(jobs)):
        raise children.ChildFailed(f"The workers have done {told.count:,} of {jobs:,} jobs; they are given up.")
