"""The storage itself: writing objects, reading them back, removing them. Nothing here knows of the database."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from django.core.files.base import ContentFile
from django.core.files.storage import storages

from ...exceptions import LargePayloadLost, LargeStorageError, LeaseQueueError
from .. import clock
from .reference import StoredPart

logger = logging.getLogger("django_leasequeue")

T = TypeVar("T")
R = TypeVar("R")

#: Objects of one call that are on their way at once.
AT_ONCE = 8
#: What the names of all objects begin with.
ROOT = "leasequeue"


def new_name() -> str:
    """Return the name of a new object: its day, so that whoever looks into the storage finds their way, and chance."""
    now = clock.current() or datetime.now(UTC)
    return f"{ROOT}/{now:%Y/%m/%d}/{uuid.uuid4().hex}"


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of content, 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def away_error(storage: str, what: str, error: Exception) -> LargeStorageError:
    """Return the error of a storage that could not do something."""
    return LargeStorageError(f"The storage {storage!r} of large payloads could not {what}: {_words(error)}", error)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _put(alias: str, name: str, content: bytes) -> str:
    try:
        storage = storages[alias]
        saved = storage.save(name, ContentFile(content))
        if saved != name:
            storage.delete(saved)
            raise ValueError(f"it keeps {name!r} as {saved!r}: it must keep names as they are")
    except Exception as error:
        raise away_error(alias, "store an object", error) from error
    return digest_of(content)


def _read(part: StoredPart) -> bytes:
    try:
        with storages[part.storage].open(part.name, "rb") as file:
            content = bytes(file.read(part.size + 1))
    except FileNotFoundError as error:
        raise LargePayloadLost(f"The object {part.name!r} is not in the storage {part.storage!r}.") from error
    except Exception as error:
        raise away_error(part.storage, "give an object", error) from error
    if len(content) != part.size or digest_of(content) != part.digest:
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
    """Return the content of objects, or why it cannot be had.

    ``LargeStorageError``: the storage is away. ``LargePayloadLost``: it has no such object, or another content.
    """
    return _each(_read, parts)


def _remove(place: tuple[int, str, str]) -> int:
    number, storage, name = place
    try:
        storages[storage].delete(name)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise away_error(storage, "remove an object", error) from error
    return number


def remove(objects: Sequence[tuple[int, str, str]]) -> list[int]:
    """Remove objects from their storages; return the ids of those that are not there any more."""
    answers: list[int | LeaseQueueError] = []
    for storage in dict.fromkeys(storage for _, storage, _ in objects):
        first, *rest = [place for place in objects if place[1] == storage]
        answers += _each(_remove, [first])
        if not isinstance(answers[-1], LeaseQueueError):
            answers += _each(_remove, rest)
    for message in dict.fromkeys(str(answer) for answer in answers if isinstance(answer, LeaseQueueError)):
        logger.warning("%s. It is asked again.", message)
    return [answer for answer in answers if not isinstance(answer, LeaseQueueError)]
