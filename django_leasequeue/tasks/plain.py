"""Calls of a task whose jobs differ in nothing but their arguments: results are made while PostgreSQL stores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from .. import conf, engine, signals
from ..conf import process
from ..engine import metadata
from ..engine.jobs.plain import LARGE_CHARACTERS, MOST, Added, Plain, one_plain_steps, plain_steps
from ..engine.limits import check_place
from ..engine.operation import BEGIN, Steps, operation
from .api import Task, TaskResult
from .calls import written
from .decorator import Call
from .results import json_arguments, local, new_end, new_ends, new_result, note_stored


class NotPlain(Exception):
    """A payload is large, or the queue missing, a log, kept from writers or one with a cap."""


#: The arguments of calls that one statement stores.
Part = list[tuple[list[Any], dict[str, Any]]]


def is_possible() -> bool:
    """Return whether nothing asks for every job by itself: codecs, large payloads in a storage, traces, signals."""
    settings = conf.settings
    asked = settings.TASK_CODECS or settings.LARGE.ABOVE is not None or signals.enqueued.receivers
    return not asked and metadata.begin_trace is None


def parts_of(calls: Sequence[Call]) -> list[Part]:
    """Return the arguments of calls as JSON, in parts; errors are as of ``enqueue``."""
    with process.collector_paused():
        arguments = [json_arguments(task, args, kwargs) for task, args, kwargs in calls]
    return [arguments[start : start + MOST] for start in range(0, len(arguments), MOST)]


@operation
def store_one(project: str, task: Task[..., Any], backend: str, call: Call) -> Steps[list[TaskResult[Any]]]:
    """Add the job of a call, and return its result; see ``store``."""
    args, kwargs = json_arguments(*call)
    data = written(args, kwargs)
    # A character is at most four bytes: up to here a payload has no flag, and is allowed for sure.
    if data is not None and len(data) > min(LARGE_CHARACTERS, conf.settings.MAX_PAYLOAD_BYTES // 4):
        raise NotPlain
    check_place(project, task.queue_name)
    results: list[TaskResult[Any]] = []

    def make() -> None:
        results.append(new_result(task, args, kwargs, backend))

    end = new_end()
    added = yield from one_plain_steps(project, task.queue_name, task.module_path, end, data, make)
    if added is None:
        raise NotPlain
    if not results:  # there was no time for it
        make()
    seq, now = added
    note_stored(results[0], engine.make_id(seq, end), local(now))
    return results


@operation
def store(project: str, task: Task[..., Any], backend: str, parts: Sequence[Part]) -> Steps[list[TaskResult[Any]]]:
    """Add the jobs of calls, all or none, and return their results.

    Raises:
        NotPlain: they have to be stored as any others.
        ValueError: an argument has a value that JSON cannot hold.
    """
    check_place(project, task.queue_name)
    yield BEGIN, {}
    results: list[TaskResult[Any]] = []
    for part in parts:
        results += yield from _store(project, task, backend, part)
    return results


def _store(project: str, task: Task[..., Any], backend: str, part: Part) -> Steps[list[TaskResult[Any]]]:
    ends = list(islice(new_ends(), len(part)))
    longest = min(LARGE_CHARACTERS, conf.settings.MAX_PAYLOAD_BYTES // 4)
    results: list[TaskResult[Any]] = []

    def datas() -> list[str | None]:
        made = [written(args, kwargs) for args, kwargs in part]
        if any(data is not None and len(data) > longest for data in made):
            raise NotPlain
        with process.collector_paused():
            results.extend(new_result(task, args, kwargs, backend) for args, kwargs in part)
        return made

    def note(added: Added) -> None:
        shown = local(added.at)
        for result, key in zip(results, added.keys, strict=True):
            note_stored(result, key, shown)

    plain = Plain(
        len(part), task.module_path, datas, lambda seqs: list(map(engine.make_id, seqs, ends)), generated=True
    )
    if (yield from plain_steps(project, task.queue_name, plain, note=note)) is None:
        raise NotPlain
    return results
