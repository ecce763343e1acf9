"""Calls of tasks that are about to be stored, and what is noted on their results afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

from .. import engine
from . import after_commit, results
from .api import TaskResult
from .exceptions import TaskNotFound
from .new_results import note_stored
from .times import local


class Calls(NamedTuple):
    """Calls for one queue that are about to be stored, in order: results for the caller, jobs for the database."""

    results: list[TaskResult[Any]]
    jobs: list[engine.NewJob]


#: Calls by their queues.
Queues = dict[str, Calls]


def jobs_of(queues: Queues) -> dict[str, list[engine.NewJob]]:
    """Return the jobs of calls."""
    return {name: calls.jobs for name, calls in queues.items()}


def with_known_ids(calls: Calls) -> Calls:
    """Return the calls with ids that are known before they are stored; their results have them."""
    jobs = [after_commit.with_known_id(job) for job in calls.jobs]
    for result, job in zip(calls.results, jobs, strict=True):
        object.__setattr__(result, "id", job.key)
    return calls._replace(jobs=jobs)


class Taken(NamedTuple):
    """A call whose key is taken, and the number of the job that has it."""

    result: TaskResult[Any]
    job: engine.NewJob
    seq: int


def note(queues: Queues, answers: Mapping[str, Sequence[engine.Enqueued]]) -> dict[str, list[Taken]]:
    """Note the ids and times of new jobs; return the calls whose keys are taken."""
    taken: dict[str, list[Taken]] = {}
    at, shown = None, None
    for name, calls in queues.items():
        for result, job, (seq, status, _, created_at) in zip(*calls, answers[name], strict=True):
            if status is not engine.EnqueueStatus.QUEUED:
                taken.setdefault(name, []).append(Taken(result, job, seq))
                continue
            if created_at is not at:  # those of one statement have one object
                at, shown = created_at, local(created_at)
            note_stored(result, None if job.id_end is None else engine.make_id(seq, job.id_end), shown)
    return taken


def note_taken(
    taken: Mapping[str, Sequence[Taken]],
    found: Mapping[int, tuple[str, results.ResultRow | None]],
    alias: str,
) -> Queues:
    """Make the results of calls whose keys were taken those that are there; return calls whose keys are free now."""
    left: Queues = {}
    for name, items in taken.items():
        for result, job, seq in items:
            if seq not in found:
                free = left.setdefault(name, Calls([], []))
                free.results.append(result)
                free.jobs.append(job)
                continue
            key, row = found[seq]
            object.__setattr__(result, "id", key)
            object.__setattr__(result, "_created", False)
            # The key may be that of a job that is no task of this project's code.
            with suppress(TaskNotFound):
                known = None if row is None else results.result_of_row(key, row, alias)
                for each in () if known is None else fields(known):
                    object.__setattr__(result, each.name, getattr(known, each.name))
    return left
