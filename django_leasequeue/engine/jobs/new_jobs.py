"""New jobs: their checks, the parameters that statements take of them, and the COPY that adds many at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobFlag, JobState
from ...exceptions import InvalidOption, PayloadTooLarge
from ...words import JOB_NUMBERS, MAX_YEAR
from .. import arrays, codec, metadata
from ..limits import (
    LARGE_BYTES,
    MAX_CHANNEL_BYTES,
    MAX_KEY_BYTES,
    MAX_NODE_BYTES,
    MAX_SPAN_MS,
    MAX_TAG_BYTES,
    MAX_UNIQUE_BYTES,
    check_integer,
    check_text,
)
from ..operation import COPY, Statements
from ..rows import END, NOT_UNIQUE, PLAIN, TAG, UNIQUE, UNIQUE_END, Enqueued, EnqueueStatus, NewJob, make_id
from .remove import enforce_cap
from .uniform import BACKSLASH, ESCAPED, LARGE_CHARACTERS, NULL, PART, narrow, noted_of, text_of

#: The highest limit of a payload that a call may name.
MAX_BYTES = 256 * 1024 * 1024
#: As plain numbers: the operators of an enum cost more than the rest of the row.
_IS_LARGE, _HAS_REPLY, _HAS_TTL = int(JobFlag.LARGE), int(JobFlag.REPLY), int(JobFlag.RESULT_TTL)
_IS_FLOW = int(JobFlag.FLOW)
#: From this many jobs on COPY is faster than one statement.
COPY_FROM = 100
_is_id_end = re.compile(r"[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch


@lru_cache(maxsize=1_024)
def _check_name(name: str) -> None:
    check_text(name, "name", MAX_KEY_BYTES)


def is_unique(job: NewJob) -> bool:
    """Return whether a job asks for its key to hold by its own words."""
    return job[UNIQUE:UNIQUE_END] != NOT_UNIQUE


def _check_unique(job: NewJob) -> None:
    key = job.key if job.unique_key is None else job.unique_key
    if key is None:
        raise InvalidOption("unique_until, unique_for_ms and on_conflict are about a key: give the job one.")
    check_text(key, "the key of a unique job", MAX_UNIQUE_BYTES)
    if job.unique_until not in (None, "start", "end"):
        raise InvalidOption(f"unique_until must be 'start' or 'end'; it is {job.unique_until!r}.")
    if job.unique_for_ms is not None:
        check_integer(job.unique_for_ms, "unique_for_ms", 1, MAX_SPAN_MS)
        if job.unique_until is not None:
            raise InvalidOption("a key holds for unique_for_ms or until unique_until: give one of them.")
    if job.on_conflict not in (None, "ignore", "replace", "reschedule"):
        raise InvalidOption(f"on_conflict must be 'ignore', 'replace' or 'reschedule'; it is {job.on_conflict!r}.")


def check_job(job: NewJob) -> bool:
    """Check the fields of a job; return whether it is unique by its own words (``is_unique``)."""
    if not isinstance(job, NewJob):
        raise InvalidOption(f"a job to enqueue is a NewJob; it is a {type(job).__name__}.")
    if job.key is not None:
        check_text(job.key, "key", MAX_KEY_BYTES)
    if type(job.name) is str:
        _check_name(job.name)
    elif job.name is not None:
        check_text(job.name, "name", MAX_KEY_BYTES)
    if job.body is not None and not isinstance(job.body, bytes):
        raise InvalidOption(f"body must be bytes; it is a {type(job.body).__name__}.")
    if job.id_end is not None and (job.key is not None or not _is_id_end(job.id_end)):
        raise InvalidOption(
            f"id_end is the last 17 characters of a UUID, and stands instead of a key; it is {job.id_end!r}."
        )
    return job[TAG:END] != PLAIN and _check_rest(job)


def _check_rest(job: NewJob) -> bool:
    if job.tag is not None:
        check_text(job.tag, "tag", MAX_TAG_BYTES)
    if job.reply_to is not None:
        check_text(job.reply_to, "reply_to", MAX_CHANNEL_BYTES)
        if " " in job.reply_to:  # several callers' channels stand on the job with a space between
            raise InvalidOption(f"reply_to must be the name of a channel without spaces; it is {job.reply_to!r}.")
    if job.meta is not None:
        metadata.check_meta(job.meta)
    if job.tags is not None:
        metadata.check_tags(job.tags)
    if job.origin is not None:
        check_text(job.origin, "origin", MAX_NODE_BYTES)
    if job.priority is not None and (isinstance(job.priority, bool) or not isinstance(job.priority, int)):
        raise InvalidOption(f"priority must be an integer; it is {job.priority!r}.")
    run_at: Any = job.run_at
    if run_at is not None:
        if not isinstance(run_at, datetime) or run_at.utcoffset() is None:
            raise InvalidOption("run_at must be an aware datetime (use django.utils.timezone).")
        if run_at.year > MAX_YEAR:
            raise InvalidOption(f"run_at must not be after the year {MAX_YEAR}; it is {run_at}.")
    for name, (low, high) in JOB_NUMBERS.items():
        value = getattr(job, name)
        if value is not None:
            check_integer(value, name, low, high)
    if job[UNIQUE:UNIQUE_END] == NOT_UNIQUE:
        return False
    _check_unique(job)
    return True


def payloads(jobs: Sequence[NewJob]) -> tuple[list[str | None], list[str | None]]:
    """Return the data and the metadata of jobs as JSON."""
    usual = conf.settings.MAX_PAYLOAD_BYTES
    datas: list[str | None] = []
    metas: list[str | None] = []
    for job in jobs:
        limit = usual if job.max_bytes is None else check_integer(job.max_bytes, "max_bytes", 1, MAX_BYTES)
        data = None if job.data is None else codec.dumps(job.data)
        noted = noted_of(job) if job.tags else job.meta
        meta = None if noted is None else codec.dumps(noted, "meta")
        # A character is at most four bytes: only a text near the limit has to be encoded to be measured.
        body = len(job.body or b"")
        size = len(data or "") + len(meta or "") + body
        if size * 4 > limit and body + sum(len(text.encode()) for text in (data, meta) if text) > limit:
            raise payload_too_large(limit)
        datas.append(data)
        metas.append(meta)
    return datas, metas


def flags_of(job: NewJob, data: str | None, meta: str | None) -> int:
    """Return the flags of a new job with these payloads (JSON texts)."""
    data, meta, body = data or "", meta or "", job.body or b""
    flags = 0
    if len(data) + len(meta) + len(body) > LARGE_CHARACTERS:
        size = len(data.encode()) + len(meta.encode()) + len(body)
        flags = _IS_LARGE if size > LARGE_BYTES else 0
    if job.reply_to is not None:
        flags |= _HAS_REPLY
    if job.result_ttl_ms is not None:
        flags |= _HAS_TTL
    if job.flow:
        flags |= _IS_FLOW
    return flags


def payload_too_large(limit: int) -> PayloadTooLarge:
    """Return the error of a payload that has more bytes than it may."""
    return PayloadTooLarge(
        f"A payload of more than {limit} bytes was refused. Keep large data elsewhere and enqueue a reference,"
        " or raise LEASEQUEUE['MAX_PAYLOAD_BYTES']; LEASEQUEUE['LARGE'] puts it into a storage."
    )


def _column(jobs: Sequence[NewJob], name: str, literal: Any) -> str:
    return arrays.optional([getattr(job, name) for job in jobs], literal)


def parameters(
    jobs: Sequence[NewJob], project: str, queue: str, origin: str | None, *, locked: bool = False
) -> dict[str, Any]:
    """Return the parameters of ``enqueue.sql`` for checked jobs."""
    datas, metas = payloads(jobs)
    return {
        "project": project,
        "queue": queue,
        "origin": origin,
        "locked": locked,
        "numbers": arrays.integers(range(1, len(jobs) + 1)),
        "keys": _column(jobs, "key", arrays.texts),
        "names": _column(jobs, "name", arrays.texts),
        "tags": _column(jobs, "tag", arrays.texts),
        "priorities": _column(
            jobs,
            "priority",
            lambda values: arrays.integers([None if value is None else narrow(value) for value in values]),
        ),
        "datas": arrays.optional(datas, arrays.texts),
        "metas": arrays.optional(metas, arrays.texts),
        "tagged": _column(jobs, "tags", lambda values: arrays.texts(map(metadata.tags_json, values))),
        "bodies": _column(jobs, "body", arrays.binaries),
        "run_at": _column(jobs, "run_at", arrays.times),
        "delays": _column(jobs, "delay_ms", arrays.integers),
        "ttls": _column(jobs, "ttl_ms", arrays.integers),
        "reply_to": _column(jobs, "reply_to", arrays.texts),
        "result_ttls": _column(jobs, "result_ttl_ms", arrays.integers),
        "max_deliveries": _column(jobs, "max_deliveries", arrays.integers),
        "origins": _column(jobs, "origin", arrays.texts),
        "flows": _column(jobs, "flow", lambda values: arrays.integers([128 if value else None for value in values])),
        "id_ends": _column(jobs, "id_end", arrays.texts),
    }


class _Place(NamedTuple):
    """The columns of a job's narrow row beside its number."""

    rank: int
    due: datetime | None
    flags: int
    max_deliveries: int | None
    expires_at: datetime | None
    tag: str | None


