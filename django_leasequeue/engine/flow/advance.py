"""Taking turns: jobs that joined, moved or ended under a limit or in a workflow let others start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...enums import JobState, MemberState, TurnKind, WorkflowState
from ...words import NodeNext
from .. import arrays, codec
from ..jobs.cancel import cancel_nodes
from ..jobs.remove import remove_steps
from ..jobs.steps import emit_end, workflow_event
from ..limits import check_ids
from ..operation import BEGIN, Statements, operation
from ..rows import LeasedJob
from .declared import KEEP_MS, LimitValues, write_limits

#: Turns of each queue that one claimer takes.
TURNS = 200
#: Jobs of one key that are admitted at once.
MOST = 1_000
#: Workflows that one call forgets: each has up to 10,000 jobs.
EXPIRED = 5
#: Milliseconds until jobs that a claim could not take are tried again.
NOT_AT_ONCE = 50


class _Turn(NamedTuple):
    kind: int
    project: str
    key: int | None
    seqs: list[int] | None
    detail: str | None


class _Looked(NamedTuple):
    seq: int
    workflow: int | None
    before: int
    state: int
    free: bool
    #: Its queue if it is of a workflow that is being cancelled and was given back: it does not start again.
    back: int | None


class _Freed(NamedTuple):
    #: Jobs that may start.
    ready: list[int]
    #: Keys that may admit more, each with a queue that has such a job.
    keys: dict[int, int]
    #: Jobs that have a time of their own first.
    timed: list[int]

    def add(self, seq: int, key: int | None, queue_id: int, *, timed: bool = False) -> None:
        """Record a job that waits only for its time and its key."""
        if timed:
            self.timed.append(seq)
        elif key is None:
            self.ready.append(seq)
        else:
            self.keys[key] = queue_id


@operation
def expire_workflows() -> Statements[None]:
    """Forget workflows that ended ``KEEP_MS`` ago, ``EXPIRED`` of them."""
    yield BEGIN, {}
    for queue_id, seqs, _ in (yield "workflow_expire", {"size": EXPIRED}):
        yield from remove_steps(queue_id, seqs, [JobState.DELAYED], reason="workflow_ended")


class Advanced(NamedTuple):
    """The number of turns that were taken, and the jobs that are ready because their rate allows it at this moment."""

    turns: int
    #: With their queues.
    rated: dict[int, int]
    #: Not later (monotonic) than the time for which their rate counts them.
    asked_at: float = 0.0


NOTHING = Advanced(0, {})


@operation
def advance(queue_ids: Sequence[int]) -> Statements[int]:
    """Take the turns of these queues that are due, but for those of rates; return how many."""
    return (yield from advance_steps(check_ids(queue_ids))).turns


def advance_steps(queue_ids: Sequence[int], room: int = 0) -> Statements[Advanced]:
    """Take turns, once. The rest of the operation is part of their transaction."""
    # Locks are taken in one order: limits, workflows, keys.
    yield BEGIN, {}
    rows = yield "turn_take", {"queues": arrays.integers(queue_ids), "size": TURNS, "starts": room}
    turns = [_Turn._make(row) for row in rows]
    if not turns:
        return NOTHING
    joins = [(turn, codec.loads(turn.detail or "{}")) for turn in turns if turn.kind == TurnKind.JOIN]
    seqs = sorted({seq for turn in turns if turn.kind == TurnKind.LOOK for seq in turn.seqs or ()})
    grown = [turn for turn in turns if turn.kind == TurnKind.EXTEND]
    moved = [turn.seqs for turn in turns if turn.kind == TurnKind.FOLLOW and turn.seqs]
    concerned = sorted({*seqs, *(turn.seqs[0] for turn in grown if turn.seqs), *(old for old, _ in moved)})
    workflows = sorted({detail["workflow"] for _, detail in joins if detail.get("workflow")})
    if workflows:
        # Limits of nodes change the nodes: all workflows of these turns first.
        yield "workflow_lock", {"workflows": arrays.integers(workflows), "seqs": arrays.integers(concerned)}
    keys = {turn.key for turn in turns if turn.key is not None and turn.kind == TurnKind.ADMIT}
    freed = _Freed([], {}, [])
    for turn, detail in joins:
        keys.update((yield from _join(turn, detail, freed)))
    locked = yield "flow_lock", {"seqs": arrays.integers(concerned), "keys": arrays.integers(sorted(keys))}
    admitted: set[int] = {*(locked[0][0] or ())}
    if concerned:
        for turn in grown:
            yield from _link(turn, freed)
        for old, new in moved:
            yield "member_follow", {"old": old, "new": new}
        seqs = sorted({*seqs, *(new for _, new in moved)})
        if seqs:
            yield from _look(seqs, freed)
        if freed.ready:
            yield "flow_ready", {"seqs": arrays.integers(freed.ready)}
        more = {key: queue for key, queue in freed.keys.items() if key not in admitted}
        if more:
            both = {"keys": arrays.integers(more), "queues": arrays.integers(more.values())}
            admitted.update(key for (key,) in (yield "key_lock", both))
    if freed.timed:
        yield "flow_delay", {"seqs": arrays.integers(freed.timed)}
    changed = {turn.key for turn in turns if turn.kind == TurnKind.ADMIT and turn.detail and turn.key is not None}
    if changed:
        yield "flow_hold", {"keys": arrays.integers(sorted(changed)), "most": MOST}
    if not admitted:
        return Advanced(len(turns), {})
    asked_at = time.monotonic()
    of_queues = {"queues": arrays.integers(queue_ids), "room": room}
    rows = yield "flow_admit", {"keys": arrays.integers(sorted(admitted)), "most": MOST, **of_queues}
    return Advanced(len(turns), {seq: queue for seq, rated, queue, *_ in rows if rated}, asked_at)


def return_steps(rated: Iterable[int], claimed: Sequence[LeasedJob]) -> Statements[None]:
    """Take back jobs that were admitted for their rate but not claimed: their permits return."""
    started = {job.seq for job in claimed}
    left = [seq for seq in rated if seq not in started]
    if left:
        # Others came first, or none may come from that queue: then not at once, or the claimer goes round and round.
        yield "flow_return", {"seqs": arrays.integers(left), "wait": 0 if claimed else NOT_AT_ONCE}


def _join(turn: _Turn, detail: dict[str, Any], freed: _Freed) -> Statements[list[int]]:
    """Make the limits and keys that are missing, and the members; return the keys."""
    limits = [LimitValues(*values) for values in detail["limits"]]
    yield from write_limits(limits, turn.project, pin=False)
    pairs = sorted(set(zip(detail["names"], detail["keys"], strict=True)))
    names, keys = arrays.texts([name for name, _ in pairs]), arrays.texts([key for _, key in pairs])
    yield "limit_keys", {"project": turn.project, "names": names, "keys": keys}
    names, keys = arrays.texts(detail["names"]), arrays.texts(detail["keys"])
    joined = {"project": turn.project, "seqs": arrays.integers(turn.seqs or ()), "names": names, "keys": keys}
    rows = yield "member_join", joined
    freed.timed.extend(seq for key, seq in rows if key is None)
    return [key for key, _ in rows if key is not None]


def _link(turn: _Turn, freed: _Freed) -> Statements[None]:
    """Link new nodes of a workflow to its existing nodes; record which jobs may start."""
    detail = codec.loads(turn.detail or "{}")
    parameters = {"workflow": turn.key, "seqs": arrays.integers(turn.seqs or ()), "edges": detail["edges"]}
    broken: list[int] = []
    gone: dict[int, list[int]] = {}
    for what, seq, key, queue_id in (yield "workflow_link", parameters):
        if what == NodeNext.BROKEN:
            broken.append(seq)
        elif what == NodeNext.GOES:
            gone.setdefault(queue_id, []).append(seq)
        else:
            freed.add(seq, key, queue_id, timed=what == NodeNext.TIMED)
    for queue_id, seqs in gone.items():
        places = [JobState.READY, JobState.DELAYED, JobState.LEASED]
        yield from remove_steps(queue_id, seqs, places, reason="workflow_cancelled")
    counts: dict[int, Counter[int]] = {turn.key or 0: Counter()}
    if broken:
        cancelled = yield from _cancel(broken, counts)
        yield from _children(cancelled, freed, tolerant=True)
    yield from _count(counts, freed)


def _look(seqs: Sequence[int], freed: _Freed) -> Statements[None]:
    """Record the states of members and their effect on workflows; record which jobs may start."""
    rows = yield "flow_look", {"seqs": arrays.integers(seqs)}
    looked = [_Looked._make(row) for row in rows]
    goes_on = {one.seq for one in looked if one.back is None}
    for queue_id in sorted({one.back for one in looked if one.back is not None}):
        turned, _ = yield from cancel_nodes(queue_id, [one.seq for one in looked if one.back == queue_id])
        goes_on.update(turned)
    freed.ready.extend(one.seq for one in looked if one.free and one.seq in goes_on)
    if nodes := [one for one in looked if one.workflow is not None and one.before != one.state]:
        yield from _nodes(nodes, freed)


def _nodes(nodes: Sequence[_Looked], freed: _Freed) -> Statements[None]:
    """Pass the ends (or restarts) of nodes to children and workflows; record which jobs may start."""
    completed = [node.seq for node in nodes if node.state == MemberState.COMPLETED]
    broken = [node.seq for node in nodes if node.state in (MemberState.FAILED, MemberState.CANCELLED)]
    again = [node.seq for node in nodes if node.before in (MemberState.FAILED, MemberState.CANCELLED)]
    counts: dict[int, Counter[int]] = {}
    for node in nodes:
        counts.setdefault(node.workflow or 0, Counter()).update({node.before: -1, node.state: 1})
    others: list[int] = []
    if again:
        back = yield from _cancel(again, counts, back=True)
        yield from _children([*again, *back], freed, tolerant=True, back=True)
        if back:
            others = [seq for (seq,) in (yield "flow_broken", {"seqs": arrays.integers(back)})]
    if completed:
        yield from _children(completed, freed)
    if broken or others:
        cancelled = yield from _cancel([*broken, *others], counts)
        yield from _children([*broken, *cancelled], freed, tolerant=True)
    yield from _count(counts, freed)


def _cancel(seqs: Sequence[int], counts: dict[int, Counter[int]], *, back: bool = False) -> Statements[list[int]]:
    """Cancel the descendants of nodes, or with ``back`` restore them; return which."""
    changed = yield "flow_cancel", {"seqs": arrays.integers(seqs), "back": back}
    for _, workflow in changed:
        counts[workflow].update({MemberState.CANCELLED: -1 if back else 1})
    return [seq for seq, _ in changed]


def _children(seqs: Sequence[int], freed: _Freed, *, tolerant: bool = False, back: bool = False) -> Statements[None]:
    rows = yield "flow_children", {"seqs": arrays.integers(seqs), "tolerant": tolerant, "back": back}
    needless = []
    for seq, key, queue_id, what in rows:
        if what == NodeNext.GOES:
            needless.append(seq)
        else:
            freed.add(seq, key, queue_id, timed=what == NodeNext.TIMED)
    if needless:
        for queue_id, gone in (yield "flow_needless", {"seqs": arrays.integers(needless)}):
            yield from remove_steps(queue_id, gone, [JobState.DELAYED], reason="not_needed")


def _count(counts: dict[int, Counter[int]], freed: _Freed) -> Statements[None]:
    """Record the counts of workflows, failure handlers to start, and jobs that wait for the end."""
    ids = sorted(counts)
    counted = {
        "workflows": arrays.integers(ids),
        "completed": arrays.integers([counts[one][MemberState.COMPLETED] for one in ids]),
        "failed": arrays.integers([counts[one][MemberState.FAILED] for one in ids]),
        "cancelled": arrays.integers([counts[one][MemberState.CANCELLED] for one in ids]),
        "keep": KEEP_MS,
    }
    ended: list[tuple[str, str]] = []
    for _, state, on_failure, queue_id, starts, key, timed, uid, waiting in (yield "workflow_count", counted):
        ended.extend((uid, project) for project in waiting or ())
        if starts:
            freed.add(on_failure, key, queue_id, timed=timed)
        elif on_failure is not None and state in (WorkflowState.COMPLETED, WorkflowState.CANCELLED):
            yield from remove_steps(queue_id, [on_failure], [JobState.DELAYED], reason="not_needed")
    # In the order in which the reaper emits them, which waits for the same locks.
    for uid, project in sorted(ended):
        yield from emit_end(workflow_event(uid), project=project)
