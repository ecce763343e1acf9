"""What we answer: records, jobs and times as the protocol says them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ...engine import LeasedJob, make_lease_id
from ...engine.topics.log import Gap, TopicRecord
from .. import payload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since the epoch."""
    return (moment - _EPOCH) // _MS


def leased(job: LeasedJob) -> dict[str, Any]:
    """Return a job as a claim gives it."""
    answer: dict[str, Any] = {
        "$seq": job.seq,
        "lease_id": make_lease_id(job.token, job.seq),
        # (rounded to microseconds first, as a datetime is)
        "deadline": round(job.deadline_epoch * 1_000_000) // 1_000,
        "$ts": round(job.created_epoch * 1_000_000) // 1_000,
        "deliveries": job.deliveries,
        "data": payload.raw(job.data_json),
    }
    if job.tag is not None:
        answer["$tag"] = job.tag
    if job.meta_json is not None:
        answer["meta"] = payload.raw(job.meta_json)
    return answer


def record(row: TopicRecord, *, tags: bool = True, meta: bool = True) -> dict[str, Any]:
    """Return a record as diff and watch give it."""
    answer: dict[str, Any] = {"$seq": row.seq, "$ts": milliseconds(row.created_at), "data": payload.raw(row.data_json)}
    if tags and row.tag is not None:
        answer["$tag"] = row.tag
    if row.origin is not None:
        answer["$node"] = row.origin
    if meta and row.meta_json is not None:
        answer["meta"] = payload.raw(row.meta_json)
    return answer


def tombstone(gap: Gap) -> dict[str, Any]:
    """Return what a reader missed."""
    return {"gap_from": gap.start, "gap_to": gap.end, "reason": gap.reason, "missed_estimate": gap.missed}
