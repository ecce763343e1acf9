"""Workflows: chains, groups and chords, which are the usual forms, and graphs of any form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, TypedDict, TypeVar, Unpack, overload

from ..enums import WorkflowShape
from ..exceptions import InvalidOption
from .api import T
from .signature import Adding, Ends, Graph, Signature, Step, T_co, check_step, check_steps
from .starting import Plan, Plannable

R = TypeVar("R")

#: What starts when a job of a workflow has failed, and the tags of a workflow.
OnFailure = Signature[Any] | None
Tags = dict[str, str | int] | None


class WholeOptions(TypedDict, total=False):
    """What a whole workflow has beside its steps."""

    on_failure: OnFailure
    name: str
    tags: Tags


class Canvas(Plannable[T_co], Step[T_co]):
    """A part of a workflow that can also be enqueued by itself."""

    __slots__ = ("_whole",)

    def __init__(self, whole: WholeOptions) -> None:
        self._whole = whole

    def place(self, graph: Graph, after: Ends) -> Ends:
        if self._whole.get("on_failure") is not None or any(self._whole.values()):
            raise InvalidOption("on_failure, name and tags are of the whole workflow: give them to its outermost part.")
        return self._place(graph, after)

    def _plan(self) -> Plan:
        graph = Graph()
        ends = self._place(graph, Ends())
        shape = WorkflowShape.LIST if ends.many else WorkflowShape.VALUE
        return Plan(graph, shape, **self._whole)

    @abstractmethod
    def _place(self, graph: Graph, after: Ends) -> Ends: ...


class Chain(Canvas[T_co]):
    """Steps one after the other, made by ``chain``."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterable[Step[Any]], **whole: Unpack[WholeOptions]) -> None:
        super().__init__(whole)
        self._steps = check_steps(steps, "chain")
        if not self._steps:
            raise InvalidOption("a chain has at least one step.")

    def _place(self, graph: Graph, after: Ends) -> Ends:
        for step in self._steps:
            after = step.place(graph, after)
        return after


Step._chain = Chain


class Group(Canvas[list[T]]):
    """Steps side by side, made by ``group``."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[Step[Any]], **whole: Unpack[WholeOptions]) -> None:
        super().__init__(whole)
        self._members = check_steps(members, "group")

    def _place(self, graph: Graph, after: Ends) -> Ends:
        ends = [member.place(graph, after) for member in self._members]
        places = tuple(place for end in ends if not end.empty for place in end.places)
        return Ends(places, many=True) if places else Ends(after.places, many=True, empty=True)


class Chord(Canvas[T_co]):
    """A group and what comes after it, made by ``chord``."""

    __slots__ = ("_allow_failures", "_callback", "_members")

    def __init__(
        self, members: Step[Any], callback: Step[Any], allow_failures: bool, **whole: Unpack[WholeOptions]
    ) -> None:
        super().__init__(whole)
        self._members = members
        self._callback = check_step(callback, "chord")
        self._allow_failures = allow_failures

    def _place(self, graph: Graph, after: Ends) -> Ends:
        ends = self._members.place(graph, after)
        return self._callback.place(graph, ends._replace(tolerant=self._allow_failures))


@overload
def chain(*steps: *tuple[*tuple[Step[Any], ...], Step[T]], **options: Unpack[WholeOptions]) -> Chain[T]: ...


@overload
def chain(*steps: Step[Any] | Iterable[Step[Any]], **options: Unpack[WholeOptions]) -> Chain[Any]: ...


def chain(  # type: ignore[misc]  # mypy compares *Any with the tuple of the first overload
    *steps: Any, on_failure: OnFailure = None, name: str = "", tags: Tags = None
) -> Chain[Any]:
    """Make a workflow of steps one after the other: ``chain(fetch.s(url), parse.s(), store.s())``.

    Each gets the return value of the one before it as its first argument, unless its signature is immutable (``si``);
    what comes after a group gets the list of its members' values. If one fails for good the rest is cancelled. The
    value of a chain is that of its last step. ``a.s() | b.s()`` is the same.

    Args:
        steps: signatures, groups, chords and chains; one list of them, or one after the other.
        on_failure: starts once if a job has failed for good; ``s()`` gets the workflow's id as its first argument.
        name: to find it by, at most 255 bytes.
        tags: names and values to find its jobs by; steps that are added later, and what its jobs enqueue, inherit them.

    Raises:
        InvalidOption: a step is none of them, or there is none.
    """
    return Chain(_listed(steps), on_failure=on_failure, name=name, tags=tags)


@overload
def group(members: Iterable[Step[T]], /, **options: Unpack[WholeOptions]) -> Group[T]: ...


@overload
def group(*members: Step[T], **options: Unpack[WholeOptions]) -> Group[T]: ...


def group(*members: Any, on_failure: OnFailure = None, name: str = "", tags: Tags = None) -> Group[Any]:
    """Make a workflow of steps side by side: ``group(resize.s(photo.pk) for photo in photos)``.

    Its value is the list of its members' values, in their order. The members of a group in a group are members of the
    outer one. Without members it is done at once, and its value is ``[]``.

    Args:
        members: at most 10,000 signatures, chains, groups and chords; one list of them, or one after the other.
        on_failure: see ``chain``.
        name: see ``chain``.
        tags: see ``chain``.

    Raises:
        InvalidOption: a member is none of them.
    """
    return Group(_listed(members), on_failure=on_failure, name=name, tags=tags)


def _listed(parts: tuple[Any, ...]) -> Any:
    listed = len(parts) == 1 and isinstance(parts[0], Iterable) and not isinstance(parts[0], Step)
    return parts[0] if listed else parts


def chord(
    members: Group[Any] | Iterable[Step[Any]],
    callback: Step[R],
    *,
    allow_failures: bool = False,
    on_failure: OnFailure = None,
    name: str = "",
    tags: Tags = None,
) -> Chord[R]:
    """Make a workflow whose callback runs once after all members: ``chord(group(...), tell.s())``.

    The callback gets the list of the members' return values, in their order, unless its signature is immutable; of no
    members ``[]``. Its value is the callback's.

    Args:
        members: a group, or what ``group`` takes.
        callback: the step after them.
        allow_failures: whether it starts however the members ended, with the list of their ``Outcome``; else it starts
            only if all succeeded, with their values.
        on_failure: see ``chain``.
        name: see ``chain``.
        tags: see ``chain``.

    Raises:
        InvalidOption: a step is none of them.
    """
    side_by_side = members if isinstance(members, Group) else Group(members)
    return Chord(side_by_side, callback, allow_failures, on_failure=on_failure, name=name, tags=tags)


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

    def __init__(self, *, name: str = "", on_failure: OnFailure = None, tags: Tags = None) -> None:
        super().__init__()
        self._whole: dict[str, Any] = {"name": name, "on_failure": on_failure, "tags": tags}

    def _plan(self) -> Plan:
        return Plan(self._graph, **self._whole)
