"""The workflow of the task that runs: it may add steps to it."""

from __future__ import annotations

from typing import Any

from .. import engine
from ..engine import codec
from ..engine.flow.extend import MemberOf
from ..exceptions import InvalidOption
from ..twins import Steps, arun, either, run
from . import inputs
from .api import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from .context import running
from .ids import number_of
from .starting import Existing, Plan, start
from .workflow import AddedStep, Adding
from .workflow_result import WorkflowResult


class CurrentWorkflow(Adding):
    """The workflow of a running task, made by ``current_workflow()``.

    ::

        @task
        def find(folder: str) -> int:
            workflow = current_workflow()
            files = list_files(folder)
            read = [workflow.add(scan.s(file)) for file in files]
            workflow.add(tell.s(folder), after=read)
            workflow.enqueue()
            return len(files)

    ``id``: of the workflow. ``name``: as it was enqueued. ``current``: the task that runs, for ``after``: such a step
    starts when it has succeeded. A step without ``after`` starts at once.
    """

    def __init__(self, existing: Existing, name: str, seq: int) -> None:
        super().__init__()
        self.id = str(existing.uid)
        self.name = name
        self._existing = existing
        self._enqueued = False
        self.current = AddedStep(self, self._graph.know(seq))

    def member(self, id: str) -> AddedStep:
        """Return a job that is in the workflow already, for ``after``.

        Args:
            id: that of its task's result, as ``result.members()`` has it.

        Raises:
            InvalidOption: it is no such id. One of another workflow is refused by ``enqueue``.
        """
        return AddedStep(self, self._graph.know(number_of(id)))

    @property
    def result(self) -> WorkflowResult[Any]:
        """The whole workflow: its status, its members."""
        return WorkflowResult(self.id, self._existing.backend, self._existing.database)

    def enqueue(self) -> WorkflowResult[Any]:
        """Enqueue what was added, once, in the caller's transaction if there is one.

        Raises:
            InvalidTask: a task cannot run, or not in this workflow; nothing was enqueued.
            InvalidOption: nothing was added, the workflow has ended or would be too large; nothing was enqueued.
            TypeError, ValueError: as ``enqueue`` of a task; nothing was enqueued.
        """
        return self._once(run(start(self._plan(), waits=True)))

    async def aenqueue(self) -> WorkflowResult[Any]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        return self._once(await arun(start(self._plan(), waits=False)))

    def _plan(self) -> Plan:
        if self._enqueued:
            raise InvalidOption("what was added is enqueued already. Call current_workflow() again to add more.")
        return Plan(self._graph, None, self.name, existing=self._existing)

    def _once(self, result: WorkflowResult[Any]) -> WorkflowResult[Any]:
        self._enqueued = True
        return result


def current_workflow() -> CurrentWorkflow:
    """Return the workflow of the task that runs here, to add steps to it.

    Raises:
        InvalidOption: no task runs in this thread or asyncio task, or it is in no workflow.
    """
    return run(_current())


async def acurrent_workflow() -> CurrentWorkflow:
    """Async twin of ``current_workflow``."""
    return await arun(_current())


def _current() -> Steps[CurrentWorkflow]:
    control = running.get()
    if control is None:
        raise InvalidOption(
            "No task runs here: current_workflow() is for tasks, and not for threads that they start by themselves."
        )
    job = control.job
    meta = codec.loads(job.meta_json) if job.meta_json is not None else {}
    alias = meta.get("backend", DEFAULT_TASK_BACKEND_ALIAS)
    database = inputs.database_of(task_backends[alias], job.queue)
    found: MemberOf | None = yield either(engine.run, engine.arun, engine.workflow_of(job.seq), database)
    if found is None:
        raise InvalidOption(f"{job.name} runs in no workflow: enqueue it with chain, group, chord or Workflow.")
    return CurrentWorkflow(Existing(found.uid, alias, database), found.name, job.seq)
