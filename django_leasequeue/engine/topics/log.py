"""Reading a topic by number, without leasing and without gaps, also across a crash of the server."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...conf import process
from ...exceptions import BatchTooLarge, LogTruncated, QueueNotFound
from .. import arrays, codec, payloads
from ..epoch import above_horizon
from ..jobs.read import MAX_PAGE_BYTES
from ..leases.sweep import expire
from ..limits import MAX_SEQ, check_count, check_integer, check_list, check_node, check_place
from ..operation import Rows, Statements, operation

#: Numbers that one read looks at where records of some nodes are left out, or others' delayed jobs lie between.
LOOK = 20_000
MAX_NODES = 100
#: The highest number of a timeline: 32 bits are PostgreSQL's, those above are the epoch; JSON's readers take 53.
MAX_TIMELINE = 2**53 - 1
#: Numbers that a sealer remembers while transactions hold them open.
_PENDING = 64


class TopicRecord(NamedTuple):
    """One record of a topic. JSON columns stay text until they are read."""

    seq: int
    created_at: datetime
    tag: str | None
    origin: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    #: Of a task.
    name: str | None

    @property
    def data(self) -> Any:
        return None if self.data_json is None else codec.loads(self.data_json)

    @property
    def meta(self) -> Any:
        return None if self.meta_json is None else codec.loads(self.meta_json)


class Gap(NamedTuple):
    """What a reader missed: records from ``start`` to ``end`` that a ``cap`` or the ``ttl`` took."""

    start: int
    end: int
    reason: str
    missed: int


class LogPage(NamedTuple):
    """One read of a topic. Read on from ``cursor``, and give ``timeline``, which is the server's, to the next read.

    ``reset_to`` is the number that a read with ``reset`` began at because the server may have lost a later one.
    ``head_seq`` is the highest number that the topic has given so far; ``sealed`` whether it could be read up to there:
    while it is not, a transaction that runs may still add a record below.
    """

    queue_id: int
    records: list[TopicRecord]
    cursor: int
    head_seq: int
    sealed: bool
    more: bool
    gap: Gap | None
    timeline: int
    reset_to: int | None = None


class SealedView(NamedTuple):
    """A statement's view of sealed numbers: see ``topic_read``."""

    server: str
    timeline: int
    last: int
    mark: int | None
    oldest: int
    place: int | None
    firm: int
    sealed: int
    written: bool

    @property
    def visible_seq(self) -> int:
        """The highest number that readers may see: sealed, and on disk."""
        return self.sealed if self.written or self.place is None else self.firm


class _Topic(NamedTuple):
    """The topic in a row of ``topic_read``: read up to ``looked_at``; ``due``: records are past their TTL."""

    id: int
    type: str
    head_seq: int
    gap_from: int
    gap_to: int | None
    gap_reason: str
    gap_count: int
    looked_at: int | None
    more: bool
    due: bool


#: The places in a row of ``topic_read`` of the columns about the topic, of whether its record fits into the page, and
#: of the record.
_TOPIC = len(SealedView._fields)
_FITS = _TOPIC + len(_Topic._fields)
_RECORD = _FITS + 1


class _Noted(NamedTuple):
    """A number, the transaction that must have been reached for it, and the place in the WAL that must be on disk."""

    head: int
    mark: int
    ended: int | None = None


class Sealer:
    """What this process knows of sealed numbers: up to where no transaction can add a record any more.

    A number is noted together with a transaction id that is drawn after it; when the oldest running transaction has
    reached that id, every transaction that could hold a lower number has ended. What they wrote has to be on disk as
    well: a crash loses what is not, and gives the numbers out again. So the place in the WAL is noted then, and the
    number counts once the disk has reached it. All of this is about one life of the server: after a crash nothing of it
    holds, nor of another install's numbers. One object per database, for all readers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server = ""
        #: The highest number known to be sealed and on disk.
        self.sealed = 0
        self._pending: deque[_Noted] = deque()

    def parameters(self) -> dict[str, Any]:
        with self._lock:
            pending = list(self._pending)
            return {
                "server": self._server,
                "sealed": self.sealed,
                "known": pending[-1].head if pending else self.sealed,
                "heads": arrays.integers(noted.head for noted in pending),
                "marks": arrays.integers(noted.mark for noted in pending),
                "ends": arrays.integers(noted.ended for noted in pending),
            }

    def note(self, seen: SealedView) -> None:
        with self._lock:
            if seen.server != self._server or seen.last < self.sealed:
                self._server, self.sealed = seen.server, 0
                self._pending.clear()
            self.sealed = max(self.sealed, seen.visible_seq)
            head = self._pending[-1].head if self._pending else self.sealed
            if seen.mark is not None and seen.last > max(head, self.sealed):
                self._pending.append(_Noted(seen.last, seen.mark))
            if seen.place is not None:
                for number, noted in enumerate(self._pending):
                    if noted.ended is None and noted.mark <= seen.oldest:
                        self._pending[number] = noted._replace(ended=seen.place)
            while self._pending and self._pending[0].head <= self.sealed:
                self._pending.popleft()
            while len(self._pending) > _PENDING:
                # The one behind it seals both.
                del self._pending[1]


_sealers: process.Memory[str, Sealer] = process.Memory()


def sealer(using: str) -> Sealer:
    """Return this process's sealer of a database alias."""
    return _sealers.setdefault(using, Sealer())


