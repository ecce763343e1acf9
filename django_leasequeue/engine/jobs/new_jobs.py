"""Checks of new jobs, and the parameters that statements take of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from ... import conf
from ...enums import JobFlag
from ...exceptions import InvalidOption, PayloadTooLarge
from ...sql.spark import MAX_YEAR, NUMBERS
from .. import arrays, codec, tags, tracing
from ..limits import (
    MAX_CHANNEL_BYTES,
    MAX_KEY_BYTES,
    MAX_NODE_BYTES,
    MAX_SPAN_MS,
    MAX_TAG_BYTES,
    MAX_UNIQUE_BYTES,
    check_integer,
    check_text,
)
from ..rows import END, NOT_UNIQUE, PLAIN, TAG, UNIQUE, UNIQUE_END, NewJob

#: The highest limit of a payload that a call may name.
MAX_BYTES = 256 * 1024 * 1024
#: Bytes above which a payload counts as large, as in enqueue.sql; characters that may have so many (of four bytes).
_LARGE_BYTES = 16_384
LARGE_CHARACTERS = _LARGE_BYTES // 4
#: As plain numbers: the operators of an enum cost more than the rest of the row.
_IS_LARGE, _HAS_REPLY, _HAS_TTL = int(JobFlag.LARGE), int(JobFlag.REPLY), int(JobFlag.RESULT_TTL)
_IS_FLOW = int(JobFlag.FLOW)
_is_id_end = re.compile(r"[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch


@lru_cache(maxsize=1_024)
def _check_name(name: str) -> None:
    """Check the name of a job: most jobs have one of few."""
    check_text(name, "name", MAX_KEY_BYTES)


def check_meta(meta: Any, what: str = "meta") -> None:
    """Check the metadata of a job."""
    if not isinstance(meta, dict):
        raise InvalidOption(f"{what} must be a dict; it is a {type(meta).__name__}.")
    for name in meta:
        if isinstance(name, str) and name.startswith("$") and type(meta) is not tracing.Meta:
            raise InvalidOption(
                f"{what} must not have names that begin with '$': they are reserved for what the queues note; there is"
                f" {name[:80]!r}."
            )


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
        check_meta(job.meta)
    if job.tags is not None:
        tags.check_tags(job.tags)
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
    for name, (low, high) in NUMBERS.items():
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
        noted = {**(job.meta or {}), tags.META: job.tags} if job.tags else job.meta
        meta = None if noted is None else codec.dumps(noted, "meta")
        # A character is at most four bytes: only a text near the limit has to be encoded to be measured.
        size = len(data or "") + len(meta or "") + len(job.body or b"")
        if size * 4 > limit and (size > limit or _bytes(data) + _bytes(meta) + len(job.body or b"") > limit):
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
        flags = _IS_LARGE if size > _LARGE_BYTES else 0
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


def _bytes(text: str | None) -> int:
    return len(text.encode()) if text else 0


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
        "priorities": _column(jobs, "priority", lambda values: arrays.integers(narrow(values))),
        "datas": arrays.optional(datas, arrays.texts),
        "metas": arrays.optional(metas, arrays.texts),
        "tagged": _column(jobs, "tags", lambda values: arrays.texts(map(tags.tags_json, values))),
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


def narrow(values: list[int | None]) -> list[int | None]:
    """Bring priorities into the range of an integer."""
    return [None if value is None else max(-(2**31), min(value, 2**31 - 1)) for value in values]
