"""Uniform jobs: they differ only in ids and payloads; their common options are compiled once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from .. import codec, metadata
from ..limits import LARGE_BYTES
from ..operation import COPY, Statements
from ..rows import END, PLAIN, TAG, NewJob, make_id

#: Jobs of one statement: they are one event.
MOST = 1_000
#: Characters of JSON above which a payload may count as large: a character has at most four bytes.
LARGE_CHARACTERS = LARGE_BYTES // 4
#: Jobs of one part of the text of a COPY.
PART = 200
NULL = "\\N"
BACKSLASH, ESCAPED = "\\", "\\\\"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
#: What uniform jobs may have, all of them the same.
_SHARED: dict[str, Any] = dict.fromkeys(("priority", "meta", "tags", "ttl_ms", "max_deliveries"))


class Shared(NamedTuple):
    """The options that uniform jobs share, as parameters of statements."""

    name: str | None
    priority: int | None
    #: Their metadata as JSON, tags among it; the tags alone as JSON.
    meta: str | None
    tagged: str | None
    ttl: int | None
    max_deliveries: int | None


def shared_of(job: NewJob) -> Shared | None:
    """Return the shared options of a checked job without a body; ``None`` if it has an option that cannot be shared."""
    if job[TAG:END] != PLAIN and job._replace(**_SHARED)[TAG:END] != PLAIN:
        return None
    priority = None if job.priority is None else narrow(job.priority)
    meta = None if (noted := noted_of(job)) is None else codec.dumps(noted, "meta")
    tagged = None if job.tags is None else metadata.tags_json(job.tags)
    return Shared(job.name, priority, meta, tagged, job.ttl_ms, job.max_deliveries)


def noted_of(job: NewJob) -> dict[str, Any] | None:
    """Return the metadata of a job with its tags."""
    return {**(job.meta or {}), metadata.TAGS: job.tags} if job.tags else job.meta


def narrow(priority: int) -> int:
    """Bring a priority into the range of an integer."""
    return max(-(2**31), min(priority, 2**31 - 1))


def most_characters(shared: Shared, max_bytes: int) -> int:
    """Return how long the JSON of a payload may be for sure: allowed, and not large."""
    return min(LARGE_CHARACTERS, max_bytes // 4) - len(shared.meta or "")


def shared_by(jobs: Sequence[NewJob], datas: Sequence[str | None]) -> Shared | None:
    """Return the options that these checked jobs share; ``None`` if they are not uniform."""
    first = jobs[0]
    rest, name, meta, tags, generated = first[TAG:END], first.name, first.meta, first.tags, first.id_end is not None
    # Equal metadata may be other JSON (1, true, 1.0): only the same one is.
    alike = len(jobs) <= MOST and all(
        job[TAG:END] == rest and job.meta is meta and job.tags is tags and job.body is None
        and job.name == name and (job.id_end is not None) is generated
        for job in jobs
    )  # fmt: skip
    shared = shared_of(first) if alike else None
    if shared is None:
        return None
    most = LARGE_CHARACTERS - len(shared.meta or "")
    return None if any(len(data or "") > most for data in datas) else shared


def text_of(value: str) -> str:
    """Return a text as COPY takes it."""
    # Tabs and line ends are not printable. Looking is ten times as fast as translating.
    return value if value.isprintable() and BACKSLASH not in value else value.translate(_ESCAPES)


class Added(NamedTuple):
    """Numbers and keys of the new jobs, and when they were added."""

    seqs: Sequence[int]
    keys: Sequence[str | None]
    at: datetime


def one_steps(
    place: tuple[str, str], shared: Shared, id_end: str, data: str | None
) -> Statements[tuple[int, datetime] | None]:
    """Add one job whose key is made of its number; return that and its time, ``None`` as ``uniform_steps``.

    ``None`` also where no job of the queue had its rank before.
    """
    project, queue = place
    asked = {"project": project, "queue": queue, **shared._asdict(), "id_end": id_end, "data": data}
    rows = yield "enqueue_unkeyed", asked
    return (rows[0][0], rows[0][1]) if rows else None


def uniform_steps(
    place: tuple[str, str],
    shared: Shared,
    datas: Sequence[str | None],
    ids: Sequence[str | None],
    *,
    generated: bool,
    origin: str | None = None,
    held: bool = False,
) -> Statements[Added | None]:
    """Add up to ``MOST`` uniform jobs by COPY, ready at once, in a transaction of the caller's.

    ``None``: the queue is missing, kept from writers (unless ``held``: this transaction has added some), a log or one
    with a cap; nothing was added. ``place`` is project and queue; ``datas`` are payloads as JSON, none of it large;
    ``ids`` the jobs' keys, or with ``generated`` the ends of those that are made of their numbers (``make_id``).
    """
    project, queue = place
    asked = {"project": project, "queue": queue, "size": len(datas), "held": held, **shared._asdict()}
    rows = yield "bulk_uniform", asked
    if not rows:
        return None
    ((queue_id, seqs, now, rank, expires_at, _),) = rows
    keys = list(map(make_id, seqs, cast("Sequence[str]", ids))) if generated else ids
    texts = keys if generated else [NULL if key is None else text_of(key) for key in keys]
    before = f"\t{queue_id}\t{now.isoformat()}\t{rank}\t{'t' if generated else 'f'}\t"
    between = f"\t{NULL if shared.name is None else text_of(shared.name)}\t"
    # JSON text holds no control characters: only its backslashes need escaping.
    rest = (
        NULL if expires_at is None else expires_at.isoformat(),
        NULL,
        NULL if shared.meta is None else shared.meta.replace(BACKSLASH, ESCAPED),
        *[NULL] * 3,
        NULL if shared.max_deliveries is None else str(shared.max_deliveries),
        NULL if origin is None else text_of(origin),
    )
    after = "".join(f"\t{column}" for column in rest)

    def parts() -> Iterator[str]:
        for start in range(0, len(seqs), PART):
            end = start + PART
            part = zip(seqs[start:end], texts[start:end], datas[start:end], strict=True)
            yield "".join(
                f"{seq}{before}{key}{between}{NULL if data is None else data.replace(BACKSLASH, ESCAPED)}{after}\n"
                for seq, key, data in part
            )

    # In parts: PostgreSQL stores the first ones while the next are written.
    yield COPY + "bulk_copy", {"parts": parts()}
    return Added(seqs, keys, now)
