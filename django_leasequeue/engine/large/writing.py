"""Putting large payloads and results into the storage, before the jobs and results that refer to them are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ... import conf
from ...exceptions import LargeStorageError, LeaseQueueError, PayloadTooLarge
from .. import arrays, codec
from ..operation import APART, BEGIN, BLOCKING, Steps
from ..rows import Ending, NewJob
from . import store
from .store import Reference, StoredPart


class Content(NamedTuple):
    """The JSON text and the bytes of one payload or result."""

    data: str | None
    body: bytes | None

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len((self.data or "").encode()) + len(self.body or b"")


def contents_of(jobs: Sequence[NewJob]) -> list[Content]:
    """Return what new jobs hold."""
    contents = [Content(None if job.data is None else codec.dumps(job.data), job.body) for job in jobs]
    for job, content in zip(jobs, contents, strict=True):
        if job.max_bytes is not None and content.size > job.max_bytes:
            raise PayloadTooLarge(f"A payload of more than {job.max_bytes} bytes was refused.")
    return contents


def replaced(jobs: Sequence[NewJob], contents: Sequence[Content], references: Mapping[int, Reference]) -> list[NewJob]:
    """Return the jobs with their data written, and with references in place of what is large."""
    written = []
    for index, (job, content) in enumerate(zip(jobs, contents, strict=True)):
        reference = references.get(index)
        if reference is not None:
            body = None if reference.body else job.body
            written.append(job._replace(data=codec.JsonText(reference.text()), body=body))
        else:
            written.append(job if content.data is None else job._replace(data=codec.JsonText(content.data)))
    return written


def large_parts(contents: Mapping[int, Content]) -> list[tuple[int, str, bytes]]:
    """Return the parts that belong into the storage: their numbers, ``data`` or ``body``, and their bytes."""
    limit = conf.settings.LARGE.ABOVE
    found: list[tuple[int, str, bytes]] = []
    if limit is None:
        return found
    for number, content in contents.items():
        # A character is at most four bytes: only a text near the limit has to be encoded to be measured.
        if content.data is not None and len(content.data) * 4 > limit and len(text := content.data.encode()) > limit:
            found.append((number, "data", text))
        if content.body is not None and len(content.body) > limit:
            found.append((number, "body", content.body))
    largest, most = max((len(content) for *_, content in found), default=0), conf.settings.LARGE.MAX_BYTES
    if largest > most:
        raise PayloadTooLarge(
            f"A payload or result of {largest} bytes was refused: at most {most} go into the storage. Keep it elsewhere"
            " and pass on a reference, or raise LEASEQUEUE['LARGE']['MAX_BYTES']."
        )
    return found


def _references(
    contents: Mapping[int, Content], found: Sequence[tuple[int, str, bytes]], parts: Sequence[StoredPart]
) -> dict[int, Reference]:
    references: dict[int, Reference] = {}
    for part, (number, kind, _) in zip(parts, found, strict=True):
        known = references.get(number, Reference())
        references[number] = known._replace(data=part) if kind == "data" else known._replace(body=part)
    return {
        number: reference if reference.data else reference._replace(inline=contents[number].data)
        for number, reference in references.items()
    }


def planned(contents: Mapping[int, Content], found: Sequence[tuple[int, str, bytes]]) -> dict[int, Reference]:
    """Return references as ``put_steps`` will, to nothing: for who has to know what stays here."""
    return _references(contents, found, [StoredPart(0, "", "", "", 0)] * len(found))


def put_steps(contents: Mapping[int, Content], found: Sequence[tuple[int, str, bytes]]) -> Steps[dict[int, Reference]]:
    """Steps that store the large parts of contents.

    The objects are noted first, in a transaction of its own: whatever becomes of the caller, one that no job gets is
    found and removed.
    """
    alias = conf.settings.LARGE.STORAGE
    names = [store.new_name() for _ in found]
    reserve = {
        "storage": alias,
        "names": arrays.texts(names),
        "sizes": arrays.integers(len(content) for *_, content in found),
    }
    noted = yield APART, {"name": "large_reserve", "params": reserve}
    items = [(name, content) for name, (*_, content) in zip(names, found, strict=True)]
    ((digests,),) = yield BLOCKING, {"call": partial(store.put, alias, items)}
    parts: list[StoredPart] = []
    for (number,), (name, content), digest in zip(noted, items, digests, strict=True):
        if isinstance(digest, LeaseQueueError):
            raise digest
        parts.append(StoredPart(number, alias, name, digest, len(content)))
    return _references(contents, found, parts)


def link_steps(references: Mapping[int, Reference]) -> Steps[None]:
    """Steps that give the objects of references to jobs, in the transaction that stores them."""
    owners = {part.id: seq for seq, reference in references.items() for part in reference.parts}
    if not owners:
        return
    rows = yield "large_link", {"ids": arrays.integers(owners), "seqs": arrays.integers(owners.values())}
    if len(rows) < len(owners):
        raise LargeStorageError("Storing large payloads took hours: they are being removed again. Try again.")


def result_limit() -> int:
    """Return how many bytes a result may have; one that goes into the storage is measured there."""
    settings = conf.settings
    if settings.LARGE.ABOVE is None or settings.LARGE.ABOVE >= settings.MAX_RESULT_BYTES:
        return settings.MAX_RESULT_BYTES
    return settings.LARGE.MAX_BYTES


def store_results_steps(endings: dict[int, Ending], results: dict[int, str | None]) -> Steps[dict[int, Reference]]:
    """Steps that store what is large of results, and put references in its place; what follows is one transaction."""
    contents = {seq: Content(results[seq], ending.body) for seq, ending in endings.items()}
    found = large_parts(contents)
    if not found:
        return {}
    large = yield from put_steps(contents, found)
    for seq, reference in large.items():
        results[seq] = reference.text()
        if reference.body is not None:
            endings[seq] = endings[seq]._replace(body=None)
    yield BEGIN, {}
    return large
