"""Reading dead letters: groups, pages, previews. Every call reads a bounded number of rows, however many there are.

What indexes do not answer (text, payload, task, tag, deliveries) is searched for among the newest letters, for a short
time; an answer says how far the search came, and the next call goes on there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ... import conf
from .. import arrays
from ..limits import check_count
from ..operation import Steps, operation
from .filter import DeadFilter
from .search import (
    EPOCH,
    MAX_SCAN,
    DeadRow,
    Figures,
    Match,
    Seen,
    decode_place,
    encode_place,
    from_micros,
    match_steps,
    micros,
    queue_steps,
    row_steps,
    search_steps,
    window_steps,
)

#: Groups that one call looks at.
MAX_GROUPS = 1_000
#: Letters that a breakdown is made of.
SAMPLE = 2_000
#: Bars of a sparkline, and what one of them counts at most.
BUCKETS, BUCKET_CAP = 24, 200
#: Letters of a group that a first look counts, and a second one where time is short.
FEW, SOME = 100, 1_000
#: Seconds that a second look may take; what finding the bars of one group costs, in entries.
PATIENCE, PROBES = 0.15, 150


class DeadPage(NamedTuple):
    """A page of letters, the newest death first.

    ``next`` is the cursor of the next page, ``None`` at the end. ``looked_at`` is how many letters were looked at for
    it: more than there are where the filter needs a search.
    """

    rows: list[DeadRow]
    next: str | None
    looked_at: int


class Group(NamedTuple):
    """Dead letters of one queue with one fingerprint.

    ``letters`` is exact unless ``capped`` tells that there are more (than ``COUNT_CAP``, or than fewer where counting
    was slow); ``bars`` are counts over time, each at most ``BUCKET_CAP`` + 1.
    """

    queue_id: int
    project: str
    queue: str
    fingerprint: str
    letters: int
    capped: bool
    first_at: datetime
    last_at: datetime
    bars: list[int]
    sample_seq: int | None
    task: str | None
    error_type: str | None
    error: str | None


class Groups(NamedTuple):
    """A page of groups, the newest death first.

    ``bars_from`` and ``bars_to`` bound the sparklines. ``complete`` is false when there are more groups (or, for a
    search, more letters) than one call looks at: the rest needs a narrower filter. ``left`` counts the groups of this
    page and of those behind it.
    """

    groups: list[Group]
    next: str | None
    left: int
    complete: bool
    bars_from: datetime
    bars_to: datetime


class Preview(NamedTuple):
    """What a filter matches, before something is done with it.

    ``matches`` is exact if ``capped`` is false; otherwise there may be more. The breakdowns are the largest parts of
    the newest ``looked_at`` letters; ``at`` is the database's time of the look: what dies later is not part of it.
    """

    at: datetime
    matches: int
    capped: bool
    looked_at: int
    queues: list[tuple[str, int]]
    tasks: list[tuple[str, int]]
    errors: list[tuple[str, int]]
    samples: list[DeadRow]


@operation
def dead_page(
    wanted: DeadFilter, *, after: str | None = None, size: int = 50, payload: bool = False
) -> Steps[DeadPage]:
    """Return a page of dead letters, the newest death first.

    Args:
        wanted: the filter.
        after: ``next`` of the page before.
        size: letters of the page, at most ``MAX_PAGE``; a page may be shorter and still have a ``next``.
        payload: whether data, meta and errors are wanted.

    Raises:
        InvalidOption: the cursor is not one.
    """
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    found = decode_place(after, (int, int))
    place = None if found is None else (from_micros(found[0]), found[1])
    queues = yield from queue_steps(wanted)
    if wanted.indexed:
        window = yield from window_steps(wanted, sorted(queues), place, size)
        seqs = [seq for seq, _ in window.letters]
        end = (window.letters[-1][1], seqs[-1]) if window.more else None
        looked_at = len(seqs)
    else:
        search = yield from search_steps(wanted, sorted(queues), place, enough=size + 1, limit=MAX_SCAN)
        seqs = [match.seq for match in search.rows[:size]]
        end = (search.rows[size - 1].dead_at, seqs[-1]) if len(search.rows) > size else search.last
        looked_at = search.looked_at
    rows = yield from row_steps(seqs, payload=payload)
    return DeadPage(rows, None if end is None else encode_place(micros(end[0]), end[1]), looked_at)


@operation
def dead_rows(seqs: Sequence[int], *, payload: bool = False) -> Steps[list[DeadRow]]:
    """Return these letters; those that are no dead letters (any more) are left out."""
    return (yield from row_steps(seqs, payload=payload))


@operation
def dead_groups(wanted: DeadFilter, *, after: str | None = None, size: int = 25) -> Steps[Groups]:
    """Return a page of groups of dead letters, the newest death first.

    Args:
        wanted: the filter. A search (``wanted.indexed`` is false) groups the newest ``MAX_SCAN`` letters only.
        after: ``next`` of the page before.
        size: groups of the page, at most 100.

    Raises:
        InvalidOption: the cursor is not one.
    """
    size = check_count(size, "size", 100, 1)
    place = decode_place(after, (int, int, str))
    ((now,),) = yield "server_time", {}
    queues = yield from queue_steps(wanted)
    if wanted.indexed:
        seen, complete = yield from _scan_groups(wanted, queues)
        found: dict[tuple[int, str], Group] = {}
    else:
        found, complete = yield from _search_groups(wanted, queues)
        seen = [Seen(group.queue_id, group.fingerprint, group.first_at, group.last_at) for group in found.values()]
    low = wanted.since or min((item.first_at for item in seen), default=now - timedelta(hours=24))
    high = max([min(now, wanted.until or now), *(item.last_at for item in seen)])
    seen.sort(key=Seen.place)
    if place is not None:
        mark = (-place[0], place[1], place[2])
        seen = [item for item in seen if item.place() > mark]
    chosen, rest = seen[:size], len(seen) > size
    if wanted.indexed:
        groups = yield from _figures(wanted, queues, chosen, low, high)
    else:
        groups = [found[item.queue_id, item.fingerprint] for item in chosen]
    end = chosen[-1] if rest else None
    after = None if end is None else encode_place(micros(end.last_at), end.queue_id, end.fingerprint)
    return Groups(groups, after, len(seen), complete, low, high)


def _scan_groups(wanted: DeadFilter, queues: dict[int, tuple[str, str]]) -> Steps[tuple[list[Seen], bool]]:
    if not queues:
        return [], True
    rows = yield (
        "dead_groups",
        {
            "queues": arrays.integers(sorted(queues)),
            "fingerprint": wanted.fingerprint,
            "since": wanted.since,
            "until": wanted.until,
            "size": MAX_GROUPS + 1,
        },
    )
    seen = [Seen._make(row) for row in rows]
    return seen[:MAX_GROUPS], not seen or seen[0].looked_at <= MAX_GROUPS


def _figures(
    wanted: DeadFilter, queues: dict[int, tuple[str, str]], chosen: Sequence[Seen], low: datetime, high: datetime
) -> Steps[list[Group]]:
    if not chosen:
        return []
    cap = conf.settings.COUNT_CAP
    span = {
        "since": wanted.since,
        "until": wanted.until,
        "low": low,
        "step": (micros(high) - micros(low)) // BUCKETS + 1,
        "buckets": BUCKETS,
    }
    found: dict[tuple[int, str], Group] = {}
    part, limits, rate = list(chosen), (min(cap, FEW), FEW // BUCKETS), 0.0
    while part:
        began = time.monotonic()
        rows = yield (
            "dead_group_figures",
            {
                **span,
                "queues": arrays.integers([item.queue_id for item in part]),
                "fingerprints": arrays.texts([item.fingerprint for item in part]),
                "cap": limits[0],
                "bucket_cap": limits[1],
            },
        )
        figures = [Figures._make(row) for row in rows]
        for item, row in zip(part, figures, strict=True):
            letters, capped = min(row.letters, limits[0]), row.letters > limits[0]
            found[item.queue_id, item.fingerprint] = Group(
                item.queue_id, *queues[item.queue_id], item.fingerprint, letters, capped, item.first_at, item.last_at,
                list(row.bars), row.sample_seq, row.task, row.error_type, row.error,
            )  # fmt: skip
        if limits[0] >= min(cap, SOME):
            break
        # The first look tells what an entry costs: little once vacuum has been there, a visit to its row before that.
        rate = (time.monotonic() - began) / (sum(row.letters + sum(row.bars) + PROBES for row in figures) or 1)
        part = [
            item
            for item, row in zip(part, figures, strict=True)
            if row.letters > limits[0] or max(row.bars) > limits[1]
        ]
        for limits in ((cap, BUCKET_CAP), (min(cap, SOME), SOME // BUCKETS)):
            if rate * len(part) * (limits[0] + BUCKETS * limits[1]) <= PATIENCE:
                break
        else:
            break
    return [found[item.queue_id, item.fingerprint] for item in chosen]


def _search_groups(
    wanted: DeadFilter, queues: dict[int, tuple[str, str]]
) -> Steps[tuple[dict[tuple[int, str], Group], bool]]:
    search = yield from search_steps(wanted, sorted(queues), None, enough=MAX_SCAN, limit=MAX_SCAN)
    rows = search.rows
    parts: dict[tuple[int, str], list[Match]] = {}
    for row in rows:
        parts.setdefault((row.queue_id, row.fingerprint or ""), []).append(row)
    newest = {letters[0].seq: key for key, letters in parts.items()}
    samples = {row.seq: row for row in (yield from row_steps(list(newest)[:MAX_GROUPS]))}
    low = min((row.dead_at for row in rows), default=EPOCH)
    step = (max((row.dead_at for row in rows), default=EPOCH) - low) / BUCKETS or timedelta(microseconds=1)
    found = {}
    for seq, (queue, print_) in newest.items():
        letters, sample = parts[queue, print_], samples.get(seq)
        if sample is None:  # beyond the bound, or gone meanwhile
            continue
        bars = Counter(min(int((row.dead_at - low) / step), BUCKETS - 1) for row in letters)
        found[queue, print_] = Group(
            queue, *queues[queue], print_, len(letters), search.last is not None, letters[-1].dead_at,
            letters[0].dead_at, [bars[n] for n in range(BUCKETS)], seq, sample.name, sample.error_type, sample.error,
        )  # fmt: skip
    return found, search.last is None and len(found) == len(parts)


@operation
def preview(wanted: DeadFilter, *, seqs: Sequence[int] | None = None, samples: int = 5) -> Steps[Preview]:
    """Return what a filter (or a selection) matches now, counted up to ``COUNT_CAP`` letters, with a breakdown.

    Args:
        wanted: the filter; with a selection only its bounds count.
        seqs: the numbers of a selection.
        samples: letters shown as samples.
    """
    cap = conf.settings.COUNT_CAP
    ((now,),) = yield "server_time", {}
    frozen = wanted.frozen(now)
    queues = yield from queue_steps(frozen)
    if seqs is not None:
        found = yield from match_steps(DeadFilter(), seqs)
        rows = [row for row in found if row.queue_id in queues and row.dead_at <= now]
        matches, capped, looked_at = len(rows), False, len(seqs)
    else:
        limit = min(SAMPLE, cap) if frozen.indexed else cap
        search = yield from search_steps(frozen, sorted(queues), None, enough=cap, limit=limit)
        rows, looked_at = search.rows, search.looked_at
        matches, capped = len(rows), search.last is not None
        if capped and frozen.indexed:
            matches, capped = yield from _count(frozen, queues, cap)
    shown = yield from row_steps([row.seq for row in rows[:samples]])
    return Preview(
        now,
        matches,
        capped,
        looked_at,
        _largest(Counter(_place(queues.get(row.queue_id, ("", "?"))) for row in rows)),
        _largest(Counter(row.name or "-" for row in rows)),
        _largest(Counter(row.error_type or "-" for row in rows)),
        shown,
    )


def _count(wanted: DeadFilter, queues: dict[int, tuple[str, str]], cap: int) -> Steps[tuple[int, bool]]:
    """Steps that count by the index alone, up to the cap; up to ``SOME`` where that takes long already."""
    limit = min(SOME, cap)
    while True:
        began = time.monotonic()
        ((counted,),) = yield (
            "dead_count",
            {
                "queues": arrays.integers(sorted(queues)),
                "fingerprint": wanted.fingerprint,
                "since": wanted.since,
                "until": wanted.until,
                "cap": limit,
            },
        )
        if counted <= limit or limit == cap or (time.monotonic() - began) * cap / limit > PATIENCE:
            return min(counted, limit), counted > limit
        limit = cap


def _place(where: tuple[str, str]) -> str:
    return f"{where[0]}/{where[1]}" if where[0] else where[1]


def _largest(counts: Counter[str]) -> list[tuple[str, int]]:
    return counts.most_common(10)
