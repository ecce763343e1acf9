"""Topics: where one stands, which there are, writing to one (a keyed write once), removing records by number or tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from ...exceptions import InvalidOption, LeaseQueueError, NotAQueue, QueueNotFound
from .. import arrays
from ..jobs.enqueue import enqueue
from ..jobs.remove import remove_steps
from ..leases.sweep import expire
from ..limits import MAX_KEY_BYTES, MAX_SEQ, MAX_TAG_BYTES, check_integer, check_place, check_text
from ..operation import BEGIN, Statements, operation
from ..queues.presets import Definition, define
from ..queues.queues import QueueInfo, make, require
from ..queues.stats import Counts, counts
from ..rows import NewJob

#: Records that one statement removes.
BATCH = 5_000
#: Entries of all queues that are read for the head of one with very many delayed or dead jobs.
LOOK = 10_000
#: Records of a topic whose size is read.
MAX_SIZED = 10_000
#: A tag that sorts behind every tag with the same beginning.
_LAST = "\U0010ffff" * (MAX_TAG_BYTES // 4)


class TopicLook(NamedTuple):
    """What a call on a topic has to know of it first. ``moves``: whether claims may move jobs away."""

    id: int
    type: str
    durability: str
    claim_jitter_ms: int
    idempotency_window_ms: int
    moves: bool
    priority_order: str
    priority_min: int
    priority_max: int
    result_ttl_ms: int


class _Stands(NamedTuple):
    """A row of ``topic_state``; ``due``: records are past their TTL; ``read`` records have ``size`` bytes."""

    id: int
    due: bool
    head_seq: int
    earliest_seq: int | None
    last_write_at: datetime | None
    read: int
    size: int
    #: Nothing to read: computing it makes the commit wait for the disk.
    flushed: object


@dataclass(frozen=True, slots=True)
class State:
    """Where a topic stands.

    ``head_seq`` is the highest number it ever gave, removed or not, 0 if none. ``earliest_seq`` is the lowest live one.
    ``bytes`` is the size of data and meta as JSON text; above 10,000 records it is extrapolated.
    """

    info: QueueInfo
    counts: Counts
    head_seq: int
    earliest_seq: int | None
    last_write_at: datetime | None
    count: int
    bytes: int


@operation
def look(topic: str, *, project: str = "", leases: bool = False) -> Statements[TopicLook]:
    """Read the facts of a topic that its calls need."""
    check_place(project, topic)
    rows = yield "topic_look", {"project": project, "topic": topic}
    if not rows:
        raise QueueNotFound(topic, project)
    found = TopicLook._make(rows[0])
    if leases and found.type != "queue":
        raise NotAQueue(topic)
    return found


@operation
def topics_there(topics: Sequence[str], *, project: str = "") -> Statements[set[str]]:
    """Return the topics that exist."""
    check_place(project, *topics)
    rows = yield "topic_names", {"project": project, "names": arrays.texts(topics)}
    return {name for (name,) in rows}


@operation
def state(topic: str, *, project: str = "") -> Statements[State]:
    """Return where a topic stands. Reads some thousand entries at most, whatever the backlog."""
    info = yield from require(project, topic, leases=False)
    stands = yield from _stands(project, topic)
    if stands.due:
        yield from expire([info.id])
        stands = yield from _stands(project, topic)
    found = yield from counts(topic, project=project)
    count = found.ready + found.delayed + found.in_flight + found.dead + found.records
    total = stands.size * count // stands.read if 0 < stands.read < count else stands.size
    return State(info, found, stands.head_seq, stands.earliest_seq, stands.last_write_at, count, total)


def _stands(project: str, topic: str) -> Statements[_Stands]:
    bounds = {"cap": min(conf.settings.COUNT_CAP, MAX_SIZED), "look": LOOK}
    rows = yield "topic_state", {"project": project, "topic": topic, **bounds}
    if not rows:
        raise QueueNotFound(topic, project)
    return _Stands._make(rows[0])


@operation
def drop(
    topic: str, *, project: str = "", before: int | None = None, tag: str | None = None, tag_prefix: str | None = None
) -> Statements[int]:
    """Remove records of a topic for good, leased ones too: their acks are skipped afterwards."""
    if before is None and tag is None and tag_prefix is None:
        raise InvalidOption("say which records to remove: below a number, or by tag.")
    if tag is not None and tag_prefix is not None:
        raise InvalidOption("tag and tag_prefix exclude each other.")
    if before is not None:
        check_integer(before, "before", 0, MAX_SEQ)
    found = yield from look(topic, project=project)
    params: dict[str, Any] = {"queue": found.id, "before": before, "size": BATCH}
    name = "topic_drop_before" if tag is None and tag_prefix is None else "topic_drop_tag"
    if tag is not None:
        params |= {"low": check_text(tag, "tag", MAX_TAG_BYTES), "high": tag}
    elif tag_prefix is not None:
        check_text(tag_prefix, "tag_prefix", MAX_TAG_BYTES, 0)
        params |= {"low": tag_prefix, "high": tag_prefix + _LAST}
    total: int = 0
    while True:
        rows = yield name, params
        gone = yield from remove_steps(found.id, [seq for (seq,) in rows], JobState.values, reason="deleted")
        total += len(gone)
        if len(rows) < BATCH or not gone:
            return total


class Written(NamedTuple):
    """The outcome of a write. ``deduped``: its key was used before, ``seqs`` are the first write's."""

    seqs: list[int]
    created: bool
    deduped: bool


@operation
def write(
    topic: str,
    jobs: Sequence[NewJob],
    *,
    project: str = "",
    key: str | None = None,
    create: Mapping[str, Any] | None = None,
) -> Statements[Written]:
    """Append records to a topic, all or none."""
    if key is not None:
        check_text(key, "the idempotency key", MAX_KEY_BYTES)
    created = False
    try:
        seqs, deduped = yield from _append(topic, jobs, project, key)
    except QueueNotFound:
        if create is None:
            raise
        found = define(project, topic, Definition("topics", create))
        created = yield from make(project, topic, found.preset, found.options)
        seqs, deduped = yield from _append(topic, jobs, project, key)
    return Written(seqs, created, deduped)


def _append(topic: str, jobs: Sequence[NewJob], project: str, key: str | None) -> Statements[tuple[list[int], bool]]:
    adding = enqueue(topic, jobs, project=project, create=False)
    found = (yield from look(topic, project=project)) if key is not None else None
    if key is None or found is None or not found.idempotency_window_ms:
        return [answer.seq for answer in (yield from adding)], False
    yield BEGIN, {}
    for _ in range(5):
        params = {"queue": found.id, "key": key}
        taken = yield "idempotency_take", {**params, "window_ms": found.idempotency_window_ms}
        if taken:
            seqs = [answer.seq for answer in (yield from adding)]
            yield "idempotency_keep", {**params, "seqs": arrays.integers(seqs)}
            return seqs, False
        for (seqs,) in (yield "idempotency_find", params):
            return list(seqs), True
    raise LeaseQueueError("The idempotency key was taken and freed again five times in a row; try the call again.")
