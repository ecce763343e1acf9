"""Silver: one row per attempt (a claim of a job), one row per job.

An attempt is a claim together with everything up to the next claim of the same job, in order of time and number.
Repeated events (the same ``id``) count once. One shuffle sorts the events by job; Python workers fold them, many jobs
at once (``walk``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ..arrow import ddl_schema

#: What an expired lease is said to have failed of, as in the errors that the job keeps.
EXPIRED = ("LEASE_EXPIRED", "lease_expired")
#: Outcomes that the worker told: only of these is it known how long the job ran.
TOLD = ("completed", "failed", "released", "suspended")
#: What the log says of a job in a workflow.
_LINKED = "workflow string, name string, label string, parents array<bigint>, tolerant boolean"


def seconds(later: Column, earlier: Column) -> Column:
    """Return the seconds between two timestamps, exact to the microsecond."""
    return (f.unix_micros(later) - f.unix_micros(earlier)) / f.lit(1e6)


def begun() -> Column:
    """Return when a job with this first event began to be there; of a claim whose enqueue is not told: was ready."""
    waited = f.coalesce("waited", f.lit(0)).cast("bigint")
    return f.timestamp_micros(f.unix_micros("occurred_at") - waited * 1_000)


def fold(events: DataFrame) -> DataFrame:
    """Return the last event of every attempt and of every job, with what came before it.

    ``events`` have at least the columns id, seq, occurred_at, event, project, queue, name, node, deadline, waited, ran
    and detail. :func:`attempts_of` and :func:`jobs_of` are projections of the result: who wants both keeps it
    (``persist``) and computes it once.
    """
    tags = f.when(f.col("event") == "enqueued", f.get_json_object("detail", "$.tags"))
    told = events.select(
        *("seq", "occurred_at", "id", "deadline", "ran", "project", "queue", f.col("name").alias("task"), "node"),
        *("detail", tags.alias("tags"), begun().alias("ready_at")),
        mapped(_moved(f.col("event"), f.col("detail")), NUMBER, f.lit(0)).alias("kind"),
    )
    return told.repartition("seq").sortWithinPartitions("seq").mapInArrow(walk, WALKED)


def _moved(event: Column, detail: Column) -> Column:
    """Tell a redrive that ends its number from one that lets the job live again in its place."""
    away = f.get_json_object(detail, "$.to_seq").isNotNull() | f.get_json_object(detail, "$.by").isNotNull()
    return f.when((event == "redriven") & away, "moved").otherwise(event)


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt, of events as for :func:`fold`.

    Returns:
        project, queue, task, seq, attempt (1, 2, ...), node, enqueued_at, ready_at (when it could be claimed),
        claimed_at, deadline (the last one granted), ended_at, outcome (completed, failed, released, suspended,
        expired, cancelled, running), dead (whether the job was dead-lettered by it), error_type, fingerprint (of an
        expired lease ``LEASE_EXPIRED`` and ``lease_expired``), waited, held (seconds from the claim to the end), ran
        (seconds that the handler ran, or ``held`` where the worker did not say; null where no worker told of an end),
        lease (seconds granted by the claim), extensions, unstarted.
    """
    return attempts_of(fold(events))


