"""Fold each job's events, in order, into the state at the end of its attempts.

It runs in Spark's Python workers, vectorised over the events of many jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrow import ddl_schema

#: Kind of event -> what became of the attempt that it ends.
OUTCOMES = {"acked": "completed", **{word: word for word in ("failed", "released", "expired", "cancelled")}}
#: Events after which a job is not waiting for a worker any more -> its state.
STATES = {
    "acked": "completed", "failed": "failed", "dead_lettered": "dead", "cancelled": "cancelled", "moved": "redriven",
}  # fmt: skip
#: ``moved`` is a redrive after which the job goes on under another number: elsewhere, or replayed by the lake's sink.
_KINDS = (*OUTCOMES, "dead_lettered", "redriven", "claimed", "enqueued", "extended", "moved", "linked")
#: Event kinds are numbers while events are shuffled and folded: their places in this list, from 1.
NUMBER = {word: number for number, word in enumerate(_KINDS, 1)}

#: The schema of ``walk``: a row for the last event of every attempt and of every job (``newest``).
WALKED = (
    "seq bigint, project string, queue string, task string, newest boolean, first_kind int, enqueued_at timestamp,"
    " attempt int, node string, ready_at timestamp, claimed_at timestamp, first_granted timestamp, granted timestamp,"
    " extensions int, end_kind int, ended_at timestamp, ran int, detail string, dead boolean, death string,"
    " first_ready_at timestamp, first_claimed_at timestamp, waited bigint, held bigint, expiries int, releases int,"
    " last_kind int, last_detail string, over_at timestamp, link string, tags string"
)


class _Events:
    """Distinct events sorted by job, time and id. A place is an event's index in that order, -1 is no event."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.order = np.arange(table.num_rows)
        self.order = np.lexsort([self.integers(name) for name in ("id", "occurred_at", "seq")])
        # An id that repeats is an event that was read twice.
        other = (np.diff(self.integers("seq")) != 0) | (np.diff(self.integers("id")) != 0)
        self.order = self.order[np.append(True, other)]
        begins = np.append(True, np.diff(self.integers("seq")) != 0)
        self.places = np.arange(len(self.order))
        #: For each event, the place of the first event of its job.
        self.start = np.maximum.accumulate(np.where(begins, self.places, 0))
        self.newest = np.append(begins[1:], True)

    def integers(self, name: str) -> Any:
        return self.table[name].cast("int64").to_numpy()[self.order]

    def valid(self, name: str) -> Any:
        """Return for each event whether a column is not null."""
        return self.table[name].is_valid().to_numpy()[self.order]

    def total(self, values: Any) -> Any:
        """Return for each event the running sum of its job's values."""
        sums = np.cumsum(values)
        return sums - (sums - values)[self.start]

    def last(self, where: Any) -> Any:
        """Return for each event the place of its job's last match so far, itself included."""
        found = np.maximum.accumulate(np.where(where, self.places, -1))
        return np.where(found < self.start, -1, found)

    def before(self, where: Any) -> Any:
        """Return for each event the place of its job's last match before it."""
        return np.where(self.places == self.start, -1, np.append(-1, self.last(where)[:-1]))

    def first(self, where: Any) -> Any:
        """Return for each event the place of its job's first match so far, itself included."""
        return self.last(where & (self.total(where.astype("int64")) == 1))

    def pick(self, name: str, places: Any) -> pa.ChunkedArray:
        """Return a column's values at these places, null for -1."""
        return self.table[name].take(pa.array(self.order[places], mask=places < 0))


def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold a stream of events that is sorted by job (``kind`` a number, ``ready_at`` never null) into ``WALKED``."""
    left: list[pa.RecordBatch] = []
    for batch in batches:
        # The last job of a batch may go on in the next one.
        ends = np.flatnonzero(np.diff(batch["seq"].to_numpy()))
        whole = int(ends[-1]) + 1 if len(ends) else 0
        if whole:
            yield from _walked(pa.Table.from_batches([*left, batch.slice(0, whole)])).to_batches()
            left = []
        left.append(batch.slice(whole))
    if any(part.num_rows for part in left):
        yield from _walked(pa.Table.from_batches(left)).to_batches()


def _walked(table: pa.Table) -> pa.Table:
    """Fold all events of some jobs into ``WALKED``."""
    events = _Events(table)
    kind, at, ready = (events.integers(name) for name in ("kind", "occurred_at", "ready_at"))

    def of(*words: str) -> Any:
        return np.isin(kind, [NUMBER[word] for word in words])

    def count(*words: str) -> Any:
        return events.total(of(*words).astype("int64"))

    claim, end, over = of("claimed"), of(*OUTCOMES), of(*STATES)
    stands = over | of("redriven", "claimed", "enqueued")
    claimed, first, attempt, extended = events.last(claim), events.first(claim), count("claimed"), count("extended")
    begun = events.before(claim | end)
    # An attempt ends with the first end after its claim.
    ends = end & (begun >= 0) & claim[begun]
    stood = events.before(stands)
    # A job is over since the first end after it lived: a dead letter that is discarded later was over before.
    ended = events.last(over & ~((stood >= 0) & over[stood]))
    last, closed, died = events.last(stands), events.last(ends), events.last(of("dead_lettered"))
    granted = events.valid("deadline")
    kept = np.flatnonzero(events.newest | (np.append(claim[1:], False) & (attempt > 0)))

    def of_attempt(places: Any) -> Any:
        return np.where(attempt[places] == attempt, places, -1)[kept]

    def sums(values: Any, known: Any) -> pa.Array:
        return pa.array(values[kept], mask=known[kept] < 0)

    its_end, its_death = of_attempt(closed), of_attempt(died)
    columns = {
        **{name: events.pick(name, kept) for name in ("seq", "project", "queue", "task")},
        "newest": events.newest[kept],
        "first_kind": events.pick("kind", events.start[kept]),
        "enqueued_at": events.pick("ready_at", events.start[kept]),
        "attempt": attempt[kept],
        "node": events.pick("node", events.last(claim & events.valid("node"))[kept]),
        "ready_at": events.pick("ready_at", claimed[kept]),
        "claimed_at": events.pick("occurred_at", claimed[kept]),
        "first_granted": events.pick("deadline", events.last(claim & granted)[kept]),
        "granted": events.pick("deadline", events.last((claim | of("extended")) & granted)[kept]),
        "extensions": sums(extended - extended[claimed], claimed),
        "end_kind": events.pick("kind", its_end),
        "ended_at": events.pick("occurred_at", its_end),
        "ran": events.pick("ran", its_end),
        "detail": events.pick("detail", its_end),
        "dead": its_death >= 0,
        "death": events.pick("detail", its_death),
        "first_ready_at": events.pick("ready_at", first[kept]),
        "first_claimed_at": events.pick("occurred_at", first[kept]),
        "waited": sums(events.total(np.where(claim, np.maximum(at - ready, 0), 0)), claimed),
        "held": sums(events.total(np.where(ends, at - at[claimed], 0)), closed),
        "expiries": count("expired")[kept],
        "releases": count("released")[kept],
        "last_kind": events.pick("kind", last[kept]),
        "last_detail": events.pick("detail", last[kept]),
        "over_at": events.pick("occurred_at", ended[kept]),
        "link": events.pick("detail", events.last(of("linked") & events.valid("detail"))[kept]),
        "tags": events.pick("tags", events.last(of("enqueued") & events.valid("tags"))[kept]),
    }
    schema = ddl_schema(WALKED)
    return pa.table([columns[name] for name in schema.names], schema.names).cast(schema)
