"""Jobs that differ in nothing but ids and payloads: lean statements, and work of the client while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from ..operation import COPY, MEANWHILE, Steps
from ..rows import END, PLAIN, TAG, NewJob, make_id

#: Jobs of one call: they are one event.
MOST = 1_000
#: Characters of JSON above which a payload may count as large: such a job has a flag.
LARGE_CHARACTERS = 4_096
#: Jobs of one part of the text of a COPY.
PART = 200
NULL = "\\N"
BACKSLASH, ESCAPED = "\\", "\\\\"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Plain(NamedTuple):
    """Up to ``MOST`` jobs of a queue, ready at once: how many, and what they are called."""

    size: int
    name: str | None
    #: Returns their JSON, none of it large; it runs while PostgreSQL gives them their places.
    datas: Callable[[], Sequence[str | None]]
    #: Returns their keys by their numbers, and whether those are made of the numbers (``make_id``).
    keys: Callable[[Sequence[int]], Sequence[str | None]]
    generated: bool


class Added(NamedTuple):
    """Numbers and keys of the new jobs, and when they were added."""

    seqs: Sequence[int]
    keys: Sequence[str | None]
    at: datetime


def text_of(value: str) -> str:
    """Return a text as COPY takes it."""
    # Tabs and line ends are not printable. Looking is ten times as fast as translating.
    return value if value.isprintable() and BACKSLASH not in value else value.translate(_ESCAPES)


def as_plain(jobs: Sequence[NewJob], datas: Sequence[str | None]) -> Plain | None:
    """Return jobs as plain ones, ``None`` where they are not."""
    first = jobs[0]
    generated = first.id_end is not None
    if len(jobs) > MOST or not all(
        job[TAG:END] == PLAIN and job.body is None and job.name == first.name and (job.id_end is not None) is generated
        for job in jobs
    ):
        return None
    if any(data is not None and len(data) > LARGE_CHARACTERS for data in datas):
        return None

    def keys(seqs: Sequence[int]) -> Sequence[str | None]:
        if generated:
            return [make_id(seq, job.id_end or "") for seq, job in zip(seqs, jobs, strict=True)]
        return [None if job.key is None else text_of(job.key) for job in jobs]

    return Plain(len(jobs), first.name, lambda: datas, keys, generated)


def one_plain_steps(
    project: str, queue: str, name: str, id_end: str, data: str | None, meanwhile: Callable[[], object]
) -> Steps[tuple[int, datetime] | None]:
    """Steps that add a job whose key is made of its number and ``id_end``; return its number and time.

    ``meanwhile`` raises nothing, and may run while PostgreSQL stores it. ``None``: as of ``plain_steps``, or jobs
    without a priority have another rank than 0 in that queue.
    """
    asked = {"project": project, "queue": queue, "name": name, "id_end": id_end, "data": data, MEANWHILE: meanwhile}
    rows = yield "enqueue_plain", asked
    return (rows[0][0], rows[0][1]) if rows else None


def plain_steps(project: str, queue: str, plain: Plain, origin: str | None = None) -> Steps[Added | None]:
    """Steps that add plain jobs, in a transaction of the caller's.

    ``None``: the queue is missing, kept from writers, a log or one with a cap; nothing was added.
    """
    make = cache(plain.datas)

    def meanwhile() -> None:
        with suppress(Exception):  # it is called again below, and raises there
            make()

    asked: dict[str, Any] = {"project": project, "queue": queue, "size": plain.size, "name": plain.name}
    rows = yield "bulk_plain", {**asked, MEANWHILE: meanwhile}
    if not rows:
        return None
    datas = make()
    ((queue_id, seqs, now, rank, expires_at, _),) = rows
    added = Added(seqs, plain.keys(seqs), now)
    before = f"\t{queue_id}\t{now.isoformat()}\t{rank}\t{'t' if plain.generated else 'f'}\t"
    between = f"\t{NULL if plain.name is None else text_of(plain.name)}\t"
    expires = NULL if expires_at is None else expires_at.isoformat()
    after = "\t".join(("", expires, *[NULL] * 6, NULL if origin is None else text_of(origin)))

    def parts() -> Iterator[str]:
        for start in range(0, len(seqs), PART):
            end = start + PART
            part = zip(seqs[start:end], added.keys[start:end], datas[start:end], strict=True)
            # JSON text holds no control characters: only its backslashes need escaping.
            yield "".join(
                f"{seq}{before}{NULL if key is None else key}{between}"
                f"{NULL if data is None else data.replace(BACKSLASH, ESCAPED)}{after}\n"
                for seq, key, data in part
            )

    # In parts: PostgreSQL stores the first ones while the next are written.
    yield COPY + "bulk_copy", {"parts": parts()}
    return added