def attempts_of(folded: DataFrame) -> DataFrame:
    """Return what :func:`attempts` returns, from :func:`fold`."""
    detail = f.coalesce("detail", "death")
    suspended = f.when(f.get_json_object(detail, "$.suspended") == "true", "suspended")
    outcome = f.coalesce(suspended, _word("end_kind", OUTCOMES), f.lit("running"))
    error_type, fingerprint = (
        f.coalesce(f.get_json_object(detail, f"$.{name}"), f.when(outcome == "expired", word))
        for name, word in zip(("error_type", "fingerprint"), EXPIRED, strict=True)
    )
    unstarted = f.coalesce(f.get_json_object(detail, "$.unstarted") == "true", f.lit(False))
    held = seconds(f.col("ended_at"), f.col("claimed_at"))
    return folded.where(f.col("attempt") > 0).select(
        *("project", "queue", "task", "seq", "attempt", "node", "enqueued_at", "ready_at", "claimed_at"),
        f.col("granted").alias("deadline"),
        *("ended_at", outcome.alias("outcome"), "dead"),
        *(error_type.alias("error_type"), fingerprint.alias("fingerprint")),
        f.greatest(f.lit(0.0), seconds(f.col("claimed_at"), f.col("ready_at"))).alias("waited"),
        held.alias("held"),
        f.when(outcome.isin(*TOLD) & ~unstarted, f.coalesce(f.col("ran") / f.lit(1e3), held)).alias("ran"),
        seconds(f.col("first_granted"), f.col("claimed_at")).alias("lease"),
        "extensions",
        unstarted.alias("unstarted"),
    )


def jobs(events: DataFrame) -> DataFrame:
    """Return one row per job, of events as for :func:`fold`.

    Returns:
        project, queue, task, seq, enqueued_at, first_claimed_at, ended_at (null while it lives; of a dead letter when
        it died, whatever became of it), state (completed, failed, dead, cancelled, redriven: it went on under another
        number, open), deliveries, expiries, releases, error_type, fingerprint, total (seconds from enqueue to end),
        delay (seconds until its first attempt could begin), waited and held (seconds, of all its attempts);
        of a job in a workflow: workflow_name, workflow (its id), label, parents (the jobs that it comes after),
        tolerant (whether it starts however they end); tags (JSON: names and values; null without any);
        job_day (the day it was enqueued, UTC).
    """
    return jobs_of(fold(events))


def jobs_of(folded: DataFrame) -> DataFrame:
    """Return what :func:`jobs` returns, from :func:`fold`."""
    # A job that was redriven in its place lives again: the last of these events says where it stands.
    over = f.col("last_kind").isin(*[NUMBER[word] for word in STATES])
    ended_at = f.when(over, f.col("over_at"))
    detail = f.when(over, f.col("last_detail"))
    # A number that is only known to have been moved away is the copy of a job in a topic of dead letters.
    claimed = f.col("attempt") > 0
    copy = (f.col("first_kind") == NUMBER["moved"]) & ~claimed
    told = folded.withColumn("link", f.from_json("link", _LINKED))
    return told.where(f.col("newest") & ~copy).select(
        *("project", "queue", "task", "seq", "enqueued_at", "first_claimed_at"),
        ended_at.alias("ended_at"),
        f.coalesce(_word("last_kind", STATES), f.lit("open")).alias("state"),
        *(f.col("attempt").alias("deliveries"), "expiries", "releases"),
        *[f.get_json_object(detail, f"$.{name}").alias(name) for name in ("error_type", "fingerprint")],
        seconds(ended_at, f.col("enqueued_at")).alias("total"),
        f.when(claimed, f.greatest(f.lit(0.0), seconds(f.col("first_ready_at"), f.col("enqueued_at")))).alias("delay"),
        *[(f.col(name) / f.lit(1e6)).alias(name) for name in ("waited", "held")],
        f.col("link.name").alias("workflow_name"),
        *[f"link.{name}" for name in ("workflow", "label", "parents", "tolerant")],
        "tags",
        f.col("enqueued_at").cast("date").cast("string").alias("job_day"),
    )


def _word(kind: str, words: dict[str, str]) -> Column:
    return mapped(f.col(kind), {NUMBER[event]: word for event, word in words.items()})


def mapped(column: Column, values: Mapping[Any, Any], otherwise: Column | None = None) -> Column:
    """Return a column's values as others; for those that are not named, null or something else."""
    told = f.lit(None).cast("string") if otherwise is None else otherwise
    for value, other in values.items():
        told = f.when(column == value, other).otherwise(told)
    return told


# What follows runs in Spark's Python workers, vectorised over the events of many jobs.

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
