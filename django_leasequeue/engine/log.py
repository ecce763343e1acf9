"""Reading a topic by number, without leasing and without gaps (DESIGN section 6)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from .. import conf
from ..enums import QueueType
from ..exceptions import BatchTooLarge, QueueNotFound
from . import arrays, codec
from .limits import MAX_SEQ, check_count, check_integer, check_list, check_node, check_place
from .operation import Steps, operation
from .sweep import expire_steps

#: Numbers that one read looks at where others' records lie between, or records are left out.
LOOK = 20_000
#: Bytes of the payloads of one page; the first record always fits.
MAX_PAGE_BYTES = 16_777_216
#: Nodes whose records one read leaves out.
MAX_NODES = 100
#: Numbers that a sealer remembers while transactions hold them open.
_PENDING = 64


class Record(NamedTuple):
    """One record of a topic. JSON columns stay text until somebody asks."""

    seq: int
    created_at: datetime
    tag: str | None
    origin: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None

    @property
    def data(self) -> Any:
        """The payload."""
        return None if self.data_json is None else codec.loads(self.data_json)

    @property
    def meta(self) -> Any:
        """The producer's metadata."""
        return None if self.meta_json is None else codec.loads(self.meta_json)


class Gap(NamedTuple):
    """What a reader missed: records from ``start`` to ``end`` that a ``cap`` or the ``ttl`` took (spec/topics R2)."""

    start: int
    end: int
    reason: str
    missed: int


class Page(NamedTuple):
    """One read of a topic.

    Read on from ``cursor``. ``head_seq`` is the highest number that the topic has given so far; ``settled`` whether
    it could be read up to there: while it is not, a transaction that runs may still add a record below.
    """

    queue_id: int
    records: list[Record]
    cursor: int
    head_seq: int
    settled: bool
    more: bool
    gap: Gap | None


class Sealer:
    """What this process knows of sealed numbers: up to where no transaction can add a record any more.

    A number is noted together with a transaction id that is drawn after it; when the oldest running transaction has
    reached that id, everybody who could hold a lower number has ended. One object per database, for all readers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sealed = 0
        self._pending: deque[tuple[int, int]] = deque()

    @property
    def sealed(self) -> int:
        """The highest number known to be sealed."""
        return self._sealed

    def parameters(self) -> dict[str, Any]:
        """Return what a read has to be told."""
        with self._lock:
            pending = list(self._pending)
            return {
                "sealed": self._sealed,
                "known": pending[-1][0] if pending else self._sealed,
                "heads": arrays.integers(head for head, _ in pending),
                "marks": arrays.integers(mark for _, mark in pending),
            }

    def note(self, head: int, mark: int | None, oldest: int, sealed: int) -> None:
        """Remember what a read has seen."""
        with self._lock:
            self._sealed = max(self._sealed, sealed)
            if mark is not None and oldest < mark and (not self._pending or head > self._pending[-1][0]):
                self._pending.append((head, mark))
            while self._pending and (self._pending[0][0] <= self._sealed or self._pending[0][1] <= oldest):
                self._sealed = max(self._sealed, self._pending.popleft()[0])
            while len(self._pending) > _PENDING:
                # The one behind it seals both.
                del self._pending[1]

    def forget(self) -> None:
        """Know nothing: another database stands behind the alias now (tests)."""
        with self._lock:
            self._sealed = 0
            self._pending.clear()


_sealers: dict[str, Sealer] = {}


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
    seals: Sealer | None = None,
) -> Steps[Page]:
    """Read records of a log, or jobs of a queue (leased ones too), in order of their numbers.

    No record is ever skipped because it was committed late. A slow writer anywhere in the cluster can delay the reader.
    Inside a transaction that has written, only what was sealed before can be read.

    Args:
        topic: its name.
        project: the tenant.
        after: the cursor: the last number that was read, 0 for the beginning.
        size: records of the page, 1 to ``MAX_PAGE``; a page may be shorter (16 MiB of payload) and still have more
            behind it.
        skip_nodes: leave out what these nodes wrote; the cursor moves past it. At most 100.
        seals: this process's memory of sealed numbers.

    Returns:
        The page. Of what a cap or the TTL took away behind ``after`` it tells once, in ``gap``.

    Raises:
        QueueNotFound: there is no such topic.
        InvalidOption, BatchTooLarge: an argument is not allowed.
    """
    check_place(project, topic)
    check_integer(after, "the number to read after", 0, MAX_SEQ)
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    if len(check_list(skip_nodes, "the nodes to leave out")) > MAX_NODES:
        raise BatchTooLarge(f"a read leaves out the records of at most {MAX_NODES} nodes; there are {len(skip_nodes)}.")
    seals = seals or Sealer()
    params = {
        "project": project,
        "topic": topic,
        "after": after,
        "size": size,
        "nodes": arrays.texts([check_node(node) for node in skip_nodes]),
        "look": LOOK,
        "bytes": MAX_PAGE_BYTES,
        "cap": conf.settings.COUNT_CAP,
    }
    rows = yield "topic_read", {**params, **seals.parameters()}
    if rows and rows[0][13]:
        yield from expire_steps([rows[0][0]])
        rows = yield "topic_read", {**params, **seals.parameters()}
    if not rows:
        raise QueueNotFound(topic, project)
    queue_id, kind, head, gap_from, gap_to, reason, count, last, mark, oldest, sealed, looked, more, *_ = rows[0]
    seals.note(last, mark, oldest, sealed)
    fitting = [row for row in rows if row[15] is not None and row[14]]
    records = [Record._make(row[15:]) for row in fitting]
    cut = rows[-1][15] is not None and len(records) < len(rows)
    if cut or len(records) == size:
        cursor, more = records[-1].seq, True
    elif kind == QueueType.QUEUE and not more:
        # There is nothing else up to the sealed number: do not look at others' jobs again.
        cursor = max(after, sealed)
    else:
        cursor = max(after, looked or 0)
    gap = None
    if gap_to is not None and gap_to > after:
        end = min(gap_to, cursor) if more else gap_to
        cursor = max(cursor, end)
        gap = _gap(max(after + 1, gap_from), end, gap_from, gap_to, reason, count)
    return Page(queue_id, records, cursor, head, sealed >= head, more, gap)


def _gap(start: int, end: int, low: int, high: int, reason: str, count: int) -> Gap | None:
    if start > end:
        return None
    share = (end - start + 1) / (high - low + 1)
    return Gap(start, end, reason, max(1, min(round(count * share), count, end - start + 1)))


@operation
def seal(seals: Sealer) -> Steps[int]:
    """Look which numbers are sealed by now; return the highest."""
    rows = yield "topic_seal", seals.parameters()
    seals.note(*rows[0])
    return seals.sealed
