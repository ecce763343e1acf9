"""Large payloads and results: put into the storage before what refers to them is stored, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from .. import conf
from ..exceptions import LargePayloadLost, LargeStorageError, LeaseQueueError, PayloadTooLarge
from . import arrays, codec, store
from .operation import AUTONOMOUS, BEGIN, BLOCKING, Statements
from .store import MARK, Reference, StoredPart, is_reference, parse

if TYPE_CHECKING:
    from .rows import Ending, NewJob


#: Bytes of the large payloads that one call returns, where it cannot return fewer rows.
MAX_LOADED_BYTES = 268_435_456

#: A named tuple with columns of payloads.
Row = tuple[Any, ...]
R = TypeVar("R", bound=Row)


class Columns(NamedTuple):
    """The names of a row's columns for the JSON and the bytes of a payload or result (``None``: without bytes)."""

    data: str = "data_json"
    body: str | None = "body"


PAYLOAD, ONLY_DATA, RESULT = Columns(), Columns(body=None), Columns("result_json", "result_body")


def size_of(row: Row, columns: Columns) -> int:
    """Return the bytes of a row that stand elsewhere."""
    text = getattr(row, columns.data)
    return parse(text).size if is_reference(text) else 0


def any_large(rows: Iterable[Row], columns: Columns = PAYLOAD) -> bool:
    """Return whether a row holds a reference."""
    name = columns.data
    for row in rows:  # a thousand rows of a claim: no call that can be spared
        text = getattr(row, name)
        if text is not None and text.startswith(MARK):
            return True
    return False


def fitting(rows: Sequence[Row], limit: int, columns: Columns = PAYLOAD) -> int:
    """Return how many rows, from the first on, have at most ``limit`` bytes elsewhere; the first always fits."""
    total = 0
    for number, row in enumerate(rows):
        total += size_of(row, columns)
        if number and total > limit:
            return number
    return len(rows)


def try_steps(rows: Sequence[R], columns: Columns = PAYLOAD) -> Statements[list[R | LeaseQueueError]]:
    """Return rows with their content, or why it cannot be had."""
    references = {
        number: parse(text) for number, row in enumerate(rows) if is_reference(text := getattr(row, columns.data))
    }
    if not references:
        return list(rows)
    parts = [(part, reference) for reference in references.values() for part in reference.parts]
    wanted = [part for part, reference in parts if columns.body or part is not reference.body]
    ((contents,),) = yield BLOCKING, {"call": partial(store.read, wanted)}
    found = dict(zip((part.id for part in wanted), contents, strict=True))
    return [
        row if (reference := references.get(number)) is None else _filled(row, reference, found, columns)
        for number, row in enumerate(rows)
    ]


def steps(rows: Sequence[R], columns: Columns = PAYLOAD) -> Statements[list[R]]:
    """Return rows with their content."""
    if not any_large(rows, columns):
        return list(rows)
    if sum(size_of(row, columns) for row in rows) > MAX_LOADED_BYTES:
        raise PayloadTooLarge(
            f"The large payloads of these {len(rows)} jobs have more than {MAX_LOADED_BYTES} bytes together: read fewer"
            " at once."
        )
    loaded: list[R] = []
    for row, found in zip(rows, (yield from try_steps(rows, columns)), strict=True):
        if isinstance(found, LargePayloadLost):
            raise LargePayloadLost(f"Job {getattr(row, 'seq', '')}: {found}") from found
        if isinstance(found, LeaseQueueError):
            raise found
        loaded.append(found)
    return loaded


def lenient_steps(rows: Sequence[R], limit: int, columns: Columns) -> Statements[list[R]]:
    """Return what ``page_steps`` does; data that is lost is replaced by ``{"$lost": why}``: for people."""
    loaded: list[R] = []
    some = rows[: fitting(rows, limit, columns)] if any_large(rows, columns) else rows
    for row, found in zip(some, (yield from try_steps(some, columns)), strict=True):
        if isinstance(found, LargePayloadLost):
            loaded.append(_with(row, {columns.data: json.dumps({"$lost": str(found)})}))
        elif isinstance(found, LeaseQueueError):
            raise found
        else:
            loaded.append(found)
    return loaded


