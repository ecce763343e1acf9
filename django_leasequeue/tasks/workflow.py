"""Workflows of any form: graphs of calls of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.flow.workflows import MAX_LABEL_BYTES
from ..engine.limits import check_text
from ..exceptions import InvalidOption
from ..twins import arun, run
from .signature import Ends, Graph, Signature, Step, check_step
from .starting import Plan, start
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
            self._call(ends.places, name)
        return AddedStep(self, ends)

    def _call(self, places: Sequence[int], name: str) -> None:
        names = [name, *(f"{name}#{number}" for number in range(2, len(places) + 1))]
        if taken := self._names.intersection(names):
            raise InvalidOption(f"the workflow has a step named {min(taken)!r} already.")
        self._names.update(names)
        for place, each in zip(places, names, strict=True):
            self._graph.calls[place] = self._graph.calls[place]._replace(name=each)


class Workflow(Adding):
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
    """

    def __init__(self, *, name: str = "", on_failure: Signature[Any] | None = None) -> None:
        super().__init__()
        self._name = name
        self._on_failure = on_failure

    def enqueue(self) -> WorkflowResult[dict[str, Any]]:
        """Enqueue all of it, in the caller's transaction if there is one.

        Raises:
            InvalidTask: a task cannot run, or not in a workflow; nothing was enqueued.
            InvalidOption: there is no job in it; nothing was enqueued.
            TypeError, ValueError: as ``enqueue`` of a task; nothing was enqueued.
        """
        return run(start(self._plan(), waits=True))

    async def aenqueue(self) -> WorkflowResult[dict[str, Any]]:
        """Async twin of ``enqueue``: on an async connection of its own, not in a transaction of the caller."""
        return await arun(start(self._plan(), waits=False))

    def _plan(self) -> Plan:
        return Plan(self._graph, self._on_failure, self._name)
