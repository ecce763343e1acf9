"""Moves of a queue to another database: new jobs go there at once, those that are left drain where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from django.db import Error, transaction
from django.db.models import QuerySet

from ... import conf
from ...enums import DEAD_LETTER_SELF
from ...exceptions import InvalidOption, QueueConflict, QueueNotFound
from ...models import Queue, Route
from .. import clock, codec
from ..operation import Rows, Steps, operation
from ..pool import connect
from ..runner import ConnectionExecutor, DjangoExecutor
from . import routing
from .presets import check_name, check_project
from .queues import QueueInfo, find, require
from .stats import counts

#: Seconds from a move until its queue can count as drained: every process knows of the move by then.
SETTLED = 5 * routing.KNOWN


class Move(NamedTuple):
    """A queue that moves or has moved; ``left``: jobs at the source, ``None`` while that cannot be read."""

    project: str
    name: str
    alias: str
    source: str
    draining: bool
    left: int | None


def move(name: str, to: str, project: str = "") -> list[Move]:
    """Let new jobs of a queue, and of its dead-letter topic, go to another database.

    It is an error for a log, and where that database has a log of the name.
    """
    check_project(project)
    check_name(name)
    if to not in (known := routing.aliases()) or len(known) == 1:
        raise InvalidOption(
            f"There is no database {to!r} for queues: LEASEQUEUE['DATABASES'] names {', '.join(map(repr, known))}."
        )
    routing.routes().forget()
    source = routing.alias_of(project, name, adding=True)
    if routing.alias_of(project, name) != source:
        raise InvalidOption(f"{name!r} is still moving to {source!r}: wait until it is drained, then move it again.")
    if source == to:
        raise InvalidOption(f"{name!r} is in the database {to!r} already.")
    info = DjangoExecutor(source).run(require(project, name))
    topics = [info]
    if (dead_letter := info.config["dead_letter"]) not in (None, DEAD_LETTER_SELF):
        topics += filter(None, [DjangoExecutor(source).run(find(project, dead_letter))])
    same = Queue.objects.using(source).filter(project=project).exclude(name=name)
    shared = same.filter(dead_letter__in=[name, *([] if len(topics) == 1 else [dead_letter])]).first()
    if shared is not None:
        raise InvalidOption(
            f"{name!r} cannot move alone: {shared.name!r} has the dead-letter topic {shared.dead_letter!r}, and dead"
            " letters move within one database. Give one of the two another dead_letter first."
        )
    main = conf.settings.DATABASE
    with transaction.atomic(using=to):
        for topic in topics:
            DjangoExecutor(to).run(_copy(topic))
    with transaction.atomic(using=main):
        for topic in topics:
            route = Route(project=project, name=topic.name, alias=to, source=source, moved_at=clock.now())
            QuerySet[Route](Route, using=main).bulk_create(  # the model itself refuses writes
                [route],
                update_conflicts=True,
                unique_fields=["project", "name"],
                update_fields=["alias", "source", "moved_at", "drained_at"],
            )
    routing.routes().forget()
    return [each for each in moves() if (each.project, each.name) in {(project, topic.name) for topic in topics}]


@operation
def _copy(info: QueueInfo) -> Steps[None]:
    """Make a queue as it is elsewhere, or give it the options that it has there."""
    params = {"project": info.project, "name": info.name, "config": codec.dumps(info.config, "metadata")}
    if not (yield "queue_create", params):
        there = yield from find(info.project, info.name)
        if there is not None and there.type != info.type:
            raise QueueConflict(f"{info.name!r} is a {there.type} there: delete it, or move the queue elsewhere.")
        yield "queue_update", params
    yield "queue_pause", {"project": info.project, "name": info.name, "paused": info.paused_at is not None}


def moves() -> list[Move]:
    """Return the queues that move or have moved, with the jobs that are left at their sources."""
    return list(_look(DjangoExecutor(conf.settings.DATABASE).fetch("routes", {"size": routing.MAX_ROUTES})))


def _look(rows: Rows) -> Iterator[Move]:
    for project, name, alias, source, draining in rows:
        yield Move(project, name, alias, source, draining, _left(project, name, source) if draining else 0)


def _left(project: str, name: str, source: str) -> int | None:
    try:
        with connect(source, patience=routing.KNOWN) as connection:
            found = ConnectionExecutor(connection).run(counts(name, project=project))
    except QueueNotFound:
        return 0
    except (Error, psycopg.Error):
        return None
    return found.ready + found.delayed + found.in_flight


def drained(rows: Rows) -> Iterator[Move]:
    """Yield of these routes those whose source has no job any more (dead letters stay there)."""
    yield from (each for each in _look(rows) if each.draining and each.left == 0)
