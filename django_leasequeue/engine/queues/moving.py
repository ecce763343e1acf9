"""Moves of a queue to another database: new jobs go there at once, those that are left drain where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import Error, transaction

from ... import conf
from ...enums import DEAD_LETTER_SELF
from ...exceptions import InvalidOption, QueueConflict, QueueNotFound
from ...models import Queue
from .. import arrays, codec
from ..django_executor import DjangoExecutor
from ..operation import Rows, Statements, only, operation
from ..pool import connect
from ..runner import ConnectionExecutor
from . import routing
from .presets import check_name, check_project
from .queues import QueueInfo, Writer, find, require, still_open, writer_steps
from .stats import counts


class Move(NamedTuple):
    """A queue that moves or has moved.

    ``left``: jobs at the source, ``None`` while that cannot be read. ``writers``: transactions there that are older
    than the move and may still add jobs; ``None`` until every process knows of the move.
    """

    project: str
    name: str
    alias: str
    source: str
    draining: bool
    left: int | None = 0
    writers: list[Writer] | None = None


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
            DjangoExecutor(main).fetch(
                "route_move", {"project": project, "name": topic.name, "alias": to, "source": source}
            )
    routing.routes().forget()
    return [each for each in moves() if (each.project, each.name) in {(project, topic.name) for topic in topics}]


@operation
def _copy(info: QueueInfo) -> Statements[None]:
    """Make a queue as it is elsewhere, or give it the options that it has there."""
    params = {"project": info.project, "name": info.name, "config": codec.dumps(info.config, "metadata")}
    if not (yield "queue_create", {**params, "tasks": info.holds_tasks}):
        there = yield from find(info.project, info.name)
        if there is not None and there.type != info.type:
            raise QueueConflict(f"{info.name!r} is a {there.type} there: delete it, or move the queue elsewhere.")
        yield "queue_update", params
    yield "queue_pause", {"project": info.project, "name": info.name, "paused": info.paused_at is not None}


class _Row(NamedTuple):
    """A row of the statement ``routes``."""

    project: str
    name: str
    alias: str
    source: str
    draining: bool
    moved_at: datetime
    settled: bool
    writers: list[str] | None

    @property
    def place(self) -> dict[str, str]:
        return {"project": self.project, "name": self.name}


def moves() -> list[Move]:
    """Return the queues that move or have moved, with what is left at their sources."""
    rows = map(_Row._make, DjangoExecutor(conf.settings.DATABASE).fetch("routes", routing.ROUTES))
    return [_described(row) if row.draining else Move(*row[:5]) for row in rows]


def _described(row: _Row) -> Move:
    try:
        with connect(row.source, patience=routing.KNOWN) as connection:
            source = ConnectionExecutor(connection)
            try:
                found = source.run(counts(row.name, project=row.project))
                left = found.ready + found.delayed + found.in_flight
            except QueueNotFound:
                left = 0
            writers = source.run(writer_steps(looking=True)) if row.writers else []
    except (Error, psycopg.Error):
        return Move(*row[:5], left=None)
    if row.writers is None:
        return Move(*row[:5], left)
    waits_for = still_open(row.writers, writers)
    return Move(*row[:5], left, [writer for writer in writers if writer.transaction in waits_for])


def end_moves(fetch: Callable[[str, Mapping[str, Any]], Rows]) -> list[Move]:
    """Look at the sources of moves, note which are drained (dead letters stay there), and return those.

    ``fetch`` runs statements on ``LEASEQUEUE["DATABASE"]``.
    """
    ended = []
    for row in map(_Row._make, fetch("routes", routing.ROUTES)):
        if not (row.draining and row.settled):
            continue
        found = _look(row)
        if found is None or (found.writers == row.writers and not found.drained):
            continue
        params = {"writers": arrays.texts(found.writers), "drained": found.drained}
        if fetch("route_drained", {**row.place, "moved_at": row.moved_at, **params}) and found.drained:
            ended.append(Move(*row[:5]))
    return ended


class _Found(NamedTuple):
    writers: list[str]
    drained: bool


def _look(row: _Row) -> _Found | None:
    """Return what a source that can be written still has, ``None`` where it does not answer or is a standby."""
    try:
        with connect(row.source, patience=routing.KNOWN) as connection:
            source = ConnectionExecutor(connection)
            # A standby sees neither the locks of its primary nor its last jobs.
            if not only(source.fetch("writable", {})):
                return None
            if row.writers is None or row.writers:
                writers = source.run(writer_steps(looking=True))
                known = sorted({each.transaction for each in writers}) if row.writers is None else row.writers
                if left := still_open(known, writers):
                    return _Found(left, drained=False)
            # Only now: what those transactions added is seen by this statement.
            drained = only(source.fetch("queue_empty", {**row.place, "ended": False})) is not False
            if drained:  # an ack that a crash of the source undoes would bring its job back
                source.fetch("lake/flush", {})
            return _Found([], drained)
    except (Error, psycopg.Error):
        return None
