"""Claims that wait for each other and are served together, so that no claimer drains the queue.

The first claim opens a window of the queue's ``claim_jitter_ms``; every claim of the queue that comes in while it is
open, in whatever process, is in the cohort. When it closes, whoever comes first deals: one statement under a lock hands
out the ready jobs round-robin. The others find what they were dealt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ...exceptions import InvalidOption
from .. import arrays
from ..dead.deadletter import spent_steps
from ..flow.advance import advance_steps, return_steps
from ..limits import MAX_BATCH, check_count, check_list, check_node, check_place, clamp_lease
from ..operation import BEGIN, Statements, operation
from ..queues.queues import find
from ..rows import LeasedJob, Release
from ..topics.topics import TopicLook
from .floor import TURNS
from .settle import release
from .sweep import recover_steps

#: Jobs of one deal.
MOST = 10_000
#: Bytes of the payloads of one claimer's jobs, and of a whole deal; the first job always fits.
BYTES, ALL_BYTES = 16_777_216, 67_108_864
MAX_CLAIMERS = 5_000

#: The column of ``deal`` with a claimer's place; its job comes behind.
_PLACE = 4


class Claimer(NamedTuple):
    """A claimer: its node, most jobs, length of the lease (``None``: the queue's), and stream."""

    node: str
    size: int
    lease_ms: int | None = None
    connection: str | None = None


class Dealt(NamedTuple):
    """The jobs dealt to each claimer, by its place in the cohort, and the number of dead-lettered ones."""

    hands: dict[int, list[LeasedJob]]
    aside: int = 0


class Joined(NamedTuple):
    """Places in a cohort, and the milliseconds until its window closes."""

    waiters: list[int]
    wait_ms: float


def _check(claimers: Sequence[Claimer]) -> list[Claimer]:
    if len(check_list(claimers, "the claimers")) > MAX_CLAIMERS:
        raise InvalidOption(f"one deal serves at most {MAX_CLAIMERS} claimers; there are {len(claimers)}.")
    checked = []
    for node, size, lease_ms, connection in claimers:
        size = check_count(size, "the number of jobs to claim", MAX_BATCH)  # noqa: PLW2901
        checked.append(Claimer(check_node(node), size, clamp_lease(lease_ms), connection))
    return checked


def _columns(claimers: Sequence[Claimer]) -> dict[str, Any]:
    return {
        "nodes": arrays.texts(claimer.node for claimer in claimers),
        "sizes": arrays.integers(claimer.size for claimer in claimers),
        "leases": arrays.integers(claimer.lease_ms for claimer in claimers),
        "connections": arrays.texts(claimer.connection for claimer in claimers),
    }


class _Hands:
    """Jobs dealt to each claimer so far. ``shown``: the claimers whose jobs the answer contains; ``most``: bytes."""

    def __init__(
        self, claimers: Sequence[Claimer], shown: Sequence[bool], most: tuple[int, int] = (BYTES, ALL_BYTES)
    ) -> None:
        self.claimers = claimers
        self.bounds = {"most": MOST, "bytes": most[0], "all_bytes": most[1]}
        self.shown = shown
        self.jobs: list[list[LeasedJob]] = [[] for _ in claimers]
        self.tokens: list[int | None] = [None] * len(claimers)
        self.aside = 0

    def open_sizes(self) -> list[Claimer]:
        """The claimers with the number that each may still get, where it is known."""
        dealt = zip(self.claimers, self.jobs, strict=True)
        return [claimer._replace(size=claimer.size - len(jobs)) for claimer, jobs in dealt]


def _deal(project: str, queue: str, hands: _Hands, *, force: bool) -> Statements[tuple[int, int, int]]:
    """Deal once; return the due flags, the number of exhausted jobs, the number dealt."""
    claimers = {**_columns(hands.open_sizes()), "shown": arrays.flags(hands.shown)}
    rows = yield "deal", {"project": project, "queue": queue, **claimers, **hands.bounds, "force": force}
    (due, spent, dealt, tokens, *_), *_ = rows
    hands.tokens = [token or before for token, before in zip(tokens, hands.tokens, strict=True)]
    for row in rows:
        place = row[_PLACE]
        if place is not None:
            hands.jobs[place - 1].append(LeasedJob._make(row[_PLACE + 1 :]))
    return due, spent, dealt


def _bring_back(queue_id: int, due: int, hands: _Hands) -> Statements[Iterable[int]]:
    """Recover due jobs; return those that their rate admits at this moment."""
    hands.aside += yield from recover_steps({queue_id: due})
    if due & TURNS:
        return (yield from advance_steps([queue_id], sum(claimer.size for claimer in hands.open_sizes()))).rated
    return ()


def _deal_until_full(project: str, queue: str, hands: _Hands) -> Statements[None]:
    """Deal, recover due jobs, dead-letter exhausted ones, and deal the missing number, as a claim does."""
    due, spent, _ = yield from _deal(project, queue, hands, force=False)
    if not due and not spent:
        return
    info = yield from find(project, queue)
    if info is None:
        return
    rated = yield from _bring_back(info.id, due, hands)
    for _ in range(20):
        if spent:
            hands.aside += yield from spent_steps([info.id])
        if not any(claimer.size for claimer in hands.open_sizes()):
            break
        _, spent, dealt = yield from _deal(project, queue, hands, force=True)
        if not spent or not dealt:
            break
    yield from return_steps(rated, list(chain(*hands.jobs)))


def _deal_once(project: str, queue: str, found: TopicLook, hands: _Hands) -> Statements[None]:
    """Deal one claim to each: those of other processes find no more than one. Poison is moved aside before."""
    if found.moves:
        hands.aside += yield from spent_steps([found.id])
    due, spent, _ = yield from _deal(project, queue, hands, force=False)
    if due:
        rated = yield from _bring_back(found.id, due, hands)
        if found.moves:
            hands.aside += yield from spent_steps([found.id])
        _, spent, _ = yield from _deal(project, queue, hands, force=True)
        yield from return_steps(rated, list(chain(*hands.jobs)))
    if spent:  # of queues that move nothing, too: a job may have a limit of its own
        hands.aside += yield from spent_steps([found.id])


@operation
def deal(
    queue: str, claimers: Sequence[Claimer], *, project: str = "", most: tuple[int, int] = (BYTES, ALL_BYTES)
) -> Statements[list[list[LeasedJob]]]:
    """Lease ready jobs to several claimers at once, round-robin in the order given, each up to its size.

    ``most`` bounds the bytes of one claimer's payloads, of which the first always fits, and of all of them.
    """
    check_place(project, queue)
    hands = _Hands(_check(claimers), [True] * len(claimers), most)
    if claimers:
        yield from _deal_until_full(project, queue, hands)
    return hands.jobs


@operation
def join(queue_id: int, jitter_ms: int, claimers: Sequence[Claimer]) -> Statements[Joined]:
    """Join or open the cohort of a queue; when its window closes ``take``, else ``deal_cohort``; or ``leave``."""
    asked = {"queue": queue_id, "jitter_ms": jitter_ms, **_columns(_check(claimers))}
    ((waiters, wait_ms),) = yield "cohort_join", asked
    return Joined(list(waiters), max(wait_ms, 0.0))


@operation
def take(waiters: Sequence[int]) -> Statements[dict[int, list[LeasedJob]]]:
    """Take the jobs that were dealt to waiters; a waiter that got none yet is not in the answer."""
    rows = yield "cohort_take", {"ids": arrays.integers(waiters)}
    found: dict[int, list[LeasedJob]] = {}
    for waiter, seq, *rest in rows:
        jobs = found.setdefault(waiter, [])
        if seq is not None:
            jobs.append(LeasedJob(seq, *rest))
    return found


@operation
def deal_cohort(queue: str, found: TopicLook, waiters: Sequence[int], *, project: str = "") -> Statements[Dealt]:
    """Deal to the whole cohort of a queue, unless another process just did."""
    yield BEGIN, {}
    yield "cohort_lock", {"queue": found.id}
    taken = yield from take(waiters)
    own = {waiter for waiter in waiters if waiter not in taken}
    if not own:
        return Dealt(taken)
    rows = yield "cohort_open", {"queue": found.id, "size": MAX_CLAIMERS}
    ids = [waiter for waiter, *_ in rows]
    hands = _Hands([Claimer._make(who) for _, *who in rows], [waiter in own for waiter in ids])
    if ids:
        yield from _deal_once(project, queue, found, hands)
    marks = {"ids": arrays.integers(ids), "claims": arrays.integers(hands.tokens), "own": arrays.integers(own)}
    yield "cohort_mark", marks
    dealt = dict(zip(ids, hands.jobs, strict=True))
    return Dealt({**taken, **{waiter: dealt.get(waiter, []) for waiter in own}}, hands.aside)


@operation
def leave(waiters: Sequence[int], *, project: str = "") -> Statements[int]:
    """Leave a cohort and release its jobs; return their number."""
    rows = yield "cohort_leave", {"ids": arrays.integers(waiters)}
    released = 0
    for node, token, seqs in rows:
        settled = yield from release([Release(seq, token, 0) for seq in seqs], node, project=project, unstarted=True)
        released += len(settled.ok)
    return released
