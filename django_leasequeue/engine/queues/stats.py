"""Figures of queues: exact up to a cap, sampled beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from ...exceptions import QueueNotFound
from .. import arrays
from ..limits import MAX_PROJECT_BYTES, check_count, check_list, check_place, check_text
from ..operation import Statements, operation
from .queues import require

#: Pages of each of the narrow tables that one sample reads at most.
SAMPLE_PAGES = 2_000
#: Queues whose figures are taken in one statement.
PAGE = 200
#: Entries of a kind that are counted of each of several queues at first, and then of all together that have more.
FEW, MANY = 1_000, 1_000_000


class Counts(NamedTuple):
    """Figures of one queue.

    ``ready`` holds what a claim could take now: expired leases and due delayed jobs count, swept or not, and messages
    past their TTL do not. ``exact`` is false when a figure is above ``cap`` (of one queue ``COUNT_CAP``, of many large
    ones less): it is then the newest sample's (``sampled_at``), and above the cap in any case. ``oldest_at`` is when
    the oldest job was made among those that come next, one of each priority. ``waiting`` are those of the delayed that
    a limit or a workflow holds, up to one more than ``cap``. ``claimed_at``: when somebody asked for jobs last, whether
    there were any, to the minute; ``None``: nobody has.
    """

    queue_id: int
    project: str
    queue: str
    type: str
    paused_at: datetime | None
    ready: int
    delayed: int
    in_flight: int
    dead: int
    records: int
    dead_lettered: int
    oldest_at: datetime | None
    exact: bool
    sampled_at: datetime | None
    waiting: int = 0
    cap: int = 0
    claimed_at: datetime | None = None


class Totals(NamedTuple):
    """Figures of a project: the sums of its queues' newest samples.

    ``sampled_at`` is the newest of them (of queues that did not change since, older ones hold); ``None`` while a queue
    has no sample yet.
    """

    project: str
    queues: int
    ready: int
    delayed: int
    in_flight: int
    dead: int
    records: int
    dead_lettered: int
    sampled_at: datetime | None


class Estimate(NamedTuple):
    """Estimated figures of one queue."""

    ready: int
    delayed: int
    leased: int
    dead: int
    records: int


NOTHING = Estimate(0, 0, 0, 0, 0)


class _Counted(NamedTuple):
    """A row of ``queue_counts``: what was counted (each up to the cap), and the queue's newest sample."""

    queue_id: int
    project: str
    queue: str
    type: str
    paused_at: datetime | None
    dead_lettered: int
    ready: int
    expired: int
    delayed: int
    due: int
    waiting: int
    leased: int
    over: int
    claims_read: int
    dead: int
    dead_read: int
    records: int
    oldest_at: datetime | None
    claimed_at: datetime | None
    sampled_at: datetime | None
    sampled: Estimate

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> _Counted:
        """Return a row of the statement, whose last columns are the sample."""
        return cls._make((*row[:_SAMPLED], Estimate(*row[_SAMPLED:])))

    def exact(self, cap: int) -> bool:
        """Whether nothing lies behind the cap that it was counted up to."""
        dead = self.dead_read if self.dead else 0
        return max(self.ready, self.delayed, self.records, self.claims_read, dead) <= cap


_SAMPLED = _Counted._fields.index("sampled")


class Estimates(NamedTuple):
    """Estimated figures by queue, and the queues that are gone but still have jobs (those that were met)."""

    queues: dict[int, Estimate]
    orphans: list[int]


def _beyond(counted: int, over: bool, estimate: int) -> int:
    """Return the figure: what was counted, unless it goes on behind the cap and the estimate knows of more."""
    return max(counted, estimate) if over else counted


def _merge(row: _Counted, cap: int, known: Estimate, sampled_at: datetime | None) -> Counts:
    ready = max(row.ready - row.expired, 0) + row.due + row.over
    claims_over, dead_over = row.claims_read > cap, row.dead_read > cap and row.dead > 0
    return Counts(
        queue_id=row.queue_id,
        project=row.project,
        queue=row.queue,
        type=row.type,
        paused_at=row.paused_at,
        ready=_beyond(ready, row.ready > cap or row.due > cap, known.ready),
        delayed=_beyond(row.delayed - row.due, row.delayed > cap, known.delayed),
        in_flight=_beyond(row.leased - row.over, claims_over, known.leased),
        dead=_beyond(row.dead, dead_over, known.dead),
        records=_beyond(row.records, row.records > cap, known.records),
        dead_lettered=row.dead_lettered,
        oldest_at=row.oldest_at,
        exact=row.exact(cap),
        sampled_at=sampled_at,
        waiting=row.waiting,
        cap=cap,
        claimed_at=row.claimed_at,
    )


