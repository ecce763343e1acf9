"""Reading dead letters: groups, pages, previews. Every call reads a bounded number of rows, however many there are.

What indexes do not answer (text, payload, task, tag, deliveries) is searched for among the newest dead letters, for a
short time; an answer says how far the search came, and the next call goes on there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ... import conf
from .. import arrays, payloads
from ..codec import decode_cursor, encode_cursor
from ..jobs.read import MAX_PAGE_BYTES
from ..limits import check_count
from ..operation import Statements, operation
from .filter import DeadFilter
from .search import (
    EPOCH,
    MAX_SCAN,
    DeadQueue,
    DeadRow,
    DeathPlace,
    LookedRow,
    Match,
    match_steps,
    micros,
    queue_steps,
    row_steps,
    search_steps,
    window_steps,
)

#: Groups that one call looks at.
MAX_GROUPS = 1_000
MAX_GROUP_PAGE = 100
#: Dead letters that a breakdown is made of, and those that a preview shows.
SAMPLE, SAMPLES = 2_000, 5
#: Bars of a sparkline, and what one of them counts at most.
BUCKETS, BUCKET_CAP = 24, 200
#: Dead letters that the groups of one call count, all together.
MAX_COUNTED = 1_000_000
#: Dead letters that a group counts where all together are too many.
MAX_MATCHES = 10_000
#: Dead letters that a preview counts by index; those that it looks at for what no index answers, and for how many
#: seconds: what is done with them is bound to the number, so it is exact as far as that goes.
MAX_PREVIEWED, MAX_SEARCHED, PATIENCE = 1_000_000, 100_000, 5.0


class DeadPage(NamedTuple):
    """A page of dead letters, the newest death first."""

    rows: list[DeadRow]
    #: The cursor of the next page; ``None`` at the end.
    next: str | None
    #: How many were looked at for it: more than there are where the filter needs a search.
    looked_at: int


class DeadGroup(NamedTuple):
    """Dead letters of one queue with one fingerprint."""

    queue_id: int
    project: str
    queue: str
    fingerprint: str
    #: Their number; ``capped``: there are more.
    dead_letters: int
    capped: bool
    first_at: datetime
    last_at: datetime
    #: Counts over time, each at most ``BUCKET_CAP`` + 1.
    bars: list[int]
    sample_seq: int | None
    task: str | None
    error_type: str | None
    error: str | None


class Groups(NamedTuple):
    """A page of groups, the newest death or the largest first."""

    groups: list[DeadGroup]
    next: str | None
    #: The number of groups of this page and of those behind it.
    left: int
    #: False when there are more groups (for a search: more dead letters) than one call looks at.
    complete: bool
    bars_from: datetime
    bars_to: datetime
    #: Whether all groups were counted: not where they have more than ``MAX_COUNTED`` dead letters together (of a group
    #: then ``MAX_MATCHES`` are), nor where a search did not see all.
    exact: bool


class Preview(NamedTuple):
    """The dead letters that a filter matches, counted before an action on them is confirmed."""

    #: The database's time of the look: what dies later is not part of it.
    at: datetime
    #: Their number; ``capped``: there may be more.
    matches: int
    capped: bool
    #: The breakdowns are the largest parts of so many, the newest ones.
    looked_at: int = 0
    queues: Sequence[tuple[str, int]] = ()
    tasks: Sequence[tuple[str, int]] = ()
    errors: Sequence[tuple[str, int]] = ()
    samples: Sequence[DeadRow] = ()


@operation
def dead_page(
    wanted: DeadFilter, *, after: str | None = None, size: int = 50, payload: bool = False
) -> Statements[DeadPage]:
    """Return a page of dead letters, the newest death first."""
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    place = DeathPlace.of(decode_cursor(after, (int, int)))
    queues = yield from queue_steps(wanted)
    if wanted.indexed:
        window = yield from window_steps(wanted, sorted(queues), place, size)
        seqs, end, looked_at = window.seqs, window.end, len(window.places)
    else:
        search = yield from search_steps(wanted, sorted(queues), place, enough=size + 1, limit=MAX_SCAN)
        seqs = [match.seq for match in search.rows[:size]]
        end = DeathPlace(search.rows[size - 1].dead_at, seqs[-1]) if len(search.rows) > size else search.last
        looked_at = search.looked_at
    rows = yield from row_steps(seqs, payload=payload)
    whole = yield from payloads.lenient_steps(rows, MAX_PAGE_BYTES, payloads.ONLY_DATA)
    if len(whole) < len(rows):
        end = DeathPlace(whole[-1].dead_at, whole[-1].seq)
    return DeadPage(whole, None if end is None else encode_cursor(*end.cursor), looked_at)


@operation
def dead_rows(seqs: Sequence[int], *, payload: bool = False) -> Statements[list[DeadRow]]:
    """Return these dead letters, without any that are gone."""
    rows = yield from row_steps(seqs, payload=payload)
    return (yield from payloads.lenient_steps(rows, payloads.MAX_LOADED_BYTES, payloads.ONLY_DATA))


@operation
def dead_groups(
    wanted: DeadFilter, *, after: str | None = None, size: int = 25, largest: bool = False
) -> Statements[Groups]:
    """Return a page of groups of dead letters, the newest death first."""
    size = check_count(size, "size", MAX_GROUP_PAGE, 1)
    place = decode_cursor(after, (int, int, str))
    ((now,),) = yield "server_time", {}
    queues = yield from queue_steps(wanted)
    if wanted.indexed:
        asked = {**_indexed(wanted, queues), "size": MAX_GROUPS + 1}
        seen = [LookedRow._make(row) for row in (yield "dead_groups", asked)] if queues else []
        complete = not seen or seen[0].looked_at <= MAX_GROUPS
        del seen[MAX_GROUPS:]
        found: dict[tuple[int, str], DeadGroup] = {}
        counts = yield from _counts(wanted, seen)
    else:
        found, complete = yield from _search_groups(wanted, queues)
        counts = {key: group.dead_letters for key, group in found.items()} if complete else None
        seen = [LookedRow(group.queue_id, group.fingerprint, group.first_at, group.last_at) for group in found.values()]
    low = wanted.since or min((item.first_at for item in seen), default=now - timedelta(hours=24))
    high = max([min(now, wanted.until or now), *(item.last_at for item in seen)])

    def order(item: LookedRow) -> tuple[int, int, str]:
        first = counts[item.key] if largest and counts is not None else micros(item.last_at)
        return -first, *item.key

    seen.sort(key=order)
    if place is not None:
        seen = [item for item in seen if order(item) > (-place[0], *place[1:])]
    chosen = seen[:size]
    if wanted.indexed:
        groups = yield from _figures(wanted, queues, chosen, counts, low, high)
    else:
        groups = [found[item.key] for item in chosen]
    after = None
    if len(seen) > size:
        first, queue_id, print_ = order(chosen[-1])
        after = encode_cursor(-first, queue_id, print_)
    return Groups(groups, after, len(seen), complete, low, high, counts is not None)


def _indexed(wanted: DeadFilter, queues: Iterable[int]) -> dict[str, Any]:
    """Return the parameters of the part of a filter that an index answers."""
    asked = {"fingerprint": wanted.fingerprint, "since": wanted.since, "until": wanted.until}
    return {"queues": arrays.integers(sorted(queues)), **asked}


def _counts(wanted: DeadFilter, seen: Sequence[LookedRow]) -> Statements[dict[tuple[int, str], int] | None]:
    """Count the dead letters of groups; ``None`` where they have more than ``MAX_COUNTED`` together."""
    groups = {**_named(seen), "cap": MAX_COUNTED}
    if wanted.since is None and wanted.until is None:
        rows = yield "dead_group_counts", groups
    else:
        rows = yield "dead_group_counts_within", {**groups, "since": wanted.since, "until": wanted.until}
    counts = {item.key: count for item, (count,) in zip(seen, rows, strict=True)}
    return None if sum(counts.values()) > MAX_COUNTED else counts


def _named(groups: Sequence[LookedRow]) -> dict[str, str]:
    return {
        "queues": arrays.integers([item.queue_id for item in groups]),
        "fingerprints": arrays.texts([item.fingerprint for item in groups]),
    }


def _figures(
    wanted: DeadFilter,
    queues: dict[int, DeadQueue],
    chosen: Sequence[LookedRow],
    counts: dict[tuple[int, str], int] | None,
    low: datetime,
    high: datetime,
) -> Statements[list[DeadGroup]]:
    if not chosen:
        return []
    cap = min(conf.settings.COUNT_CAP, MAX_MATCHES) if counts is None else 0
    asked = {
        **_named(chosen),
        "since": wanted.since,
        "until": wanted.until,
        "low": low,
        "step": (micros(high) - micros(low)) // BUCKETS + 1,
        "buckets": BUCKETS,
        "cap": cap,
        "bucket_cap": BUCKET_CAP,
    }
    groups = []
    for item, (counted, bars, *sample) in zip(chosen, (yield "dead_group_figures", asked), strict=True):
        queue = queues[item.queue_id]
        if counts is None:
            number, capped = min(counted, cap), counted > cap
        else:
            number, capped = counts[item.key], False
        place = (queue.id, queue.project, queue.queue, item.fingerprint)
        groups.append(DeadGroup(*place, number, capped, item.first_at, item.last_at, list(bars), *sample))
    return groups


def _search_groups(
    wanted: DeadFilter, queues: dict[int, DeadQueue]
) -> Statements[tuple[dict[tuple[int, str], DeadGroup], bool]]:
    search = yield from search_steps(wanted, sorted(queues), None, enough=MAX_SCAN, limit=MAX_SCAN)
    parts: dict[tuple[int, str], list[Match]] = {}
    for row in search.rows:
        parts.setdefault((row.queue_id, row.fingerprint or ""), []).append(row)
    newest = {matches[0].seq: key for key, matches in parts.items()}
    samples = {row.seq: row for row in (yield from row_steps(list(newest)[:MAX_GROUPS]))}
    times = [row.dead_at for row in search.rows] or [EPOCH]
    low = min(times)
    step = (max(times) - low) / BUCKETS or timedelta(microseconds=1)
    found = {}
    for seq, (queue_id, print_) in newest.items():
        matches, sample = parts[queue_id, print_], samples.get(seq)
        if sample is None:  # beyond the bound, or gone meanwhile
            continue
        bars = Counter(min(int((row.dead_at - low) / step), BUCKETS - 1) for row in matches)
        queue = queues[queue_id]
        found[queue_id, print_] = DeadGroup(
            queue_id, queue.project, queue.queue, print_, len(matches), search.last is not None, matches[-1].dead_at,
            matches[0].dead_at, [bars[n] for n in range(BUCKETS)], seq, sample.name, sample.error_type, sample.error,
        )  # fmt: skip
    return found, search.last is None and len(found) == len(parts)


@operation
def preview(wanted: DeadFilter, *, seqs: Sequence[int] | None = None) -> Statements[Preview]:
    """Count the matches of a filter or a selection, with a breakdown."""
    ((now,),) = yield "server_time", {}
    frozen = wanted.frozen(now)
    queues = yield from queue_steps(frozen)
    if seqs is not None:
        found = yield from match_steps(DeadFilter(), seqs)
        rows = [row for row in found if row.queue_id in queues and row.dead_at <= now]
        matches, capped, looked_at = len(rows), False, len(seqs)
    else:
        limit = SAMPLE if frozen.indexed else MAX_SEARCHED
        search = yield from search_steps(frozen, sorted(queues), None, enough=limit, limit=limit, patience=PATIENCE)
        rows, looked_at = search.rows, search.looked_at
        matches, capped = len(rows), search.last is not None
        if capped and frozen.indexed:
            ((counted,),) = yield "dead_count", {**_indexed(frozen, queues), "cap": MAX_PREVIEWED}
            matches, capped = min(counted, MAX_PREVIEWED), counted > MAX_PREVIEWED
    shown = yield from row_steps([row.seq for row in rows[:SAMPLES]])
    names = {queue.id: f"{queue.project}/{queue.queue}" if queue.project else queue.queue for queue in queues.values()}
    by_queue = Counter(names.get(row.queue_id, "?") for row in rows).most_common(10)
    by_task = Counter(row.name or "-" for row in rows).most_common(10)
    by_error = Counter(row.error_type or "-" for row in rows).most_common(10)
    return Preview(now, matches, capped, looked_at, by_queue, by_task, by_error, shown)