@operation
def read(
    topic: str,
    *,
    project: str = "",
    after: int = 0,
    size: int = 256,
    skip_nodes: Sequence[str] = (),
    timeline: int | None = None,
    reset: bool = False,
    seals: Sealer | None = None,
    most_bytes: int = MAX_PAGE_BYTES,
) -> Statements[LogPage]:
    """Read records of a log, or jobs of a queue (leased ones too), in order of their numbers.

    No record is ever skipped because it was committed late. A slow writer anywhere in the cluster can delay the reader.
    Inside a transaction that has written, only what was sealed before can be read.
    """
    check_place(project, topic)
    check_integer(after, "the number to read after", 0, MAX_SEQ)
    if timeline is not None:
        check_integer(timeline, "the timeline", 1, MAX_TIMELINE)
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    if len(check_list(skip_nodes, "the nodes to leave out")) > MAX_NODES:
        raise BatchTooLarge(f"a read leaves out the records of at most {MAX_NODES} nodes; there are {len(skip_nodes)}.")
    seals = seals or Sealer()
    nodes = arrays.texts([check_node(node) for node in skip_nodes])
    bounds = {"take": LOOK if skip_nodes else size + 1, "look": LOOK, "bytes": most_bytes}
    params = {"project": project, "topic": topic, "after": after, "size": size, "nodes": nodes, **bounds}
    rows = yield "topic_read", {**params, **seals.parameters()}
    if rows and _topic(rows).due:
        yield from expire([_topic(rows).id])
        rows = yield "topic_read", {**params, **seals.parameters()}
    if not rows:
        raise QueueNotFound(topic, project)
    found, seen = _topic(rows), SealedView._make(rows[0][:_TOPIC])
    seals.note(seen)
    if after > seen.last or (timeline is not None and timeline != seen.timeline):
        # What failovers from the reader's timeline to the server's cannot have lost.
        answer = yield "timeline_kept", {"timeline": timeline, "current": seen.timeline}
        kept = next((sealed or 0 for sealed, _ in answer), 0)
        if after > min(kept, seen.last):
            if not reset:
                raise LogTruncated(topic, after, kept, seen.timeline)
            how: dict[str, Any] = {"size": size, "skip_nodes": skip_nodes, "seals": seals, "most_bytes": most_bytes}
            again = read(topic, project=project, after=kept, **how)
            return (yield from again)._replace(reset_to=kept)
    # Without a record the one row has nulls in its place.
    fitting = [TopicRecord._make(row[_RECORD:]) for row in rows if row[_FITS]]
    records = yield from payloads.page_steps(fitting, most_bytes)
    cut = len(records) < sum(row[_FITS] is not None for row in rows)
    full = cut or len(records) == size
    more = found.more or full
    cursor = records[-1].seq if full else max(after, found.looked_at or 0)
    gap = None
    end = min(found.gap_to or 0, cursor if more else seen.visible_seq)
    if end > after:
        cursor = max(cursor, end)
        gap = _gap(found, max(after + 1, found.gap_from), end)
    sealed = seen.visible_seq >= found.head_seq
    return LogPage(found.id, records, cursor, found.head_seq, sealed, more, gap, seen.timeline)


@operation
def note_timeline() -> Statements[bool]:
    """Record the server's WAL position, which proves what a standby has; return whether the rows were copied here."""
    ((copied,),) = yield "timeline_note", {"first": False}
    if copied is None:
        if (yield from above_horizon()) is not None:
            return True
        yield "timeline_note", {"first": True}
    return bool(copied)


def _topic(rows: Rows) -> _Topic:
    return _Topic._make(rows[0][_TOPIC:_FITS])


def _gap(topic: _Topic, start: int, end: int) -> Gap | None:
    """Return the part of a topic's gap between two numbers, and about how many records it had."""
    if start > end:
        return None
    share = (end - start + 1) / ((topic.gap_to or 0) - topic.gap_from + 1)
    missed = min(round(topic.gap_count * share), topic.gap_count, end - start + 1)
    return Gap(start, end, topic.gap_reason, max(1, missed))


@operation
def seal(seals: Sealer) -> Statements[int]:
    """Look which numbers are sealed by now; return the highest that a read could tell."""
    ((*numbers, alone),) = yield "topic_seal", seals.parameters()
    seen = SealedView._make((*numbers, False))
    seals.note(seen)
    # A read that is a transaction of its own sees to it that what it tells is on disk.
    return seen.sealed if alone else seen.visible_seq
