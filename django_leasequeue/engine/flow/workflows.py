"""Workflows: graphs of jobs, each of which starts when its parents have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from ... import conf
from ...enums import TurnKind, WorkflowShape, WorkflowState
from ...exceptions import InvalidOption
from ...words import HELD
from .. import arrays, codec
from ..jobs.enqueue import enqueue
from ..jobs.unique import hold_steps
from ..limits import MAX_SPAN_MS, check_integer, check_list, check_place, check_seqs, check_text
from ..operation import BEGIN, Statements, operation
from ..queues.queues import find
from ..rows import Enqueued, EnqueueStatus, NewJob
from .declared import KEEP_MS, LimitValues, check_key, limit_steps

#: Nodes of one workflow, and parents that all of them have together.
MAX_NODES, MAX_EDGES = 10_000, 100_000
MAX_LABEL_BYTES = 255


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


@operation
def start_workflow(
    nodes: Sequence[Node],
    uid: UUID,
    *,
    project: str = "",
    name: str = "",
    on_failure: Node | None = None,
    shape: int = WorkflowShape.MAPPING,
) -> Statements[list[Enqueued]]:
    """Enqueue the jobs of a workflow: all or none, in the caller's transaction if there is one.

    A node's parents stand before it; without any node the workflow has ended. ``on_failure`` starts when a node has
    failed. Return the answer for each node, in order, and that of ``on_failure`` at the end.
    """
    check_place(project)
    check_text(name, "the name of a workflow", MAX_LABEL_BYTES, 0)
    if nodes:
        check_nodes(nodes)
    every = [*nodes] if on_failure is None or not nodes else [*nodes, on_failure]
    yield BEGIN, {}
    answers = yield from _enqueue_nodes(every, len(nodes), project)
    seqs = [answer.seq for answer in answers]
    failure = seqs[-1] if len(every) > len(nodes) else None
    added = {
        "uid": str(uid),
        "project": project,
        "name": name,
        "shape": shape,
        "keep_ms": KEEP_MS,
        "total": len(nodes),
        "edges": _count_edges(nodes),
        "on_failure": failure,
    }
    ((workflow,),) = yield "workflow_add", added
    if nodes:
        yield from _add_members(workflow, every, seqs, project, failure=failure)
    return answers


def _add_members(
    workflow: int,
    nodes: Sequence[Node],
    seqs: Sequence[int],
    project: str,
    *,
    known: Sequence[int] = (),
    first: int = 0,
    failure: int | None = None,
) -> Statements[None]:
    """Make enqueued jobs the nodes of a workflow."""
    numbers = [*known, *seqs]
    children: dict[int, list[int]] = {}
    for seq, node in zip(seqs, nodes, strict=True):
        for parent in node.parents:
            children.setdefault(numbers[parent], []).append(seq)
    times = [
        (node.job.delay_ms, node.job.run_at) if node.parents or seq == failure else (None, None)
        for seq, node in zip(seqs, nodes, strict=True)
    ]
    any_for_failure = any(node.for_failure for node in nodes)
    # What has a limit waits for that to be known (member_join.sql), what starts for a failure for one.
    pendings = [
        len(node.parents) + (node.limit is not None) + (seq == failure) for seq, node in zip(seqs, nodes, strict=True)
    ]
    members = {
        "workflow": workflow,
        "first": first,
        "on_failure": failure,
        "seqs": arrays.integers(seqs),
        "pendings": arrays.integers(pendings),
        "tolerants": arrays.flags([node.tolerant for node in nodes]),
        "labels": arrays.texts([node.label for node in nodes]),
        "parents": arrays.texts([_array(numbers[parent] for parent in node.parents) for node in nodes]),
        "children": arrays.texts([_array(children.get(seq, ())) for seq in seqs]),
        "failures": arrays.flags([node.for_failure for node in nodes]) if any_for_failure else arrays.EMPTY,
        # Without parents the job itself has its time.
        "delays": arrays.optional([delay for delay, _ in times]),
        "starts": arrays.optional([start for _, start in times], arrays.times),
    }
    yield "member_add", members
    yield "workflow_log", {"workflow": workflow, "seqs": arrays.integers([seq for seq in seqs if seq != failure])}
    limited: dict[str, list[tuple[int, str, LimitValues]]] = {}
    for node, seq in zip(nodes, seqs, strict=True):
        if node.limit is not None:
            limited.setdefault(node.queue, []).append((seq, *node.limit))
    for queue, some in limited.items():
        places, keys, values = zip(*some, strict=True)
        yield from limit_steps(queue, places, keys, values, project, workflow)


def _array(seqs: Sequence[int] | Iterator[int]) -> str | None:
    text = ",".join(map(str, seqs))
    return f"{{{text}}}" if text else None


def _count_edges(nodes: Sequence[Node]) -> int:
    return sum(len(node.parents) for node in nodes)


def check_nodes(nodes: Sequence[Node], known: int = 0) -> None:
    """Refuse nodes that form no graph, or too large a one."""
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
    _check_size(len(nodes), _count_edges(nodes))


def _check_size(nodes: int, edges: int) -> None:
    if nodes > MAX_NODES:
        raise InvalidOption(f"a workflow has at most {MAX_NODES} jobs; there would be {nodes}.")
    if edges > MAX_EDGES:
        raise InvalidOption(f"the jobs of a workflow have at most {MAX_EDGES} parents together; there are {edges}.")


def _enqueue_nodes(every: Sequence[Node], count: int, project: str) -> Statements[list[Enqueued]]:
    """Enqueue the jobs of nodes; those with parents or a limit, and those after the first ``count``, are held."""
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
def extend_workflow(
    nodes: Sequence[Node], uid: UUID, *, known: Sequence[int] = (), project: str = ""
) -> Statements[list[Enqueued]]:
    """Add nodes to a workflow that goes on: all or none, in the caller's transaction if there is one.

    It only adds rows: the next claim links them, and until then the workflow does not end. ``known`` are numbers of
    nodes that it has already; ``parents`` of the new ones are places among these first, then among ``nodes``. What
    other transactions add at the same time does not count for its size.
    """
    check_place(project)
    known = check_seqs(check_list(known, "the known nodes")) if known else []
    check_nodes(nodes, len(known))
    edges = _count_edges(nodes)
    yield BEGIN, {}
    rows = yield "workflow_open", {"uid": str(uid), "project": project, "known": arrays.integers(known)}
    if not rows:
        raise InvalidOption(f"there is no workflow {uid}: it is not enqueued, or ended more than a day ago.")
    ((workflow, state, ended_at, total, edges_before, strange),) = rows
    if state == WorkflowState.CANCELLED or ended_at is not None:
        raise InvalidOption(f"the workflow {uid} has ended: {WorkflowState(state).label}. Enqueue another one.")
    if strange:
        raise InvalidOption(f"parents are nodes of the same workflow; the jobs {strange[:10]} are not.")
    _check_size(total + len(nodes), edges_before + edges)
    answers = yield from _enqueue_nodes(nodes, len(nodes), project)
    seqs = [answer.seq for answer in answers]
    yield from _add_members(workflow, nodes, seqs, project, known=known, first=total)
    turn = {"kind": int(TurnKind.EXTEND), "key": workflow, "seqs": arrays.integers(seqs)}
    detail = codec.dumps({"edges": edges})
    yield "turn_add", {"project": project, "queue": nodes[0].queue, **turn, "detail": detail}
    return answers