def page_steps(rows: Sequence[R], limit: int, columns: Columns = PAYLOAD) -> Statements[list[R]]:
    """Return the first rows with their content, at most ``limit`` bytes of it but for the first row."""
    if not any_large(rows, columns):
        return list(rows)
    return (yield from steps(rows[: fitting(rows, limit, columns)], columns))


def load(row: R) -> R:
    """Return a row with its payload, read in this thread."""
    reference = parse(getattr(row, PAYLOAD.data))
    found = dict(zip((part.id for part in reference.parts), store.read(reference.parts), strict=True))
    filled = _filled(row, reference, found, PAYLOAD)
    if isinstance(filled, LeaseQueueError):
        raise filled
    return filled


def _filled(
    row: R, reference: Reference, found: dict[int, bytes | LeaseQueueError], columns: Columns
) -> R | LeaseQueueError:
    values: dict[str, Any] = {columns.data: reference.inline}
    for name, part in ((columns.data, reference.data), (columns.body, reference.body)):
        if part is None or name is None:
            continue
        content = found[part.id]
        if isinstance(content, LeaseQueueError):
            return content
        values[name] = content.decode() if name == columns.data else content
    return _with(row, values)


def _with(row: R, values: dict[str, Any]) -> R:
    changed: Any = row
    return cast("R", changed._replace(**values))


class Content(NamedTuple):
    """The JSON text and the bytes of one payload or result."""

    data: str | None
    body: bytes | None

    @property
    def size(self) -> int:
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
    """Return what ``put_steps`` will, without storing: it tells how long the text is that stays in the database."""
    return _references(contents, found, [StoredPart(0, "", "", "", 0)] * len(found))


def put_steps(
    contents: Mapping[int, Content], found: Sequence[tuple[int, str, bytes]]
) -> Statements[dict[int, Reference]]:
    """Store the large parts of contents."""
    # The objects are noted first, in a transaction of its own: one that no job gets is found and removed.
    alias = conf.settings.LARGE.STORAGE
    names = [store.new_name() for _ in found]
    sizes = arrays.integers(len(content) for *_, content in found)
    reserve = {"storage": alias, "names": arrays.texts(names), "sizes": sizes}
    noted = yield AUTONOMOUS, {"name": "large_reserve", "params": reserve}
    items = [(name, content) for name, (*_, content) in zip(names, found, strict=True)]
    ((digests,),) = yield BLOCKING, {"call": partial(store.put, alias, items)}
    parts: list[StoredPart] = []
    for (number,), (name, content), digest in zip(noted, items, digests, strict=True):
        if isinstance(digest, LeaseQueueError):
            raise digest
        parts.append(StoredPart(number, alias, name, digest, len(content)))
    return _references(contents, found, parts)


def link_steps(references: Mapping[int, Reference]) -> Statements[None]:
    """Give the objects of references to jobs, in the transaction that stores them."""
    owners = {part.id: seq for seq, reference in references.items() for part in reference.parts}
    if not owners:
        return
    rows = yield "large_link", {"ids": arrays.integers(owners), "seqs": arrays.integers(owners.values())}
    if len(rows) < len(owners):
        raise LargeStorageError("Storing large payloads took hours: they are being removed again. Try again.")


def result_limit() -> int:
    """Return how many bytes a result may have; one that goes into the storage is measured there."""
    most, large = conf.settings.MAX_RESULT_BYTES, conf.settings.LARGE
    return most if large.ABOVE is None or most <= large.ABOVE else large.MAX_BYTES


def store_results_steps(endings: dict[int, Ending], results: dict[int, str | None]) -> Statements[dict[int, Reference]]:
    """Store what is large of results, and put references in its place; what follows is one transaction."""
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