def rank_of(priority: int | None, order: str, low: int, high: int) -> int:
    """Return the rank of a priority: ascending means earlier (the same rule as in enqueue.sql)."""
    if order == "none":
        return 0
    clamped = min(max(priority or 0, low), high)
    return clamped if order == "asc" else -clamped


def copy_steps(
    queue: str,
    jobs: Sequence[NewJob],
    datas: Sequence[str | None],
    metas: Sequence[str | None],
    project: str,
    origin: str | None,
    *,
    held: bool = False,
) -> Statements[list[Enqueued] | None]:
    """Add jobs by COPY, three times as fast as a statement with arrays, in the caller's transaction.

    ``None`` if the queue is missing, or kept from writers (unless ``held``). A key that is taken refuses them all.
    """
    rows = yield "bulk_open", {"project": project, "queue": queue, "size": len(jobs), "held": held}
    if not rows:
        return None
    ((queue_id, kind, order, low, high, queue_ttl, log, durability, now, seqs, capped),) = rows
    if capped:
        yield "cap_lock", {"queue": queue_id}
    created = now.isoformat()
    tail = NULL if origin is None else text_of(origin)
    is_log = kind == "log"
    # What plain jobs have in common.
    usual = 0 if is_log else rank_of(None, order, low, high)
    expire = now + timedelta(milliseconds=queue_ttl) if queue_ttl else None
    expires = NULL if expire is None else expire.isoformat()
    plain = "\t".join([expires, *[NULL] * 6, tail])
    #: Places of jobs that are not plain, by their index; empty when all are.
    odd: dict[int, _Place] = {}

    def lines() -> Iterator[str]:
        for index, (seq, job, data, meta) in enumerate(zip(seqs, jobs, datas, metas, strict=True)):
            rank, rest = usual, plain
            if job.id_end is not None:
                key = f"t\t{make_id(seq, job.id_end)}"
            else:
                key = "f\t" + (NULL if job.key is None else text_of(job.key))
            if job.body is not None or job[TAG:END] != PLAIN or (data is not None and len(data) > LARGE_CHARACTERS):
                flags = flags_of(job, data, meta)
                place = _place(job, now, queue_ttl, 0 if is_log else rank_of(job.priority, order, low, high), flags)
                odd[index] = place
                rank = place.rank
                rest = (
                    f"{NULL if place.expires_at is None else place.expires_at.isoformat()}\t"
                    f"{NULL if job.tag is None else text_of(job.tag)}\t"
                    f"{NULL if meta is None else meta.replace(BACKSLASH, ESCAPED)}\t"
                    f"{NULL if job.body is None else ESCAPED + 'x' + job.body.hex()}\t"
                    f"{NULL if job.reply_to is None else text_of(job.reply_to)}\t"
                    f"{NULL if job.result_ttl_ms is None else job.result_ttl_ms}\t"
                    f"{NULL if job.max_deliveries is None else job.max_deliveries}\t"
                    f"{tail if job.origin is None else text_of(job.origin)}"
                )
            yield (
                f"{seq}\t{queue_id}\t{created}\t{rank}\t"
                f"{key}\t{NULL if job.name is None else text_of(job.name)}\t"
                # JSON text holds no control characters: only its backslashes need escaping.
                f"{NULL if data is None else data.replace(BACKSLASH, ESCAPED)}\t{rest}\n"
            )

    made = lines()
    # In parts: PostgreSQL stores the first ones while the next are written.
    yield COPY + "bulk_copy", {"parts": iter(lambda: "".join(islice(made, PART)), "")}
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
    yield "bulk_close", {**closing, "type": kind, **_columns(jobs, places, names, is_log)}
    if capped:
        yield from enforce_cap(queue_id, seqs)
    if not odd or is_log:
        word = str((JobState.RECORD if is_log else JobState.READY).label)
        columns = zip(seqs, repeat(EnqueueStatus.QUEUED), repeat(word), repeat(now), strict=False)
        return list(map(Enqueued._make, columns))
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
        "tagged": arrays.optional([metadata.tags_json(job.tags) for job in jobs] if places else [], arrays.texts),
        "names": arrays.EMPTY if len(names) == 1 else arrays.texts([job.name for job in jobs]),
        "wake": is_log or not places or any(place.due is None for place in places),
    }


def _place(job: NewJob, now: datetime, queue_ttl: int, rank: int, flags: int) -> _Place:
    due = None
    if job.run_at is not None or job.delay_ms:
        due = job.run_at or now + timedelta(milliseconds=job.delay_ms or 0)
    ttl = queue_ttl if job.ttl_ms is None else job.ttl_ms
    later = due if due is not None and due > now else None
    expires_at = now + timedelta(milliseconds=ttl) if ttl else None
    return _Place(rank, later, flags, job.max_deliveries, expires_at, job.tag)
