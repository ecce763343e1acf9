"""Silver: one row per attempt (a claim of a job), one row per job.

An attempt is a claim together with everything up to the next claim of the same job, in order of time and number.
Repeated events (the same ``id``) count once. One shuffle sorts the events by job; Python workers fold them, many jobs
at once (:mod:`.walk`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from .walk import NUMBER, OUTCOMES, STATES, WALKED, walk

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
