"""The storage of large content, and the references that stand in the database in its place."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

from django.core.files.base import ContentFile
from django.core.files.storage import storages

from ..exceptions import LargePayloadLost, LargeStorageError, LeaseQueueError
from . import clock

logger = logging.getLogger("django_leasequeue")

T = TypeVar("T")
R = TypeVar("R")

#: JSON text that begins so is a reference. No text of a client does: ``codec.dumps`` writes no space in front.
MARK = ' {"$large":'
_INLINE = ',"data":'
_decode = json.JSONDecoder().raw_decode
#: Objects of one call that are on their way at once.
AT_ONCE = 8
#: What the names of all objects begin with.
ROOT = "leasequeue"


class StoredPart(NamedTuple):
    """One object in a storage: the id under which it is noted, its storage's alias, its name, SHA-256 and bytes."""

    id: int
    storage: str
    name: str
    digest: str
    size: int


class Reference(NamedTuple):
    """The parts of a payload or result that stand elsewhere: its JSON, its bytes."""

    data: StoredPart | None = None
    body: StoredPart | None = None
    #: JSON text that stands here, because only the body was large.
    inline: str | None = None

    @property
    def parts(self) -> list[StoredPart]:
        return [part for part in (self.data, self.body) if part is not None]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def text(self) -> str:
        parts = {name: part._asdict() for name, part in (("data", self.data), ("body", self.body)) if part is not None}
        inline = "" if self.inline is None else f"{_INLINE}{self.inline}"
        return f"{MARK}{json.dumps(parts, separators=(',', ':'))}{inline}}}"


def is_reference(text: str | None) -> bool:
    """Return whether a JSON column holds a reference."""
    return text is not None and text.startswith(MARK)


def parse(text: str) -> Reference:
    """Return the reference that ``text`` is."""
    parts, end = _decode(text, len(MARK))
    inline = text[end + len(_INLINE) : -1] if text.startswith(_INLINE, end) else None
    data, body = (StoredPart(**parts[name]) if name in parts else None for name in ("data", "body"))
    return Reference(data, body, inline)


def new_name() -> str:
    """Return the name of a new object: the day, by which a person finds it in the storage, and a random part."""
    return f"{ROOT}/{clock.now():%Y/%m/%d}/{uuid.uuid4().hex}"


def away_error(storage: str, what: str, error: Exception) -> LargeStorageError:
    """Return the error of a storage that could not do something."""
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return LargeStorageError(f"The storage {storage!r} of large payloads could not {what}: {why}", error)


def _put(alias: str, name: str, content: bytes) -> str:
    try:
        storage = storages[alias]
        saved = storage.save(name, ContentFile(content))
        if saved != name:
            storage.delete(saved)
            raise ValueError(f"it keeps {name!r} as {saved!r}: it must keep names as they are")
    except Exception as error:
        raise away_error(alias, "store an object", error) from error
    return hashlib.sha256(content).hexdigest()


def _read(part: StoredPart) -> bytes:
    try:
        with storages[part.storage].open(part.name, "rb") as file:
            content = bytes(file.read(part.size + 1))
    except FileNotFoundError as error:
        raise LargePayloadLost(f"The object {part.name!r} is not in the storage {part.storage!r}.") from error
    except Exception as error:
        raise away_error(part.storage, "give an object", error) from error
    if len(content) != part.size or hashlib.sha256(content).hexdigest() != part.digest:
        raise LargePayloadLost(
            f"The object {part.name!r} in the storage {part.storage!r} is not what was stored: its SHA-256 differs."
        )
    return content


def _each(work: Callable[[T], R], items: Sequence[T]) -> list[R | LeaseQueueError]:
    """Do the work for all items, some at once; an item's error stands in its place."""

    def answer(item: T) -> R | LeaseQueueError:
        try:
            return work(item)
        except LeaseQueueError as error:
            return error

    if len(items) < 2:
        return [answer(item) for item in items]
    with ThreadPoolExecutor(min(len(items), AT_ONCE), thread_name_prefix="leasequeue-large") as threads:
        return list(threads.map(answer, items))


def put(alias: str, items: Sequence[tuple[str, bytes]]) -> list[str | LeaseQueueError]:
    """Store objects, names and content; return the SHA-256 of each, or why it could not be stored."""
    return _each(lambda item: _put(alias, *item), items)


def read(parts: Sequence[StoredPart]) -> list[bytes | LeaseQueueError]:
    """Return the content of objects, or why it cannot be had: the storage is away, or the object lost."""
    return _each(_read, parts)


def _remove(place: tuple[int, str, str]) -> int:
    number, storage, name = place
    try:
        with suppress(FileNotFoundError):
            storages[storage].delete(name)
    except Exception as error:
        raise away_error(storage, "remove an object", error) from error
    return number


def remove(objects: Sequence[tuple[int, str, str]]) -> list[int]:
    """Remove objects from their storages; return the ids that are gone."""
    answers: list[int | LeaseQueueError] = []
    for storage in dict.fromkeys(storage for _, storage, _ in objects):
        first, *rest = [place for place in objects if place[1] == storage]
        answers += _each(_remove, [first])
        if not isinstance(answers[-1], LeaseQueueError):
            answers += _each(_remove, rest)
    for message in dict.fromkeys(str(answer) for answer in answers if isinstance(answer, LeaseQueueError)):
        logger.warning("%s. It is asked again.", message)
    return [answer for answer in answers if not isinstance(answer, LeaseQueueError)]
