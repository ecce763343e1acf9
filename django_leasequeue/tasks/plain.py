"""Calls of a task whose jobs differ only in their arguments: lean statements, and results made meanwhile or later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, overload

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


class Results(Sequence["TaskResult[Any]"]):
    """The results of many calls of one task, all made when the first of them is asked for: most callers ask for none.

    Made at once, and with the full collections of Python's garbage that so many objects bring, they were an eighth of
    the time of an enqueue.
    """

    def __init__(self, task: Task[..., Any], backend: str) -> None:
        self._task, self._backend = task, backend
        self._stored: list[tuple[Part, Sequence[str | None], datetime | None]] = []

    def note(self, part: Part, added: Added) -> None:
        """Note calls whose jobs were stored."""
        self._stored.append((part, added.keys, local(added.at)))

    @cached_property
    def _made(self) -> list[TaskResult[Any]]:
        made: list[TaskResult[Any]] = []
        with process.collector_paused():
            for part, keys, at in self._stored:
                for (args, kwargs), key in zip(part, keys, strict=True):
                    result = new_result(self._task, args, kwargs, self._backend)
                    note_stored(result, key, at)
                    made.append(result)
        return made

    def __len__(self) -> int:
        return sum(len(part) for part, *_ in self._stored)

    def __iter__(self) -> Iterator[TaskResult[Any]]:
        return iter(self._made)

    @overload
    def __getitem__(self, index: int) -> TaskResult[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskResult[Any]]: ...
    def __getitem__(self, index: int | slice) -> TaskResult[Any] | list[TaskResult[Any]]:
        return self._made[index]

    def __repr__(self) -> str:
        return repr(self._made)


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
def store(project: str, task: Task[..., Any], backend: str, parts: Sequence[Part]) -> Steps[Results]:
    """Add the jobs of calls, all or none, and return their results.

    Raises:
        NotPlain: they have to be stored as any others.
        ValueError: an argument has a value that JSON cannot hold.
    """
    check_place(project, task.queue_name)
    yield BEGIN, {}
    results = Results(task, backend)
    for part in parts:
        added = yield from plain_steps(project, task.queue_name, _as_jobs(task.module_path, part))
        if added is None:
            raise NotPlain
        results.note(part, added)
    return results


def _as_jobs(name: str, part: Part) -> Plain:
    ends = list(islice(new_ends(), len(part)))
    longest = min(LARGE_CHARACTERS, conf.settings.MAX_PAYLOAD_BYTES // 4)

    def datas() -> list[str | None]:
        made = [written(args, kwargs) for args, kwargs in part]
        if any(data is not None and len(data) > longest for data in made):
            raise NotPlain
        return made

    return Plain(len(part), name, datas, lambda seqs: list(map(engine.make_id, seqs, ends)), generated=True)
