"""The benchmark's place in a database that others may use: what is refused, what is made, what is cleaned away."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pgtrigger
import psycopg
from django.conf import settings as django_settings
from django.db.models import Model, QuerySet
from django.utils import timezone

from django_leasequeue.engine import arrays
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.models import (
    Attempt,
    Claim,
    DeadLetter,
    Delayed,
    JobResult,
    LeaseEvent,
    Queue,
    QueueFloor,
    QueueRank,
    QueueStat,
    Ready,
    Record,
    StoredJob,
    TopicState,
    Worker,
)

from .options import PROJECT
from .sql import statement

#: A worker that was seen so recently is at work.
_SEEN = timedelta(minutes=5)

#: Where a job or record stands that has not ended.
_PLACES: tuple[type[Model], ...] = (Ready, Delayed, Claim, DeadLetter, Record)
#: What belongs to jobs, and what belongs to queues.
_JOBS: tuple[type[Model], ...] = (*_PLACES, JobResult, Attempt, StoredJob)
_QUEUES: tuple[type[Model], ...] = (QueueFloor, QueueRank, QueueStat, TopicState)


class BenchRefused(LeaseQueueError):
    """The benchmark does not run here; the message says why and what to do."""


def signs_of_production(using: str) -> list[str]:
    """Say what about the settings and the database looks as if others depended on it; empty if nothing does."""
    signs = []
    if not django_settings.DEBUG:
        signs.append("DEBUG is off, as it is where a site is served")
    others = Queue.objects.using(using).exclude(project=PROJECT)
    if any(_manager(place, using).filter(queue__in=others).exists() for place in _PLACES):
        signs.append("there are jobs in its queues")
    seen = Worker.objects.using(using).exclude(project=PROJECT).filter(seen_at__gt=timezone.now() - _SEEN)
    if seen.exists():
        signs.append("a worker is running on it")
    return signs


class Sandbox:
    """Holds a place in the database: one run at a time, nothing left behind.

    Use as a context manager; what an earlier run left (it was killed) goes first.

    Args:
        using: alias of the database.
        connection: held open by the caller for as long as the run takes: its lock keeps other runs out.

    Raises:
        BenchRefused: another run is at work, or the ceiling's tables cannot be made.
    """

    def __init__(self, using: str, connection: psycopg.Connection[Any]) -> None:
        self.using = using
        self._connection = connection

    def __enter__(self) -> Sandbox:
        row = self._connection.execute(statement("lock")).fetchone()
        assert row is not None
        if not row[0]:
            raise BenchRefused("Another benchmark runs on this database: wait for its end, or stop it.")
        try:
            self.clean(everything=True)
            for name in ("bare_create", "bare_index", "bare_result_create", "bare_step_create"):
                self._connection.execute(statement(name))
        except psycopg.errors.InsufficientPrivilege as error:
            raise BenchRefused(
                f"The benchmark makes three tables for its ceilings, and this account may not: {error}"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.clean(everything=True)

    def empty(self) -> None:
        """Remove every job, so that one mode does not change the figures of the next; queues and events stay."""
        self._connection.execute(statement("bare_empty"))
        self.clean(everything=False)

    def clean(self, *, everything: bool) -> None:
        """Delete the benchmark's rows, with ``everything`` also its events, queues and tables; give the space back."""
        queues = list(Queue.objects.using(self.using).filter(project=PROJECT))
        ids = [queue.pk for queue in queues]
        if ids:
            with pgtrigger.ignore("leasequeue.StoredJob:removed_by_engine"):
                for model in _JOBS:
                    self._delete(model, queue_id__in=ids)
            self._connection.execute(statement("steps_forget"))
        self._connection.execute(statement("emitted_forget"), {"project": PROJECT})
        pages = self._connection.execute(statement("event_pages")).fetchall() if ids and everything else []
        if ids and everything:
            # The log may be long: its index on the time keeps to what is not older than the queues.
            since = min(queue.created_at for queue in queues)
            with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
                self._delete(LeaseEvent, occurred_at__gte=since, queue_id__in=ids)
            for model in _QUEUES:
                self._delete(model, queue_id__in=ids)
            self._delete(Queue, pk__in=ids)
        if everything:
            self._delete(Worker, project=PROJECT)
            self._connection.execute(statement("bare_drop"))
        if ids:
            self._connection.execute(statement("vacuum_all" if everything else "vacuum_jobs"))
        if pages:
            self._forget(pages)

    def _forget(self, pages: Sequence[tuple[int, int]]) -> None:
        """Leave the log's indexes as they were, as far as the account may."""
        params = {
            "partitions": arrays.integers([row[0] for row in pages]),
            "pages": arrays.integers([row[1] for row in pages]),
        }
        with suppress(psycopg.errors.InsufficientPrivilege):
            self._connection.execute(statement("event_forget"), params)

    def _delete(self, model: type[Model], **which: Any) -> None:
        _manager(model, self.using).filter(**which).delete()


def _manager(model: type[Model], using: str) -> QuerySet[Any]:
    """Return a queryset that may delete: these models' own do not."""
    return QuerySet(model, using=using)
