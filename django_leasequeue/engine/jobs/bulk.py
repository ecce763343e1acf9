"""Adding many jobs at once through COPY: three times the speed of a statement with arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, repeat
from typing import Any, NamedTuple

from ...enums import JobState
from .. import arrays
from ..operation import COPY, Steps
from ..rows import END, PLAIN, TAG, Enqueued, EnqueueStatus, NewJob, make_id
from ..tags import tags_json
from .new_jobs import LARGE_CHARACTERS, flags_of
from .remove import enforce_cap

#: From this many jobs on COPY is faster than one statement.
THRESHOLD = 100
#: Jobs of one event.
_EVENT = 1_000
#: Jobs of one part of the text.
_PART = 200
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
_BACKSLASH, _ESCAPED = "\\", "\\\\"


class _Place(NamedTuple):
    """The columns of a job's narrow row beside its number."""

    rank: int
    due: datetime | None
    flags: int
    max_deliveries: int | None
    expires_at: datetime | None
    tag: str | None


def _text(value: str) -> str:
    # Tabs and line ends are not printable. Looking is ten times as fast as translating.
    return value if value.isprintable() and _BACKSLASH not in value else value.translate(_ESCAPES)


def rank_of(priority: int | None, order: str, low: int, high: int) -> int:
    """Return the rank of a priority: ascending means earlier (the same rule as in enqueue.sql)."""
    if order == "none":
        return 0
    clamped = min(max(priority or 0, low), high)
    return clamped if order == "asc" else -clamped


def enqueue_steps(
    queue: str,
    jobs: Sequence[NewJob],
    datas: Sequence[str | None],
    metas: Sequence[str | None],
    project: str,
    origin: str | None,
    *,
    held: bool = False,
) -> Steps[list[Enqueued] | None]:
    """Steps that add the jobs to a queue; ``None`` if it is missing, or kept from writers (unless ``held``).

    They need a transaction around them.

    Keys must be new: one that is taken refuses the whole batch.
    """
    rows = yield "bulk_open", {"project": project, "queue": queue, "size": len(jobs), "held": held}
    if not rows:
        return None
    ((queue_id, kind, order, low, high, queue_ttl, log, durability, now, seqs, capped),) = rows
    if capped:
        yield "cap_lock", {"queue": queue_id}
    created = now.isoformat()
    tail = _NULL if origin is None else _text(origin)
    is_log = kind == "log"
    # What plain jobs have in common.
    usual = 0 if is_log else rank_of(None, order, low, high)
    expire = now + timedelta(milliseconds=queue_ttl) if queue_ttl else None
    expires = _NULL if expire is None else expire.isoformat()
    plain = "\t".join([expires, *[_NULL] * 6, tail])
    #: Places of jobs that are not plain, by their index; empty when all are.
    odd: dict[int, _Place] = {}

    def lines() -> Iterator[str]:
        for index, (seq, job, data, meta) in enumerate(zip(seqs, jobs, datas, metas, strict=True)):
            rank, rest = usual, plain
            if job.id_end is not None:
                key = f"t\t{make_id(seq, job.id_end)}"
            else:
                key = "f\t" + (_NULL if job.key is None else _text(job.key))
            if job.body is not None or job[TAG:END] != PLAIN or (data is not None and len(data) > LARGE_CHARACTERS):
                flags = flags_of(job, data, meta)
                place = _place(job, now, queue_ttl, 0 if is_log else rank_of(job.priority, order, low, high), flags)
                odd[index] = place
                rank = place.rank
                rest = (
                    f"{_NULL if place.expires_at is None else place.expires_at.isoformat()}\t"
                    f"{_NULL if job.tag is None else _text(job.tag)}\t"
                    f"{_NULL if meta is None else meta.replace(_BACKSLASH, _ESCAPED)}\t"
                    f"{_NULL if job.body is None else _ESCAPED + 'x' + job.body.hex()}\t"
                    f"{_NULL if job.reply_to is None else _text(job.reply_to)}\t"
                    f"{_NULL if job.result_ttl_ms is None else job.result_ttl_ms}\t"
                    f"{_NULL if job.max_deliveries is None else job.max_deliveries}\t"
                    f"{tail if job.origin is None else _text(job.origin)}"
                )
            yield (
                f"{seq}\t{queue_id}\t{created}\t{rank}\t"
                f"{key}\t{_NULL if job.name is None else _text(job.name)}\t"
                # JSON text holds no control characters: only its backslashes need escaping.
                f"{_NULL if data is None else data.replace(_BACKSLASH, _ESCAPED)}\t{rest}\n"
            )

    made = lines()
    # In parts: PostgreSQL stores the first ones while the next are written.
    yield COPY + "bulk_copy", {"parts": iter(lambda: "".join(islice(made, _PART)), "")}
    names = {job.name for job in jobs}
    common = _Place(usual, None, 0, None, expire, None)
    places = [odd.get(index, common) for index in range(len(jobs))] if odd else []
    closing = {
        "queue": queue_id,
        "seqs": arrays.integers(seqs),
        "rank": usual,
        "expire": expire,
        "name": next(iter(names)) if len(names) == 1 else None,
        "log": log and not is_log,
        "relax": durability != "fsync",
        "at": now,
    }
    if odd or is_log or len(names) > 1 or len(jobs) > _EVENT:
        yield "bulk_close", {**closing, "type": kind, **_columns(jobs, places, names, is_log)}
    else:
        yield "bulk_close_plain", closing
    if capped:
        yield from enforce_cap(queue_id, seqs)
    if not odd or is_log:
        word = str((JobState.RECORD if is_log else JobState.READY).label)
        return list(
            map(Enqueued._make, zip(seqs, repeat(EnqueueStatus.QUEUED), repeat(word), repeat(now), strict=False))
        )
    return [
        Enqueued(seq, EnqueueStatus.QUEUED, str((JobState.READY if place.due is None else JobState.DELAYED).label), now)
        for seq, place in zip(seqs, places, strict=True)
    ]


def _columns(
    jobs: Sequence[NewJob], places: Sequence[_Place], names: Collection[str | None], is_log: bool
) -> dict[str, Any]:
    """Return the parameters of bulk_close.sql that differ among jobs; ``places`` is empty when all have one."""
    return {
        "ranks": arrays.integers([place.rank for place in places]),
        "dues": arrays.optional([place.due for place in places], arrays.times),
        "flags": arrays.optional([place.flags or None for place in places]),
        "limits": arrays.optional([place.max_deliveries for place in places]),
        "expires": arrays.optional([place.expires_at for place in places], arrays.times),
        "tags": arrays.optional([place.tag for place in places], arrays.texts),
        "tagged": arrays.optional([tags_json(job.tags) for job in jobs] if places else [], arrays.texts),
        "names": arrays.EMPTY if len(names) == 1 else arrays.texts([job.name for job in jobs]),
        "wake": is_log or not places or any(place.due is None for place in places),
    }


def _place(job: NewJob, now: datetime, queue_ttl: int, rank: int, flags: int) -> _Place:
    due = None
    if job.run_at is not None or job.delay_ms:
        due = job.run_at or now + timedelta(milliseconds=job.delay_ms or 0)
    ttl = queue_ttl if job.ttl_ms is None else job.ttl_ms
    return _Place(
        rank,
        due if due is not None and due > now else None,
        flags,
        job.max_deliveries,
        now + timedelta(milliseconds=ttl) if ttl else None,
        job.tag,
    )
