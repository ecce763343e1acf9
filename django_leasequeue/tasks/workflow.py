"""Workflows of any form: graphs of calls of tasks, and the workflow of the task that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import engine
from ..engine.flow.figures import MemberOf
from ..engine.flow.workflows import MAX_LABEL_BYTES
from ..engine.limits import check_text
from ..exceptions import InvalidOption
from ..twins import Steps, arun, either, run
from .api import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from .context import running
from .results import number_of
from .signature import Ends, Graph, Signature, Step, check_step, queue_database
from .starting import Existing, Plan, Plannable
from .workflow_result import WorkflowResult


@dataclass(frozen=True, slots=True, eq=False)
class AddedStep:
    """A step that was added to a workflow, for ``after`` of those that come after it."""

    workflow: Adding
    ends: Ends


class Adding:
    """Base of what takes steps, one after the other."""

    def __init__(self) -> None:
        self._graph = Graph()
        self._names: set[str] = set()

    def add(
        self,
        step: Step[Any],
        *,
        after: AddedStep | Sequence[AddedStep] = (),
        allow_failures: bool = False,
        name: str = "",
    ) -> AddedStep:
        """Add a step.

        Args:
            step: a signature, a chain, a group or a chord.
            after: what it comes after. Of one step it gets the return value as its first argument, of a list of steps
                or of a group the list of values; nothing if its signature is immutable (``si``).
            allow_failures: whether it starts however those ended, with an ``Outcome`` in place of each value; else it
                starts only if all succeeded, and is cancelled if not.
            name: what the result calls it, at most 249 bytes: ``result["resize"]``. Where several jobs are at the end
                of the step, as with a group, the second one is ``resize#2``. Without one: the name of its function.

        Returns:
            What ``after`` of other steps takes.

        Raises:
            InvalidOption: ``after`` is not of this workflow, the name is taken, or the workflow is too large.
        """
        parents = [after] if isinstance(after, AddedStep) else list(after)
        for parent in parents:
            if not isinstance(parent, AddedStep) or parent.workflow is not self:
                raise InvalidOption(f"after takes what add() of the same workflow returned; it is {parent!r}.")
        ends = Ends(
            tuple(dict.fromkeys(place for parent in parents for place in parent.ends.places)),
            many=any(parent.ends.many for parent in parents) if isinstance(after, AddedStep) else bool(parents),
            tolerant=allow_failures,
            empty=bool(parents) and all(parent.ends.empty for parent in parents),
        )
        check_text(name, "the name of a step", MAX_LABEL_BYTES - 6, 0)
        ends = check_step(step, "Workflow.add").place(self._graph, ends)
        if name and not ends.empty:
            names = [name, *(f"{name}#{number}" for number in range(2, len(ends.places) + 1))]
            if taken := self._names.intersection(names):
                raise InvalidOption(f"the workflow has a step named {min(taken)!r} already.")
            self._names.update(names)
            for place, each in zip(ends.places, names, strict=True):
                self._graph.calls[place] = self._graph.calls[place]._replace(name=each)
        return AddedStep(self, ends)


class Workflow(Adding, Plannable[dict[str, Any]]):
    """A graph of calls of tasks, in which each starts after others.

    ::

        workflow = Workflow(name="report")
        sales, costs = workflow.add(load.s("sales")), workflow.add(load.s("costs"))
        workflow.add(compare.s(), after=[sales, costs])
        result = workflow.enqueue()

    It has at most 10,000 jobs. What a step comes after must be there before it, so there are no cycles. ``wait()`` of
    its result returns a mapping: what the jobs at its end returned, by their names.

    Args:
        name: to find it by, at most 255 bytes.
        on_failure: starts once if a job has failed for good; ``s()`` gets the workflow's id as its first argument.
        tags: names and values to find its jobs by; steps that are added later, and what its jobs enqueue, inherit them.
    """

    def __init__(
        self, *, name: str = "", on_failure: Signature[Any] | None = None, tags: dict[str, str | int] | None = None
    ) -> None:
        super().__init__()
        self._whole: dict[str, Any] = {"name": name, "on_failure": on_failure, "tags": tags}

    def _plan(self) -> Plan:
        return Plan(self._graph, **self._whole)


class CurrentWorkflow(Adding, Plannable[Any]):
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
        self.current = AddedStep(self, self._graph.reference_existing(seq))

    def member(self, id: str) -> AddedStep:
        """Return a job that is in the workflow already, for ``after``.

        Args:
            id: that of its task's result, as ``result.members()`` has it.

        Raises:
            InvalidOption: it is no such id. One of another workflow is refused by ``enqueue``.
        """
        return AddedStep(self, self._graph.reference_existing(number_of(id)))

    @property
    def result(self) -> WorkflowResult[Any]:
        """The whole workflow: its status, its members."""
        return WorkflowResult(self.id, self._existing.backend, self._existing.database)

    def enqueue(self) -> WorkflowResult[Any]:
        """Enqueue what was added, once, in the caller's transaction if there is one; see ``Workflow.enqueue``."""
        result = super().enqueue()
        self._enqueued = True
        return result

    async def aenqueue(self) -> WorkflowResult[Any]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        result = await super().aenqueue()
        self._enqueued = True
        return result

    def _plan(self) -> Plan:
        if self._enqueued:
            raise InvalidOption("what was added is enqueued already. Call current_workflow() again to add more.")
        return Plan(self._graph, name=self.name, existing=self._existing)


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
    alias = (job.meta or {}).get("backend", DEFAULT_TASK_BACKEND_ALIAS)
    database = queue_database(task_backends[alias], job.queue)
    found: MemberOf | None = yield either(engine.run, engine.arun, engine.workflow_of(job.seq), database)
    if found is None:
        raise InvalidOption(f"{job.name} runs in no workflow: enqueue it with chain, group, chord or Workflow.")
    return CurrentWorkflow(Existing(found.uid, alias, database, job.queue), found.name, job.seq)
