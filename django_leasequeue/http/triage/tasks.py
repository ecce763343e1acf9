"""Paused tasks for operators: listed, paused and resumed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, TypedDict

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpResponse
from rest_framework.request import Request

from ...engine import audit
from ...engine.jobs.operators import change_task
from ...engine.jobs.pausing import MAX_NAME_BYTES, list_paused
from ...engine.pool import patiently
from ...engine.queues import routing
from ..access import READ, WRITE
from ..errors import ApiError
from ..fields import Json
from ..schema import Parameter
from .deadletters import Moment, ReadView, endpoint, shown

_SCHEMA: Json = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES, "pattern": r"^[^\u0000/]+$"}
_NAME = Parameter("task", _SCHEMA, "The import path of the task, such as `shop.tasks.pay`.", where="path")


class PausedRow(TypedDict):
    name: Annotated[str, "The import path of the task."]
    paused_at: Annotated[Moment, "Since when."]
    paused_by: Annotated[str, "The user or key that paused it; empty: the host's own code."]


class PausedTasks(TypedDict):
    """The paused tasks, by name."""

    paused_tasks: Annotated[list[PausedRow], "All of the default database, at most 1,000."]


class TaskChanged(TypedDict):
    """The task as it is now."""

    task: Annotated[str, "The import path of the task."]
    paused: Annotated[bool, "Whether none of its jobs starts."]
    changed: Annotated[bool, "False: it was so before."]


def _check(view: ReadView) -> None:
    if view.access.prefixes:
        raise ApiError(403, "forbidden", "A key with prefixes may not steer tasks: ask for one without.")


class PausedTasksView(ReadView):
    @endpoint("listPausedTasks", "List paused tasks", tag="tasks", scopes=[READ], answers={200: PausedTasks})
    async def get(self, request: Request) -> HttpResponse:
        _check(self)
        found = await self.runner.run(list_paused(self.project))
        return self.answer({"paused_tasks": [shown(PausedRow, each) for each in found]})


class PausedTaskView(ReadView):
    http_method_names = ["put", "delete"]
    _says = partial(endpoint, tag="tasks", scopes=[READ, WRITE], answers={200: TaskChanged}, parameters=[_NAME])

    @_says("pauseTask", "Pause a task", description="No further job of it starts. The audit says which key did it.")
    async def put(self, request: Request, task: str) -> HttpResponse:
        return await self._change("pause", task)

    @_says("resumeTask", "Resume a task", description="Its jobs start again. The audit says which key did it.")
    async def delete(self, request: Request, task: str) -> HttpResponse:
        return await self._change("resume", task)

    async def _change(self, action: Literal["pause", "resume"], task: str) -> HttpResponse:
        _check(self)
        changed = [await sync_to_async(self._change_in)(alias, action, task) for alias in routing.aliases()]
        return self.answer(TaskChanged(task=task, paused=action == "pause", changed=any(changed)))

    def _change_in(self, using: str, action: Literal["pause", "resume"], task: str) -> bool:
        try:
            with patiently(using):
                return change_task(action, task, self.project, audit.Actor("http", username=self.access.who), using)
        finally:
            # A thread of this request alone opened it under ASGI, where no signal of a request's end may come.
            if not self.runner.threaded and not connections[using].in_atomic_block:
                connections[using].close()
