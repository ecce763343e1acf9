"""Signatures: calls of tasks that are written down, the graph they are placed in, and their inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from .. import engine
from ..engine import Input, codec, payloads
from ..engine.flow.workflows import MAX_EDGES, MAX_LABEL_BYTES, MAX_NODES
from ..engine.limits import check_text
from ..engine.operation import Statements, operation
from ..enums import MemberState
from ..exceptions import InvalidOption, LargeStorageError, PayloadAway
from .api import InvalidTask, T, Task, TaskResult, TaskResultDoesNotExist
from .exceptions import FailForGood
from .results import json_arguments, new_result

if TYPE_CHECKING:
    from .canvas import Chain


T_co = TypeVar("T_co", covariant=True)


class Ends(NamedTuple):
    """The ends of a part of a graph: places of calls, and how later calls take their return values.

    ``many``: as a list; else as one value. ``tolerant``: it starts however they ended, and takes their ``Outcome``.
    ``empty``: the part has no call of its own, so that an empty list is taken; ``places`` are those before it.
    """

    places: tuple[int, ...] = ()
    many: bool = False
    tolerant: bool = False
    empty: bool = False


class Placed(NamedTuple):
    """A call in a graph, its parents, and its name in the workflow."""

    signature: Signature[Any]
    after: Ends
    name: str = ""
    #: Whether it starts only if the one that it comes after fails.
    for_failure: bool = False


@dataclass(slots=True)
class Graph:
    """The calls of a workflow; each stands behind those it comes after, so that there are no cycles."""

    calls: list[Placed] = field(default_factory=list)
    edges: int = 0
    #: Numbers of jobs that are in the workflow already. Their places count down from -1.
    known: list[int] = field(default_factory=list)

    def add(self, signature: Signature[Any], after: Ends, *, for_failure: bool = False) -> Ends:
        """Place a call; return where it ends."""
        self.edges += len(after.places)
        if len(self.calls) >= MAX_NODES:
            raise InvalidOption(f"a workflow has at most {MAX_NODES} jobs. Split it.")
        if self.edges > MAX_EDGES:
            raise InvalidOption(
                f"the jobs of a workflow wait for at most {MAX_EDGES} others together. Where many come after many, put"
                " one job between them."
            )
        self.calls.append(Placed(signature, after, for_failure=for_failure))
        return Ends((len(self.calls) - 1,))

    def reference_existing(self, seq: int) -> Ends:
        """Return where a job ends that is in the workflow already."""
        if seq not in self.known:
            self.known.append(seq)
        return Ends((-1 - self.known.index(seq),))


class Step(ABC, Generic[T_co]):
    """A part of a workflow: a signature, a chain, a group or a chord. Its value is a ``T_co``."""

    __slots__ = ()

    #: ``Chain``, which is a step itself: its module sets it.
    _chain: ClassVar[type[Chain[Any]]]

    @abstractmethod
    def place(self, graph: Graph, after: Ends) -> Ends:
        """Add the calls of this part to a graph; return where it ends."""

    @abstractmethod
    def enqueue(self) -> Any:
        """Enqueue this part by itself."""

    def __or__(self, after: Step[T]) -> Chain[T]:
        """Return the chain of this step and another one: ``fetch.s(url) | parse.s() | store.s()``."""
        return self._chain((self, after)) if isinstance(after, Step) else NotImplemented


@dataclass(frozen=True, slots=True)
class Signature(Step[T_co]):
    """A call of a task, made by ``task.s(...)`` or ``task.si(...)``; options are those of the task, see ``using``.

    Args:
        task: the task.
        args: positional arguments, JSON.
        kwargs: keyword arguments, JSON.
        immutable: whether it takes nothing from those that it comes after.
        failure: what starts if it fails as a step of a workflow, see ``on_failure``.
    """

    task: Task[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    immutable: bool = False
    failure: Signature[Any] | None = None

    def place(self, graph: Graph, after: Ends) -> Ends:
        ends = graph.add(self, after)
        if self.failure is not None:
            graph.add(self.failure, ends._replace(tolerant=True), for_failure=True)
        return ends

    def on_failure(self, signature: Signature[Any]) -> Signature[T_co]:
        """Return the same call with one that starts if it fails for good, as a step of a workflow.

        It gets the ``Outcome`` of the step as its first argument, unless it is immutable. If the step succeeds or is
        cancelled it does not run. The workflow has failed all the same.

        Args:
            signature: such as ``apologise.s("a@example.org")``.

        Raises:
            InvalidOption: it is none, or has an ``on_failure`` of its own.
        """
        if not isinstance(signature, Signature) or signature.failure is not None:
            raise InvalidOption(
                f"on_failure takes a signature without one of its own, such as task.s(); it is {signature!r:.200}."
            )
        return replace(self, failure=signature)

    def enqueue(self) -> TaskResult[T_co]:
        """Enqueue this call as a job of its own: ``task.enqueue`` with these arguments."""
        self._check_alone()
        return self.task.enqueue(*self.args, **self.kwargs)

    async def aenqueue(self) -> TaskResult[T_co]:
        """Async twin of ``enqueue``."""
        self._check_alone()
        return await self.task.aenqueue(*self.args, **self.kwargs)

    def result(self, id: str) -> TaskResult[T_co]:
        """Return the result of this call by its id; one that is gone is as it was enqueued, until it is refreshed."""
        try:
            return self.task.get_result(id)
        except TaskResultDoesNotExist:
            args, kwargs = json_arguments(self.task, self.args, self.kwargs)
            return new_result(self.task, args, kwargs, self.task.backend, id)

    def _check_alone(self) -> None:
        if self.failure is not None:
            raise InvalidOption("on_failure is of a step of a workflow: enqueue chain(signature).")

    def using(self, **options: Any) -> Signature[T_co]:
        """Return the same call of the task with other options.

        Args:
            options: those of ``task.using()``, such as ``queue_name`` and ``priority``.

        Raises:
            InvalidTask: an option is not allowed.
        """
        try:
            return replace(self, task=self.task.using(**options))
        except TypeError as error:
            raise InvalidTask(f"using() of a signature takes the options of task.using(): {error}.") from error


def check_step(step: Any, where: str) -> Step[Any]:
    """Return a part of a workflow."""
    if not isinstance(step, Step):
        raise InvalidOption(
            f"{where} takes signatures, such as task.s(1), chains, groups and chords; {step!r:.200} is none of them."
        )
    return step


def check_steps(steps: Any, where: str) -> list[Step[Any]]:
    """Return the parts of a chain or a group."""
    if isinstance(steps, Step) or not isinstance(steps, Iterable):
        raise InvalidOption(f"{where} takes a list of steps, such as [task.s(1)]; it is {steps!r:.200}.")
    return [check_step(step, where) for step in steps]


@dataclass(frozen=True, slots=True, eq=False)
class AddedStep:
    """A step that was added to a workflow, for ``after`` of those that come after it."""

    workflow: Adding
    ends: Ends


class Adding:
    """Base of builders that take steps one after the other."""

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


_RESULT = payloads.Columns("result_json", None)


class Outcome(NamedTuple):
    """How a parent ended: a step with ``allow_failures`` gets one for each parent.

    ``ok``: whether it succeeded, and ``value`` is what it returned. Else ``error_type`` is the path of the exception's
    class and ``error`` its text, also while its dead letter is tried again; both are ``None`` if it was cancelled.
    ``task_id`` is that of its task's result.
    """

    ok: bool
    value: Any
    error_type: str | None
    error: str | None
    task_id: str | None


@operation
def read_inputs(seq: int) -> Statements[list[Input]]:
    """Read how the parents of a job ended, with large results from their storage."""
    rows = yield from engine.inputs(seq)
    try:
        return (yield from payloads.steps(rows, _RESULT))
    except LargeStorageError as error:
        raise PayloadAway(str(error), error.cause) from error


def first_argument(rows: list[Input], marked: Any) -> Any:
    """Return the first argument of a job: its parent's return value, or the list of those of all.

    ``marked`` is what its payload says of them: whether it takes a list, and whether of failed ones, too.
    """
    if not isinstance(marked, dict) or marked.keys() != {"many", "failed"}:
        raise InvalidOption(f'"inputs" of a payload are written by workflows only; they are {marked!r:.200}.')
    if not rows or not (marked["many"] or len(rows) == 1):
        raise FailForGood("The jobs before this one are not known: it is not in its workflow any more.")
    values: list[Any] = []
    for row in rows:
        if row.completed:
            value = None if row.result_json is None else codec.loads(row.result_json)
            values.append(Outcome(True, value, None, None, row.key) if marked["failed"] else value)
        elif marked["failed"] and row.member != MemberState.COMPLETED:
            values.append(Outcome(False, None, row.error_type, row.error, row.key))
        else:
            raise FailForGood(
                f"The result of job {row.seq}, which this one takes, is not there any more: it has expired"
                " (result_ttl_ms), or the job was removed."
            )
    return values if marked["many"] else values[0]
