"""Workflows: graphs of jobs, each of which starts when its parents have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ... import conf
from ...enums import JobState, MemberState, ResultState, WorkflowShape, WorkflowState
from ...exceptions import InvalidOption
from .. import arrays, codec
from ..jobs.enqueue import enqueue
from ..jobs.remove import remove_steps
from ..jobs.unique import hold_steps
from ..limits import MAX_SPAN_MS, check_count, check_integer, check_list, check_place, check_text
from ..operation import BEGIN, Steps, operation
from ..queues.queues import find
from ..rows import Enqueued, EnqueueStatus, NewJob
from .limits import HELD, KEEP_MS, LimitValues, check_key, limit_steps

#: Nodes of one workflow, and parents that all of them have together.
MAX_NODES, MAX_EDGES = 10_000, 100_000
#: Bytes of a label or a name.
MAX_LABEL_BYTES = 255
#: Nodes of one page.
MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Node:
    """A job of a workflow: ``parents`` are the places of the nodes before it that must have ended.

    ``tolerant``: it starts however they ended; else only if all completed. ``for_failure`` (with one parent, and
    ``tolerant``): it starts if that one fails, and is removed if it completes. ``limit``: key and limit that it is
    under. The job's ``delay_ms`` counts from the end of the parents, and ``run_at`` is the earliest time.
    """

    queue: str
    job: NewJob
    parents: tuple[int, ...] = ()
    tolerant: bool = False
    for_failure: bool = False
    label: str = ""
    limit: tuple[str, LimitValues] | None = None


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
        """Its state in a word."""
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
        """Its state in a word."""
        if self.member != MemberState.OPEN:
            return str(MemberState(self.member).label)
        if self.held:
            return "waiting"
        return "delayed" if self.delayed else "ready" if self.ready else "running"


class Input(NamedTuple):
    """How a parent ended: ``state`` is a ``ResultState``, ``None`` if nothing is known of it any more.

    ``member`` is a ``MemberState``, ``None`` if its workflow is forgotten.
    """

    seq: int
    state: int | None
    result_json: str | None
    member: int | None
    error_type: str | None
    error: str | None
    key: str | None

    @property
    def completed(self) -> bool:
        """Whether it completed, and its result is there."""
        return self.state == ResultState.COMPLETED


@operation
def start_workflow(
    nodes: Sequence[Node],
    uid: UUID,
    *,
    project: str = "",
    name: str = "",
    on_failure: Node | None = None,
    shape: int = WorkflowShape.MAPPING,
) -> Steps[list[Enqueued]]:
    """Enqueue the jobs of a workflow: all or none, in the caller's transaction if there is one.

    Args:
        nodes: at most 10,000; a node's parents stand before it. Without any the workflow has ended.
        uid: a new id of the workflow.
        project: the tenant.
        name: to find it by.
        on_failure: the job that starts when one has failed; it is not one of ``nodes``.
        shape: the form of its value, a ``WorkflowShape``.

    Returns:
        The answer for each node, in order, and that of ``on_failure`` at the end.

    Raises:
        InvalidOption: a node is not allowed; nothing was enqueued.
        QueueNotFound, QueueFull, PayloadTooLarge: as ``enqueue``; nothing was enqueued.
    """
    check_place(project)
    check_text(name, "the name of a workflow", MAX_LABEL_BYTES, 0)
    if nodes:
        check_nodes(nodes)
    every = [*nodes] if on_failure is None or not nodes else [*nodes, on_failure]
    yield BEGIN, {}
    answers = yield from enqueue_nodes(every, len(nodes), project)
    seqs = [answer.seq for answer in answers]
    failure = seqs[-1] if len(every) > len(nodes) else None
    ((workflow,),) = yield (
        "workflow_add",
        {
            "uid": str(uid),
            "project": project,
            "name": name,
            "shape": shape,
            "keep_ms": KEEP_MS,
            "total": len(nodes),
            "edges": count_edges(nodes),
            "on_failure": failure,
        },
    )
    if nodes:
        yield from member_steps(workflow, every, seqs, project, failure=failure)
    return answers


def member_steps(
    workflow: int,
    nodes: Sequence[Node],
    seqs: Sequence[int],
    project: str,
    *,
    known: Sequence[int] = (),
    first: int = 0,
    failure: int | None = None,
) -> Steps[None]:
    """Steps that make enqueued jobs the nodes of a workflow."""
    numbers = [*known, *seqs]
    children: dict[int, list[int]] = {}
    for seq, node in zip(seqs, nodes, strict=True):
        for parent in node.parents:
            children.setdefault(numbers[parent], []).append(seq)
    times = [
        (node.job.delay_ms, node.job.run_at) if node.parents or seq == failure else (None, None)
        for seq, node in zip(seqs, nodes, strict=True)
    ]
    timed = any(time != (None, None) for time in times)
    any_for_failure = any(node.for_failure for node in nodes)
    yield (
        "member_add",
        {
            "workflow": workflow,
            "first": first,
            "on_failure": failure,
            "seqs": arrays.integers(seqs),
            "pendings": arrays.integers(
                # What has a limit waits for that to be known (member_join.sql), what starts for a failure for one.
                [
                    len(node.parents) + (node.limit is not None) + (seq == failure)
                    for seq, node in zip(seqs, nodes, strict=True)
                ]
            ),
            "tolerants": arrays.flags([node.tolerant for node in nodes]),
            "labels": arrays.texts([node.label for node in nodes]),
            "parents": arrays.texts([_array(numbers[parent] for parent in node.parents) for node in nodes]),
            "children": arrays.texts([_array(children.get(seq, ())) for seq in seqs]),
            "failures": arrays.flags([node.for_failure for node in nodes]) if any_for_failure else arrays.EMPTY,
            # Without parents the job itself has its time.
            "delays": arrays.integers([delay for delay, _ in times]) if timed else arrays.EMPTY,
            "starts": arrays.times([start for _, start in times]) if timed else arrays.EMPTY,
        },
    )
    yield "workflow_log", {"workflow": workflow, "seqs": arrays.integers([seq for seq in seqs if seq != failure])}
    for queue, limited in _by_queue(nodes, seqs).items():
        if limited:
            places, keys, values = zip(*limited, strict=True)
            yield from limit_steps(queue, places, keys, values, project, workflow)


def _array(seqs: Sequence[int] | Iterator[int]) -> str | None:
    text = ",".join(map(str, seqs))
    return f"{{{text}}}" if text else None


def _by_queue(nodes: Sequence[Node], seqs: Sequence[int]) -> dict[str, list[tuple[int, str, LimitValues]]]:
    found: dict[str, list[tuple[int, str, LimitValues]]] = {}
    for node, seq in zip(nodes, seqs, strict=True):
        if node.limit is not None:
            found.setdefault(node.queue, []).append((seq, *node.limit))
    return found


def count_edges(nodes: Sequence[Node]) -> int:
    """Return how many parents nodes have together."""
    return sum(len(node.parents) for node in nodes)


def check_nodes(nodes: Sequence[Node], known: int = 0) -> None:
    """Refuse what is no graph, or too large a one."""
    if not 1 <= len(check_list(nodes, "the nodes of a workflow")) <= MAX_NODES:
        raise InvalidOption(f"a workflow has 1 to {MAX_NODES} jobs; there are {len(nodes)}.")
    for place, node in enumerate(nodes, known):
        check_text(node.label, "a label", MAX_LABEL_BYTES, 0)
        if node.job.key is not None:
            raise InvalidOption("a job of a workflow has no key of its own; it may have a unique_key.")
        if node.job.on_conflict not in (None, "ignore"):
            raise InvalidOption("a job of a workflow takes nothing from another one: on_conflict does not go with it.")
        check_integer(node.job.delay_ms or 0, "the delay of a job, in milliseconds,", 0, MAX_SPAN_MS)
        if any(not 0 <= parent < place for parent in node.parents) or len({*node.parents}) < len(node.parents):
            raise InvalidOption(f"the parents of a node stand before it, each once; those of node {place} do not.")
        if node.limit is not None:
            check_key(node.limit[0])
    check_size(len(nodes), count_edges(nodes))


def check_size(nodes: int, edges: int) -> None:
    """Refuse a workflow that is too large."""
    if nodes > MAX_NODES:
        raise InvalidOption(f"a workflow has at most {MAX_NODES} jobs; there would be {nodes}.")
    if edges > MAX_EDGES:
        raise InvalidOption(f"the jobs of a workflow have at most {MAX_EDGES} parents together; there are {edges}.")


def enqueue_nodes(every: Sequence[Node], count: int, project: str) -> Steps[list[Enqueued]]:
    """Enqueue the jobs, those of a queue together; return the answers in the order of the nodes.

    A job that has parents or a limit is held, and so are those after the first ``count``.
    """
    places: dict[str, list[int]] = {}
    for place, node in enumerate(every):
        places.setdefault(node.queue, []).append(place)
    size = conf.settings.MAX_ENQUEUE
    answers: dict[int, Enqueued] = {}
    for queue in sorted(places):
        yield from hold_steps(project, queue, [every[place].job for place in places[queue]])
    for queue, mine in places.items():
        found = yield from find(project, queue)
        keep = None if found is not None and found.config["result_ttl_ms"] >= KEEP_MS else KEEP_MS
        made: list[NewJob] = []
        for place in mine:
            node = every[place]
            job = node.job._replace(flow=True, result_ttl_ms=node.job.result_ttl_ms or keep)
            if node.parents or place >= count:
                job = job._replace(run_at=HELD, delay_ms=None)
            elif node.limit is not None and job.run_at is None and not job.delay_ms:
                job = job._replace(run_at=HELD)
            made.append(job)
        added: list[Enqueued] = []
        for start in range(0, len(made), size):
            added += yield from enqueue(queue, made[start : start + size], project=project)
        for job, answer in zip(made, added, strict=True):
            if answer.status is not EnqueueStatus.QUEUED:
                raise InvalidOption(
                    f"the key {job.unique_key!r} of a step ({job.name}) is that of job {answer.seq}, so nothing of the"
                    " workflow was enqueued: enqueue it once that job has ended, or give the step no key."
                )
        answers.update(zip(mine, added, strict=True))
    return [answers[place] for place in range(len(every))]


@operation
def get_workflow(uid: UUID, *, project: str = "") -> Steps[WorkflowStatus | None]:
    """Return what is known of a workflow: one row, whatever its size."""
    check_place(project)
    rows = yield "workflow_get", {"uid": str(uid), "project": project}
    return WorkflowStatus._make(rows[0]) if rows else None


@operation
def workflow_nodes(workflow: int, *, after: int = 0, size: int = 100, results: bool = True) -> Steps[list[NodeRow]]:
    """Return a page of the nodes of a workflow.

    Args:
        workflow: ``id`` of its status.
        after: number of the last node of the page before.
        size: at most 1,000.
        results: ``False`` leaves out what the jobs returned, and cuts errors to 300 characters.
    """
    size = check_count(size, "size", MAX_PAGE, 1)
    params = {"workflow": workflow, "after": after, "size": size, "results": results}
    return [NodeRow._make(row) for row in (yield "workflow_nodes", params)]


@operation
def inputs(seq: int) -> Steps[list[Input]]:
    """Return how the parents of a job ended, in their order."""
    return [Input._make(row) for row in (yield "member_inputs", {"seq": seq})]


@operation
def cancel_workflow(uid: UUID, *, project: str = "") -> Steps[int | None]:
    """Cancel a workflow: what no worker has is taken out; workers stop what runs, and start nothing of what they hold.

    What has started is counted as what it becomes; the workflow ends with the last of it.

    Returns:
        How many jobs were taken out at once; ``None`` if it has ended, or there is none.
    """
    yield BEGIN, {}
    rows = yield "workflow_cancel", {"uid": str(uid), "project": project}
    if not rows:
        return None
    gone: list[int] = []
    for queue_id, seqs in rows:
        places = [JobState.READY, JobState.DELAYED]
        gone += [job.seq for job in (yield from remove_steps(queue_id, seqs, places, reason="workflow_cancelled"))]
    yield "leases_taken", {"queues": arrays.integers(queue_id for queue_id, _ in rows)}
    yield from cancel_replacements(gone)
    return len(gone)


def cancel_replacements(seqs: Sequence[int]) -> Steps[None]:
    """Steps that cancel what jobs were replaced by that were taken out: nothing waits for it any more."""
    while seqs:
        found = [codec.loads(text) for (text,) in (yield "step_replacements", {"seqs": arrays.integers(seqs)})]
        queues: dict[tuple[str, str], list[int]] = {}
        for replacement in found:
            if "workflow" in replacement:
                yield from cancel_workflow(UUID(replacement["workflow"]), project=replacement["project"])
            elif "seq" in replacement:
                queues.setdefault((replacement["project"], replacement["queue"]), []).append(replacement["seq"])
        seqs = []
        for (project, queue), mine in queues.items():
            if (row := (yield from find(project, queue))) is not None:
                places = [JobState.READY, JobState.DELAYED, JobState.LEASED]
                seqs += [job.seq for job in (yield from remove_steps(row.id, mine, places))]
                yield "leases_taken", {"queues": arrays.integers([row.id])}
