"""Silver: one row per attempt (a claim of a job), one row per job.

The events of a job are put in order of time and number, and an attempt is a claim event together with everything up to
the next claim of the same job. Repeated events (the same ``id``) count once, in whatever order they came.

All of it is one shuffle and one sort: events go by job and stand in order, and running windows (which cost the same for
each event of a long history) carry along what the last row of an attempt, or of the job, needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

#: Kind of event -> what became of the attempt that it ends.
OUTCOMES = {"acked": "completed", **{word: word for word in ("failed", "released", "expired", "cancelled")}}
#: Events after which a job is not waiting for a worker any more -> its state.
STATES = {
    "acked": "completed", "failed": "failed", "dead_lettered": "dead", "cancelled": "cancelled", "moved": "redriven",
}  # fmt: skip
#: Columns that :func:`fold` reads.
NEEDED = (
    *("id", "occurred_at", "project", "queue", "seq", "deadline", "waited", "ran", "event", "node", "name", "detail"),
)
#: What an expired lease is said to have failed of, as in the errors that the job keeps.
EXPIRED = ("LEASE_EXPIRED", "lease_expired")
#: Outcomes that the worker told: only of these is it known how long the job ran.
TOLD = ("completed", "failed", "released", "suspended")
#: Words are numbers (places in this list, from 1) while events are sorted and walked over: that is most of the work.
#: ``moved`` is a redrive after which the job goes on under another number: elsewhere, or replayed by the lake's sink.
_KINDS = (*OUTCOMES, "dead_lettered", "redriven", "claimed", "enqueued", "extended", "moved", "linked")
#: What the log says of a job in a workflow.
_LINKED = "workflow string, name string, label string, parents array<bigint>, tolerant boolean"
_NUMBER = {word: number for number, word in enumerate(_KINDS, 1)}


def hour_of(time: str | Column) -> Column:
    """Return the hour of a time, as the column ``hour``."""
    return f.date_trunc("hour", time).alias("hour")


def seconds(later: Column, earlier: Column) -> Column:
    """Return the seconds between two timestamps, exact to the microsecond."""
    return (f.unix_micros(later) - f.unix_micros(earlier)) / f.lit(1e6)


def begun() -> Column:
    """Return when a job with this first event began to be there; of a claim whose enqueue is not told: was ready."""
    return f.coalesce(_before(), f.col("occurred_at"))


def _before() -> Column:
    """Return the time at which a job that is claimed was ready; null for all other events."""
    return f.timestamp_micros(f.unix_micros("occurred_at") - f.col("waited").cast("bigint") * 1_000)


def fold(events: DataFrame) -> DataFrame:
    """Return the last event of every attempt and of every job, with what came before it.

    ``events`` have the columns ``NEEDED`` at least. :func:`attempts_of` and :func:`jobs_of` are projections of the
    result: who wants both keeps it (``persist``) and computes it once.
    """
    by_job = Window.partitionBy("seq").orderBy("occurred_at", "id")
    so_far = by_job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = by_job.rowsBetween(Window.unboundedPreceding, -1)
    claim, end, dead, over = _is("claimed"), _is(*OUTCOMES), _is("dead_lettered"), _is(*STATES)
    lives = _is("redriven", "claimed", "enqueued")

    def last(value: Column, when: Column) -> Column:
        return f.last(f.when(when, value), ignorenulls=True).over(so_far)

    def count(when: Column) -> Column:
        return f.count(f.when(when, 1)).over(so_far).cast("int")

    once = (
        events.select(
            *("seq", "occurred_at", "id", "deadline", "ran", "project", "queue", f.col("name").alias("task"), "node"),
            "detail",
            mapped(_moved(f.col("event"), f.col("detail")), _NUMBER, f.lit(0)).alias("kind"),
            _before().alias("ready_at"),
        )
        .withColumn("id_before", f.lag("id").over(by_job))
        .where(f.col("id_before").isNull() | (f.col("id_before") != f.col("id")))
    )
    first = once.select(
        *("seq", "occurred_at", "id", "kind", "project", "queue", "task", "detail", "ran"),
        f.first("kind").over(so_far).alias("first_kind"),
        f.first(f.coalesce("ready_at", "occurred_at")).over(so_far).alias("enqueued_at"),
        last(f.col("node"), claim).alias("node"),
        last(f.col("occurred_at"), claim).alias("claimed_at"),
        last(f.col("deadline"), _is("claimed", "extended")).alias("granted"),
        last(f.col("deadline"), claim).alias("first_granted"),
        f.min(f.when(claim, f.col("occurred_at"))).over(so_far).alias("first_claimed_at"),
        count(claim).alias("attempt"),
        count(_is("extended")).alias("extended"),
        count(_is("expired")).alias("expiries"),
        count(_is("released")).alias("releases"),
        # An attempt ends with the first end after its claim.
        (end & f.last(f.when(claim | end, claim), ignorenulls=True).over(before)).alias("is_end"),
        last(f.coalesce("ready_at", f.col("occurred_at")), claim).alias("ready_at"),
        f.lead("kind").over(by_job).alias("next_kind"),
        last(f.struct("kind", "detail"), over | lives).alias("last"),
        last(f.col("detail"), _is("linked")).alias("link"),
        last(f.get_json_object("detail", "$.tags"), _is("enqueued")).alias("tags"),
        # A job is over since the first end after it lived: a dead letter that is discarded later was over before.
        (over & ~f.coalesce(f.last(f.when(over | lives, over), ignorenulls=True).over(before), f.lit(False))).alias(
            "is_over"
        ),
    )
    folded = first.select(
        *("seq", "project", "queue", "task", "enqueued_at", "node", "claimed_at", "granted", "first_claimed_at"),
        *("ready_at", "attempt", "expiries", "releases", "next_kind", "last", "link", "first_granted", "first_kind"),
        "tags",
        (f.col("extended") - last(f.col("extended"), claim)).alias("extensions"),
        last(f.struct("attempt", "kind", "occurred_at", "detail", "ran"), f.col("is_end")).alias("end"),
        last(f.col("occurred_at"), f.col("is_over")).alias("over_at"),
        last(f.struct("attempt", "detail"), dead).alias("death"),
    )
    ends_attempt = (f.col("next_kind") == _NUMBER["claimed"]) & (f.col("attempt") > 0)
    return folded.where(f.col("next_kind").isNull() | ends_attempt)


def _moved(event: Column, detail: Column) -> Column:
    """Tell a redrive that ends its number from one that lets the job live again in its place."""
    away = f.get_json_object(detail, "$.to_seq").isNotNull() | f.get_json_object(detail, "$.by").isNotNull()
    return f.when((event == "redriven") & away, "moved").otherwise(event)


def _is(*words: str) -> Column:
    return f.col("kind").isin(*[_NUMBER[word] for word in words])


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt, of events with the columns ``NEEDED`` at least.

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
    ended = f.col("end.attempt") == f.col("attempt")
    dead = f.coalesce(f.col("death.attempt") == f.col("attempt"), f.lit(False))
    ended_at = f.when(ended, f.col("end.occurred_at"))
    detail = f.coalesce(f.when(ended, f.col("end.detail")), f.when(dead, f.col("death.detail")))
    suspended = f.when(f.get_json_object(detail, "$.suspended") == "true", "suspended")
    outcome = f.coalesce(suspended, f.when(ended, _word("end.kind", OUTCOMES)), f.lit("running"))
    error_type, fingerprint = (
        f.coalesce(f.get_json_object(detail, f"$.{name}"), f.when(outcome == "expired", word))
        for name, word in zip(("error_type", "fingerprint"), EXPIRED, strict=True)
    )
    unstarted = f.coalesce(f.get_json_object(detail, "$.unstarted") == "true", f.lit(False))
    held = seconds(ended_at, f.col("claimed_at"))
    return folded.where(f.col("attempt") > 0).select(
        *("project", "queue", "task", "seq", "attempt", "node", "enqueued_at", "ready_at", "claimed_at"),
        f.col("granted").alias("deadline"),
        *(ended_at.alias("ended_at"), outcome.alias("outcome"), dead.alias("dead")),
        *(error_type.alias("error_type"), fingerprint.alias("fingerprint")),
        f.greatest(f.lit(0.0), seconds(f.col("claimed_at"), f.col("ready_at"))).alias("waited"),
        held.alias("held"),
        f.when(outcome.isin(*TOLD) & ~unstarted, f.coalesce(f.col("end.ran") / f.lit(1e3), held)).alias("ran"),
        seconds(f.col("first_granted"), f.col("claimed_at")).alias("lease"),
        "extensions",
        unstarted.alias("unstarted"),
    )


def jobs(events: DataFrame) -> DataFrame:
    """Return one row per job, of events as for :func:`attempts`.

    Returns:
        project, queue, task, seq, enqueued_at, first_claimed_at, ended_at (null while it lives; of a dead letter when
        it died, whatever became of it), state (completed, failed, dead, cancelled, redriven: it went on under another
        number, open), deliveries, expiries, releases, error_type, fingerprint, total (seconds from enqueue to end);
        of a job in a workflow: workflow_name, workflow (its id), label, parents (the jobs that it comes after),
        tolerant (whether it starts however they end); tags (JSON: names and values; null without any);
        job_day (the day it was enqueued, UTC).
    """
    return jobs_of(fold(events))


def jobs_of(folded: DataFrame) -> DataFrame:
    """Return what :func:`jobs` returns, from :func:`fold`."""
    # A job that was redriven in its place lives again: the last of these events says where it stands.
    over = f.col("last.kind").isin(*[_NUMBER[word] for word in STATES])
    ended_at = f.when(over, f.col("over_at"))
    detail = f.when(over, f.col("last.detail"))
    # A number that is only known to have been moved away is the copy of a job in a topic of dead letters.
    copy = f.col("first_kind").eqNullSafe(_NUMBER["moved"]) & (f.col("attempt") == 0)
    told = folded.withColumn("link", f.from_json("link", _LINKED))
    return told.where(f.col("next_kind").isNull() & ~copy).select(
        *("project", "queue", "task", "seq", "enqueued_at", "first_claimed_at"),
        ended_at.alias("ended_at"),
        f.coalesce(_word("last.kind", STATES), f.lit("open")).alias("state"),
        *(f.col("attempt").alias("deliveries"), "expiries", "releases"),
        *[f.get_json_object(detail, f"$.{name}").alias(name) for name in ("error_type", "fingerprint")],
        seconds(ended_at, f.col("enqueued_at")).alias("total"),
        f.col("link.name").alias("workflow_name"),
        *[f"link.{name}" for name in ("workflow", "label", "parents", "tolerant")],
        "tags",
        f.col("enqueued_at").cast("date").cast("string").alias("job_day"),
    )


def _word(kind: str, words: dict[str, str]) -> Column:
    return mapped(f.col(kind), {_NUMBER[event]: word for event, word in words.items()})


def mapped(column: Column, values: Mapping[Any, Any], otherwise: Column | None = None) -> Column:
    """Return a column's values as others; for those that are not named, null or something else."""
    told = f.lit(None).cast("string") if otherwise is None else otherwise
    for value, other in values.items():
        told = f.when(column == value, other).otherwise(told)
    return told
