"""Writes of the model ``Queue``: made, changed and deleted as the engine's own calls do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models.signals import post_delete, pre_delete

from ...conf.queue_options import OPTIONS
from ...exceptions import InvalidOption
from ...models import Queue
from .. import run
from . import presets, queues

#: What is not an option, and by what it is changed.
_APART = {
    "name": "a queue keeps its name: make another one",
    "project": "a queue keeps its project: make another one",
    "paused_at": "call Queue(name).pause() or .resume()",
    "dead_lettered": "the engine counts it",
    "floors_mended": "the engine counts it",
}


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an ``update`` of several queues; expressions are left to the constraints."""
    for field in values.keys() & _APART:
        raise InvalidOption(f"{field} cannot be updated: {_APART[field]}.")
    plain = {name: value for name, value in values.items() if name in OPTIONS and not _expression(value)}
    return {**values, **presets.check_options(plain)}


def _expression(value: Any) -> bool:
    return hasattr(value, "resolve_expression")


def save(
    queue: Queue, using: str, *, new: bool, there: bool, fields: Collection[str] | None = None, loaded: bool = False
) -> bool:
    """Make or change the queue of a row, whose columns are read anew afterwards."""
    same = {"project": queue.project, "name": queue.name} if loaded else {"pk": queue.pk}
    with transaction.atomic(using=using):
        stored = None if new or (queue.pk is None and not loaded) else Queue.objects.using(using).filter(**same).first()
        if stored is not None:
            queue.pk = stored.pk
            _change(queue, stored, using, fields)
        elif there or fields is not None:
            raise DatabaseError(f"The queue {queue.name!r} is not there any more.")
        elif not run(queues.create(queue.name, project=queue.project, **_options(queue)), using):
            raise IntegrityError(f"There is a queue {queue.name!r} already.")
        else:
            queue.pk = Queue.objects.using(using).get(project=queue.project, name=queue.name).pk
            if queue.paused_at is not None:
                run(queues.pause(queue.name, project=queue.project), using)
        written = None if fields is None else [*fields, "updated_at"]
        queue.refresh_from_db(using=using, fields=written)
    return stored is not None


def _options(queue: Queue) -> dict[str, Any]:
    return {option: getattr(queue, option) for option in OPTIONS}


def _change(queue: Queue, stored: Queue, using: str, fields: Collection[str] | None) -> None:
    def written(field: str) -> bool:
        return (fields is None or field in fields) and getattr(queue, field) != getattr(stored, field)

    for field in ("name", "project"):
        if written(field):
            raise InvalidOption(f"{field} cannot be changed: {_APART[field]}.")
    asked, config = _options(queue), _options(stored)
    changed = {option: value for option, value in asked.items() if written(option)}
    if changed:
        run(queues.configure(stored.name, project=stored.project, **{**config, **changed}), using)
    if written("paused_at"):
        run(queues.pause(stored.name, project=stored.project, paused=queue.paused_at is not None), using)


def delete(queue: Queue, using: str) -> int:
    """Delete the queue of a row with all that it has; return how many were there, 0 or 1."""
    if queue.pk is None:
        raise ValueError("A queue that was not saved cannot be deleted.")
    with transaction.atomic(using=using):
        pre_delete.send(sender=type(queue), instance=queue, using=using, origin=queue)
        gone = run(queues.delete(queue.name, project=queue.project), using)
        post_delete.send(sender=type(queue), instance=queue, using=using, origin=queue)
    queue.pk = None
    return int(gone)
