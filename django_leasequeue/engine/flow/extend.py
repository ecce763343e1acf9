"""Growing workflows: nodes are added to a workflow that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ...enums import MemberState, WorkflowState
from ...exceptions import InvalidOption
from .. import arrays
from ..limits import check_list, check_place, check_seqs
from ..operation import BEGIN, Steps, operation
from ..rows import Enqueued
from .workflows import Node, check_nodes, check_size, count_edges, enqueue_nodes, member_steps


class MemberOf(NamedTuple):
    """The workflow of a job. ``id`` is its number."""

    id: int
    uid: UUID
    name: str


@operation
def workflow_of(seq: int) -> Steps[MemberOf | None]:
    """Return the workflow that a job is a node of; ``None`` if it is in none."""
    rows = yield "member_workflow", {"seq": seq}
    return MemberOf._make(rows[0]) if rows else None


@operation
def extend_workflow(
    nodes: Sequence[Node], uid: UUID, *, known: Sequence[int] = (), project: str = ""
) -> Steps[list[Enqueued]]:
    """Add nodes to a workflow that goes on: all or none, in the caller's transaction if there is one.

    It only adds rows: the next claim links them, and until then the workflow does not end. A parent that has
    completed by then counts as completed; after one that has failed or was cancelled a node is cancelled, unless it is
    ``tolerant``.

    Args:
        nodes: the new nodes; ``parents`` are places among ``known`` first, then among these.
        uid: id of the workflow.
        known: numbers of nodes that it has already.
        project: the tenant.

    Returns:
        The answer for each node, in order.

    Raises:
        InvalidOption: a node is not allowed, or there is no such workflow, or it has ended, or it would be too large;
            nothing was enqueued. What other transactions add at the same time is not counted.
        QueueNotFound, QueueFull, PayloadTooLarge: as ``enqueue``; nothing was enqueued.
    """
    check_place(project)
    known = check_seqs(check_list(known, "the known nodes")) if known else []
    check_nodes(nodes, len(known))
    edges = count_edges(nodes)
    yield BEGIN, {}
    rows = yield "workflow_open", {"uid": str(uid), "project": project, "known": arrays.integers(known)}
    if not rows:
        raise InvalidOption(f"there is no workflow {uid}: it is not enqueued, or ended more than a day ago.")
    ((workflow, state, ended_at, total, edges_before, strange),) = rows
    if state == WorkflowState.CANCELLED or ended_at is not None:
        raise InvalidOption(f"the workflow {uid} has ended: {WorkflowState(state).label}. Enqueue another one.")
    if strange:
        raise InvalidOption(f"parents are nodes of the same workflow; the jobs {strange[:10]} are not.")
    check_size(total + len(nodes), edges_before + edges)
    answers = yield from enqueue_nodes(nodes, len(nodes), project)
    seqs = [answer.seq for answer in answers]
    yield from member_steps(workflow, nodes, seqs, project, known=known, first=total)
    yield (
        "workflow_extend",
        {
            "workflow": workflow,
            "project": project,
            "queue": nodes[0].queue,
            "seqs": arrays.integers(seqs),
            "edges": edges,
        },
    )
    return answers


class MemberRow(NamedTuple):
    """A job under a limit or in a workflow; ``None`` for what it is not in."""

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
        """What keeps it from starting, for people to read; empty if nothing of this does."""
        if self.state == MemberState.CANCELLED:
            return "cancelled: a job before it in its workflow has failed or was cancelled"
        if self.pending:
            return f"{self.pending} jobs of its workflow" if self.pending > 1 else "a job of its workflow"
        if self.limit is None or self.taken:
            return ""
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency} at a time")
        if self.rate is not None and self.per_ms is not None:
            parts.append(f"{self.rate} in {self.per_ms / 1000:g} s")
        return f"its turn: key {self.key!r} of the limit {self.limit!r} ({', '.join(parts)})"


@operation
def member(seq: int) -> Steps[MemberRow | None]:
    """Return what holds or counts a job; ``None`` for a plain job."""
    rows = yield "member_get", {"seq": seq}
    return MemberRow._make(rows[0]) if rows else None
