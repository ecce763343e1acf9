"""Reading limits and workflows: where their jobs stand, and figures for operators. Every read is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _

from ...enums import MemberState, ResultState, WorkflowState
from .. import arrays
from ..limits import MAX_PROJECT_BYTES, check_count, check_place, check_text
from ..operation import Statements, operation
from .declared import GivenBack, LimitValues
from .workflows import MAX_NODES

#: Limits of one page, and nodes.
MAX_LIMITS, MAX_PAGE = 100, 1_000
#: Keys of a limit that are looked at, and jobs of a limit (in a list) or of a key that are counted.
MAX_KEYS, CAP, KEY_CAP = 1_000, 1_000, 200


class LimitFigures(NamedTuple):
    """A limit with its figures."""

    id: int
    project: str
    name: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    burst: int
    fair: bool
    pinned: bool
    updated_at: datetime
    #: Counted up to ``MAX_KEYS``; of these the jobs that wait for their turn and the slots of ready and running ones,
    #: up to ``CAP`` each. One more stands for whatever is more.
    keys: int
    waiting: int
    taken: int

    @property
    def values(self) -> LimitValues:
        return LimitValues.of(self)


class KeyFigures(NamedTuple):
    """A key of a limit: jobs that wait for it, slots of it that are taken; ``KEY_CAP`` and one stand for more."""

    key: str
    waiting: int
    taken: int


class BusyKeys(NamedTuple):
    """The busiest of some keys of a limit."""

    keys: list[KeyFigures]
    #: How many keys were looked at, up to ``last``; the jobs that wait for them, and the slots that they have.
    looked_at: int
    last: str | None
    waiting: int
    taken: int

    @property
    def more(self) -> bool:
        """Whether there may be further keys."""
        return self.looked_at == MAX_KEYS


def allows(values: LimitValues) -> str:
    """Describe the allowance per key of a limit."""
    parts = [] if values.concurrency is None else [_("{number} at a time").format(number=values.concurrency)]
    if values.rate is not None and values.per_ms is not None:
        seconds = f"{values.per_ms / 1000:g}"
        parts.append(_("{number} in {seconds} s").format(number=values.rate, seconds=seconds))
    if values.burst:
        parts.append(_("{number} more at once").format(number=values.burst))
    if values.fair:
        parts.append(_("keys take turns"))
    return ", ".join(parts) or _("everything")


def given_back(name: str, limit: GivenBack) -> str:
    """Describe the outcome of returning a limit to the code."""
    text = _("The limit {limit} is given back: {values}, until the code names it and sets other values.")
    if limit.named:
        text = _("The limit {limit} is given back: {values}, the code's values.")
    return text.format(limit=name, values=allows(LimitValues.of(limit)))


def changed(before: LimitValues, after: LimitValues) -> dict[str, list[Any]]:
    """Return the values that differ, each before and after."""
    old, new = asdict(before), asdict(after)
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}


@operation
def list_limits(
    *,
    project: str | None = None,
    after: tuple[str, str] | None = None,
    ids: Sequence[int] | None = None,
    size: int = 50,
) -> Statements[list[LimitFigures]]:
    """Return limits with their figures, by project and name."""
    after_project, after_name = after or (project or "", "")
    for text, what in ((project, "the project"), (after_project, "the project"), (after_name, "the name of a limit")):
        if text is not None:
            check_text(text, what, MAX_PROJECT_BYTES, 0)
    params = {
        "project": project,
        "ids": None if ids is None else arrays.integers(ids),
        "after_project": after_project,
        "after_name": after_name,
        "size": check_count(size, "size", MAX_LIMITS, 1),
        "keys": MAX_KEYS + 1,
        "cap": CAP + 1,
    }
    return [LimitFigures._make(row) for row in (yield "limit_list", params)]


@operation
def busy_keys(limit: int, *, after: str, most: int) -> Statements[BusyKeys]:
    """Return the busiest of the next ``MAX_KEYS`` keys of a limit, the one that most jobs wait for first."""
    params = {
        "limit": limit,
        "after": check_text(after, "the key of a limit", MAX_PROJECT_BYTES, 0),
        "size": MAX_KEYS,
        "cap": KEY_CAP + 1,
        "most": check_count(most, "most", MAX_KEYS, 1),
    }
    rows = yield "limit_busy", params
    return BusyKeys([KeyFigures._make(row[4:]) for row in rows if row[4] is not None], *rows[0][:4])


@operation
def workflow_queues(workflow: int) -> Statements[list[str | None]]:
    """Return the names of the queues that the jobs of a workflow are in; ``None`` for one that is gone."""
    return [name for (name,) in (yield "workflow_queues", {"workflow": workflow})]


@operation
def every_node(workflow: int) -> Statements[list[NodeRow]]:
    """Return all nodes of a workflow, without results, in the order of their places."""
    found: list[NodeRow] = []
    while len(found) % MAX_PAGE == 0 and len(found) < MAX_NODES:
        page = yield from workflow_nodes(workflow, after=found[-1].seq if found else 0, size=MAX_PAGE, results=False)
        if not page:
            break
        found += page
    return sorted(found, key=lambda node: node.place)


class WorkflowStatus(NamedTuple):
    """The counts and the state of a workflow. ``state`` is a ``WorkflowState``, ``shape`` a ``WorkflowShape``."""

    id: int
    name: str
    state: int
    total: int
    completed: int
    failed: int
    cancelled: int
    created_at: datetime
    ended_at: datetime | None
    shape: int

    @property
    def label(self) -> str:
        return str(WorkflowState(self.state).label)

    @property
    def open(self) -> int:
        """The number of its jobs that have not ended."""
        return self.total - self.completed - self.failed - self.cancelled


class NodeRow(NamedTuple):
    """A node of a workflow and where it stands."""

    seq: int
    place: int
    label: str
    task: str | None
    queue: str | None
    key: str | None
    member: int
    parents: list[int] | None
    ended: bool
    held: bool
    delayed: bool
    ready: bool
    error_type: str | None
    error: str | None
    result_json: str | None
    for_failure: bool

    @property
    def state(self) -> str:
        if self.member != MemberState.OPEN:
            return str(MemberState(self.member).label)
        if self.held:
            return "waiting"
        return "delayed" if self.delayed else "ready" if self.ready else "running"


class Input(NamedTuple):
    """How a parent ended."""

    seq: int
    #: A ``ResultState``; ``None`` if nothing is known of it any more.
    state: int | None
    result_json: str | None
    #: A ``MemberState``; ``None`` if its workflow is forgotten.
    member: int | None
    error_type: str | None
    error: str | None
    key: str | None

    @property
    def completed(self) -> bool:
        """Whether it completed, and its result is there."""
        return self.state == ResultState.COMPLETED


@operation
def get_workflow(uid: UUID, *, project: str = "") -> Statements[WorkflowStatus | None]:
    """Return the status of a workflow: one row, whatever its size."""
    check_place(project)
    rows = yield "workflow_get", {"uid": str(uid), "project": project}
    return WorkflowStatus._make(rows[0]) if rows else None


@operation
def workflow_nodes(
    workflow: int, *, after: int = 0, size: int = 100, results: bool = True
) -> Statements[list[NodeRow]]:
    """Return a page of the nodes of a workflow; without ``results`` errors are cut to 300 characters, too."""
    size = check_count(size, "size", MAX_PAGE, 1)
    params = {"workflow": workflow, "after": after, "size": size, "results": results}
    return [NodeRow._make(row) for row in (yield "workflow_nodes", params)]


@operation
def inputs(seq: int) -> Statements[list[Input]]:
    """Return how the parents of a job ended, in their order."""
    return [Input._make(row) for row in (yield "member_inputs", {"seq": seq})]


class MemberOf(NamedTuple):
    """The workflow of a job."""

    id: int
    uid: UUID
    name: str


@operation
def workflow_of(seq: int) -> Statements[MemberOf | None]:
    """Return the workflow that a job is a node of; ``None`` if it is in none."""
    rows = yield "member_workflow", {"seq": seq}
    return MemberOf._make(rows[0]) if rows else None


class MemberRow(NamedTuple):
    """The limit and the workflow of a job, or ``None`` for each."""

    state: int
    taken: bool
    pending: int
    label: str
    limit: str | None
    key: str | None
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    workflow: UUID | None
    workflow_name: str | None

    @property
    def waits_for(self) -> str:
        """Reason why it does not start yet, for people to read; empty if neither its workflow nor its limit is one."""
        if self.state == MemberState.CANCELLED:
            return "cancelled: a job before it in its workflow has failed or was cancelled"
        if self.pending:
            return f"{self.pending} jobs of its workflow" if self.pending > 1 else "a job of its workflow"
        if self.limit is None or self.taken:
            return ""
        values = LimitValues(self.limit, self.concurrency, self.rate, self.per_ms)
        return f"its turn: key {self.key!r} of the limit {self.limit!r} ({allows(values)})"


@operation
def member(seq: int) -> Statements[MemberRow | None]:
    """Return the limit and workflow of a job; ``None`` for a plain job."""
    rows = yield "member_get", {"seq": seq}
    return MemberRow._make(rows[0]) if rows else None
