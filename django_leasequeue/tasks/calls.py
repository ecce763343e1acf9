"""Calls of tasks made into jobs. What all calls of a task have in common is computed once for many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, cast

from .. import engine
from ..engine import codec
from . import arguments, limit, unique
from . import backoff as backoffs
from .api import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskResult
from .new_results import new_result
from .task import LeaseQueueTask
from .times import aware

_ID_END = engine.NewJob._fields.index("id_end")


class TaskCalls:
    """Calls of one task that are about to be stored.

    Args:
        task: the task, valid for its backend.
        backend: alias of the backend that enqueues them.
    """

    __slots__ = ("_after", "_before", "_is_keyed", "_is_limited", "_task", "backend")

    def __init__(self, task: Task[..., Any], backend: str) -> None:
        self._task, self.backend = task, backend
        common = engine.NewJob(
            name=task.module_path,
            # Django takes 5.0 for 5.
            priority=int(task.priority) or None,
            meta=_meta(task, backend) or None,
            run_at=None if task.run_after is None else aware(task.run_after),
            max_deliveries=task.max_attempts if isinstance(task, LeaseQueueTask) else None,
            ttl_ms=_ttl_ms(task),
        )
        # Of a tuple's parts another one is made faster than by names.
        self._before, self._after = common[1:_ID_END], common[_ID_END + 1 :]
        self._is_keyed = isinstance(task, LeaseQueueTask) and unique.is_about_key(task)
        self._is_limited = getattr(task, "limit", None) is not None

    def prepare(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], id_end: str
    ) -> tuple[TaskResult[Any], engine.NewJob]:
        """Return the result and the job of one call.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            id_end: end of the result's id, see ``ids.new_end``.

        Raises:
            TypeError: the task does not take them, or one has a type that JSON does not have.
            ValueError: one has a value that JSON cannot hold.
            InvalidTask: the key of the task or of its limit cannot be made of them.
        """
        task = self._task
        arguments.check(task, args, kwargs)
        result = new_result(task, args, kwargs, self.backend)
        job = self.job(result, id_end)
        if self._is_limited:
            job = job._replace(limit=limit.of_call(task, result.args, result.kwargs))
        return result, job

    def job(self, result: TaskResult[Any], id_end: str, **more: Any) -> engine.NewJob:
        """Return the job of a call, without its limit.

        Args:
            result: the call's result, see ``new_result``.
            id_end: end of the result's id, see ``ids.new_end``.
            more: what the payload holds beside the arguments.

        Raises:
            ValueError: an argument has a value that JSON cannot hold.
            InvalidTask: the key of the task cannot be made of the arguments.
        """
        data = more
        if result.args:
            data["args"] = result.args
        if result.kwargs:
            data["kwargs"] = result.kwargs
        # As text, which the garbage collector does not look at: of many calls there would be many dicts for it.
        written = codec.JsonText(codec.dumps(data)) if data else None
        job = tuple.__new__(engine.NewJob, (written, *self._before, id_end, *self._after))
        if self._is_keyed:
            return job._replace(**unique.options(cast("Any", self._task), result.args, result.kwargs))
        return job


def _ttl_ms(task: Task[..., Any]) -> int | None:
    expires = getattr(task, "expires", None)
    return None if expires is None else round(expires * 1000)


def _meta(task: Task[..., Any], backend: str) -> dict[str, Any]:
    """Return what the worker and readers of the result must know and do not find on the declared task."""
    meta: dict[str, Any] = {}
    if task.run_after is not None:
        meta["run_after"] = aware(task.run_after).astimezone(UTC).isoformat()
    if backend != DEFAULT_TASK_BACKEND_ALIAS:
        meta["backend"] = backend
    if isinstance(task, LeaseQueueTask) and task.changed:
        if "timeout" in task.changed:
            meta["timeout"] = task.timeout
        if "backoff" in task.changed:
            meta["backoff"] = backoffs.dump(task.backoff)
    return meta
