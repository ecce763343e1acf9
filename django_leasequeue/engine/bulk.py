"""Adding many jobs at once through COPY: three times the speed of a statement with arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, repeat

from ..enums import JobState
from . import arrays, caps
from .operation import COPY, Steps
from .rows import PLAIN, TAG, Enqueued, EnqueueStatus, NewJob

#: From this many jobs on COPY is faster than one statement.
THRESHOLD = 100
#: Jobs of one part of the text.
_PART = 200

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


_NULL = "\\N"
_BACKSLASH, _ESCAPED = "\\", "\\\\"
_LABELS = {int(state): state.label for state in JobState}


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
) -> Steps[list[Enqueued] | None]:
    """Steps that add the jobs to a queue; ``None`` if the queue is missing. They need a transaction around them.

    Keys must be new: one that is taken refuses the whole batch.
    """
    rows = yield "bulk_open", {"project": project, "queue": queue, "size": len(jobs)}
    if not rows:
        return None
    queue_id, kind, order, low, high, queue_ttl, log, durability, now, seqs, capped = rows[0]
    if capped:
        yield from caps.lock_steps(queue_id)
    created = now.isoformat()
    tail = _NULL if origin is None else _text(origin)
    log_queue = kind == "log"
    ready, delayed = int(JobState.RECORD if log_queue else JobState.READY), int(JobState.DELAYED)
    # What plain jobs have in common.
    usual = rank_of(None, order, low, high)
    queue_expires = (now + timedelta(milliseconds=queue_ttl)).isoformat() if queue_ttl else _NULL
    plain = "\t".join([*[_NULL] * 5, tail])
    states: list[int] = []
    #: By priority.
    ranks: dict[int | None, int] = {}

    def lines() -> Iterator[str]:
        for seq, job, data, meta in zip(seqs, jobs, datas, metas, strict=True):
            if job.body is None and job[TAG:] == PLAIN:
                ranks[None] = rank = usual
                state, available, expires, tag, rest = ready, _NULL, queue_expires, _NULL, plain
            else:
                found = ranks.get(job.priority)
                if found is None:
                    found = ranks[job.priority] = rank_of(job.priority, order, low, high)
                rank, state, available, expires = found, ready, _NULL, _NULL
                if job.run_at is not None or job.delay_ms:
                    at: datetime = job.run_at or now + timedelta(milliseconds=job.delay_ms or 0)
                    if at > now:
                        available = at.isoformat()
                        state = ready if log_queue else delayed
                ttl = queue_ttl if job.ttl_ms is None else job.ttl_ms
                if ttl:
                    expires = (now + timedelta(milliseconds=ttl)).isoformat()
                tag = _NULL if job.tag is None else _text(job.tag)
                rest = (
                    f"{_NULL if meta is None else meta.replace(_BACKSLASH, _ESCAPED)}\t"
                    f"{_NULL if job.body is None else _ESCAPED + 'x' + job.body.hex()}\t"
                    f"{_NULL if job.reply_to is None else _text(job.reply_to)}\t"
                    f"{_NULL if job.result_ttl_ms is None else job.result_ttl_ms}\t"
                    f"{_NULL if job.max_deliveries is None else job.max_deliveries}\t"
                    f"{tail if job.origin is None else _text(job.origin)}"
                )
            states.append(state)
            yield (
                f"{seq}\t{queue_id}\t{seq}\t{rank}\t{state}\t{available}\t{expires}\t{created}\t0\t"
                f"{_NULL if job.key is None else _text(job.key)}\t{_NULL if job.name is None else _text(job.name)}\t"
                # JSON text holds no control characters: only its backslashes need escaping.
                f"{tag}\t{_NULL if data is None else data.replace(_BACKSLASH, _ESCAPED)}\t{rest}\n"
            )

    made = lines()
    # In parts: PostgreSQL stores the first ones while the next are written.
    yield COPY + "bulk_copy", {"parts": iter(lambda: "".join(islice(made, _PART)), "")}
    names = {job.name for job in jobs}
    yield (
        "bulk_close",
        {
            "queue": queue_id,
            "ranks": arrays.EMPTY if log_queue else arrays.integers(set(ranks.values())),
            "seqs": arrays.integers(seqs),
            "name": next(iter(names)) if len(names) == 1 else None,
            "names": arrays.EMPTY if len(names) == 1 else arrays.texts([job.name for job in jobs]),
            "log": log and not log_queue,
            "wake": any(state != delayed for state in states),
            "relax": durability != "fsync",
            "at": now,
        },
    )
    if capped:
        yield from caps.enforce_steps(queue_id, seqs)
    words = map(_LABELS.__getitem__, states)
    return list(map(Enqueued._make, zip(seqs, repeat(EnqueueStatus.QUEUED), words, repeat(now), strict=False)))
