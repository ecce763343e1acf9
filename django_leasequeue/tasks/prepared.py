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


class Prepared(NamedTuple):
    """One call that is about to be stored: the result for the caller, the job for the database."""

    result: TaskResult[Any]
    job: engine.NewJob
    queue: str
    database: str


#: Calls by their queues, each in order.
Queues = dict[str, list[Prepared]]


def group(prepared: Sequence[Prepared]) -> dict[str, Queues]:
    """Return the calls by database and queue, each in order."""
    groups: dict[str, Queues] = {}
    for item in prepared:
        groups.setdefault(item.database, {}).setdefault(item.queue, []).append(item)
    return groups


def jobs_of(queues: Queues) -> dict[str, list[engine.NewJob]]:
    """Return the jobs of calls."""
    return {name: [item.job for item in items] for name, items in queues.items()}


def with_known_id(item: Prepared) -> Prepared:
    """Return the call with an id that is known before it is stored; its result has it."""
    job = after_commit.with_known_id(item.job)
    object.__setattr__(item.result, "id", job.key)
    return item._replace(job=job)


def note(queues: Queues, answers: Mapping[str, Sequence[engine.Enqueued]]) -> dict[str, list[tuple[Prepared, int]]]:
    """Note the ids and times of new jobs; return the other calls, with the numbers of the jobs that have their keys."""
    taken: dict[str, list[tuple[Prepared, int]]] = {}
    at, shown = None, None
    for name, items in queues.items():
        for item, answer in zip(items, answers[name], strict=True):
            if answer.status is not engine.EnqueueStatus.QUEUED:
                taken.setdefault(name, []).append((item, answer.seq))
                continue
            if answer.created_at is not at:  # those of one statement have one object
                at, shown = answer.created_at, local(answer.created_at)
            end = item.job.id_end
            note_stored(item.result, None if end is None else engine.make_id(answer.seq, end), shown)
    return taken


def note_taken(
    taken: Mapping[str, Sequence[tuple[Prepared, int]]],
    found: Mapping[int, tuple[str, results.ResultRow | None]],
    alias: str,
) -> Queues:
    """Make the results of calls whose keys were taken those that are there; return calls whose keys are free now."""
    left: Queues = {}
    for name, items in taken.items():
        for item, seq in items:
            if seq not in found:
                left.setdefault(name, []).append(item)
                continue
            key, row = found[seq]
            object.__setattr__(item.result, "id", key)
            object.__setattr__(item.result, "_created", False)
            # The key may be that of a job that is no task of this project's code.
            with suppress(TaskNotFound):
                known = None if row is None else results.result_of_row(key, row, alias)
                for each in () if known is None else fields(known):
                    object.__setattr__(item.result, each.name, getattr(known, each.name))
    return left