def _read(
    project: str,
    names: Sequence[str],
    ids: Sequence[int],
    cap: int | None = None,
    budget: int = MANY,
    estimates: dict[int, Estimate] | None = None,
) -> Statements[list[Counts]]:
    """Count in queues; what lies behind a cap is as estimated, or as in the newest sample.

    Without a ``cap`` those of several queues that have many jobs share a ``budget`` of entries to be counted.
    """
    most = conf.settings.COUNT_CAP
    first = cap or (most if len(names) + len(ids) <= 1 else min(FEW, most))
    params = {"project": project, "names": arrays.texts(names), "ids": arrays.integers(ids), "cap": first}
    found = {row[0]: (_Counted.of(row), first) for row in (yield "queue_counts", params)}
    large = [row.queue_id for row, _ in found.values() if not row.exact(first)]
    again = min(most, budget // max(len(large), 1))
    if cap is None and large and again > first:
        params = {"project": "", "names": "{}", "ids": arrays.integers(large), "cap": again}
        found |= {row[0]: (_Counted.of(row), again) for row in (yield "queue_counts", params)}
    if estimates is not None:
        return [_merge(row, cap, estimates.get(row.queue_id, NOTHING), None) for row, cap in found.values()]
    return [_merge(row, cap, row.sampled if row.sampled_at else NOTHING, row.sampled_at) for row, cap in found.values()]


@operation
def counts(queue: str, *, project: str = "") -> Statements[Counts]:
    """Count the jobs of one queue or log: exact up to ``COUNT_CAP`` each, beyond it from the newest sample.

    Reads as many index entries of a state at most, whatever the backlog.
    """
    check_place(project, queue)
    found = yield from _read(project, [queue], [])
    if not found:
        raise QueueNotFound(queue, project)
    return found[0]


@operation
def counts_of(queues: Sequence[str], *, project: str = "") -> Statements[dict[str, Counts]]:
    """Count the jobs of the first ``MAX_PAGE`` of these queues of one project; names not there are left out."""
    check_place(project, *check_list(queues, "the names of queues"))
    found = yield from _read(project, list(dict.fromkeys(queues))[: conf.settings.MAX_PAGE], [])
    return {counts.queue: counts for counts in found}


@operation
def counts_by_id(
    queue_ids: Sequence[int], *, cap: int | None = None, budget: int = MANY
) -> Statements[dict[int, Counts]]:
    """Count the jobs of several queues of any project, by id, as ``_read`` does; those not there are left out."""
    found = yield from _read("", [], queue_ids[: conf.settings.MAX_PAGE], cap, budget)
    return {counts.queue_id: counts for counts in found}


@operation
def totals(*, project: str | None = None, after: str | None = None, size: int = 100) -> Statements[list[Totals]]:
    """Sum the newest samples of the queues of one project, or of each project (behind ``after``, a page at a time)."""
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    for place in (project, after):
        if place is not None:
            check_text(place, "the project", MAX_PROJECT_BYTES, 0)
    rows = yield "stat_totals", {"project": project, "after": after, "size": size}
    return [Totals._make(row) for row in rows]


@operation
def estimate() -> Statements[Estimates]:
    """Estimate the jobs of all queues: from at most 2,000 pages of each narrow table, read at random, and all claims.

    The cost does not grow with the number of jobs. With n of a queue's jobs on those pages the estimate is off by about
    1/sqrt(n): some percent for a queue that holds a fair share of a large table. Exact while there are no more pages.
    """
    rows = yield "stat_pages", {"pages": SAMPLE_PAGES}
    figures = {queue_id: Estimate(*figures) for queue_id, _, *figures in rows}
    return Estimates(figures, [queue_id for queue_id, there, *_ in rows if not there])


@operation
def sample_page(estimates: Estimates, after: int = 0) -> Statements[int | None]:
    """Write a ``QueueStat`` of the next 200 queues: of those whose figures changed, of others every ten minutes.

    A figure that lies behind what ``_read`` counts is as estimated. Return where the next page begins.
    """
    found = yield "queue_page", {"after": after, "size": PAGE}
    ids = [queue_id for (queue_id,) in found]
    taken = (yield from _read("", [], ids, estimates=estimates.queues)) if ids else []
    params = {
        "queues": arrays.integers(counts.queue_id for counts in taken),
        "ready": arrays.integers(counts.ready for counts in taken),
        "delayed": arrays.integers(counts.delayed for counts in taken),
        "leased": arrays.integers(counts.in_flight for counts in taken),
        "dead": arrays.integers(counts.dead for counts in taken),
        "records": arrays.integers(counts.records for counts in taken),
        "oldest": arrays.times(counts.oldest_at for counts in taken),
    }
    yield "stat_insert", params
    return ids[-1] if len(ids) == PAGE else None


class Waiting(NamedTuple):
    """A job in a snapshot of a queue. ``node`` and all behind it are set where it is leased (since ``renewed_at``)."""

    seq: int
    key: str | None
    name: str | None
    created_at: datetime
    deliveries: int
    node: str | None
    claim: int | None
    deadline: datetime | None
    renewed_at: datetime | None


class QueueState(NamedTuple):
    """A snapshot of a queue at one instant: what is next, in order, and what is in progress, the first to end in front.

    ``version`` grows with every transaction that ends in the database server, and with what the caller's own open
    transaction changes: two snapshots with the same version are the same, as far as time alone changes nothing.
    ``oldest_at`` is when the oldest of the ready jobs shown was made; ``more`` is whether there are jobs of either kind
    beyond those shown.
    """

    version: int
    at: datetime
    ready: list[Waiting]
    in_progress: list[Waiting]
    oldest_at: datetime | None
    more: bool


@operation
def state(queue: str, *, project: str = "", size: int = 100) -> Statements[QueueState]:
    """Return a snapshot of a queue, cheap and without locks: what is next, and what is in progress.

    ``size``: jobs of each kind, at most ``MAX_PAGE``. For how many there are, see ``counts``.
    """
    check_place(project, queue)
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    rows = yield "queue_state", {"project": project, "queue": queue, "size": size + 1}
    # The first row has the version in place of a job's number, and the time of the look.
    (_, head), *jobs = [(state, Waiting(*job)) for state, *job, _ in rows]
    if not jobs:
        yield from require(project, queue, leases=False)
    ready = [job for state, job in jobs if state == JobState.READY]
    leased = [job for state, job in jobs if state == JobState.LEASED]
    more = len(ready) > size or len(leased) > size
    del ready[size:], leased[size:]
    oldest_at = min((job.created_at for job in ready), default=None)
    return QueueState(head.seq, head.created_at, ready, leased, oldest_at, more)
