"""Ticks of recurring tasks become jobs: many in a transaction, each tick once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction

from ..engine import DjangoExecutor, arrays, clock, codec
from ..engine.jobs.template import enqueue_template, enqueue_templates
from .declarations import task_of, template_of
from .duty import MAX_ERROR


class DueTask(NamedTuple):
    """The call of a recurring task, and its job if it is stored. Arguments and job are JSON."""

    task: str
    args_json: str
    kwargs_json: str
    backend: str
    queue_name: str
    priority: int | None
    expires: int | None
    job_json: str | None = None


class Tick(NamedTuple):
    """A due tick: its task, its time, the next one (``None``: none); the job if the task's row has none; ms to wait."""

    task_id: int
    name: str
    at: datetime
    following: datetime | None
    job: dict[str, Any] | None = None
    delay: int = 0


class ElsewhereTask(NamedTuple):
    """A task with a taken tick, which a backend without our databases is to enqueue now."""

    task_id: int
    name: str
    due: DueTask
    delay: int


#: Fences a transaction: it commits only while its leader leads.
Fence = Callable[[DjangoExecutor], object]


def job_of(due: DueTask) -> dict[str, Any] | None:
    """Return the job to enqueue, made by the imported task if none is stored; ``None``: its backend enqueues it."""
    return template_of(*due[:-1]) if due.job_json is None else codec.loads(due.job_json)


def enqueue_due(alias: str, due: DueTask) -> str:
    """Enqueue a recurring task once; return the id of its result."""
    job = job_of(due)
    return enqueue_elsewhere(due) if job is None else DjangoExecutor(alias).run(enqueue_template(job))[1]


def enqueue_elsewhere(due: DueTask, delay: int = 0) -> str:
    """Enqueue a task by its backend, ``delay`` ms later; return the id of its result."""
    task = task_of(due.task, due.backend, due.queue_name, due.priority, due.expires)
    if delay:
        task = task.using(run_after=clock.now() + timedelta(milliseconds=delay))
    return str(task.enqueue(*codec.loads(due.args_json), **codec.loads(due.kwargs_json)).id)


def take_ticks(
    alias: str, ticks: Sequence[Tick], fence: Fence = lambda executor: None
) -> tuple[list[Tick], list[ElsewhereTask]]:
    """Enqueue ticks in one transaction, all or none; return those that this call took, and tasks of other backends.

    A tick is taken if and only if its job is enqueued. (Another backend enqueues its task after the commit, so at most
    once.) A locked row waits for the next run.
    """
    executor = DjangoExecutor(alias)
    executor.announces = False  # receivers of another service may be absent here, and one that blocks would stop all
    with transaction.atomic(using=alias):
        fence(executor)
        rows = executor.fetch("recurring_take", _columns(ticks))
        taken = {row[0]: DueTask._make(row[1:]) for row in rows}
        mine = [tick for tick in ticks if tick.task_id in taken]
        jobs = [
            tick.job if (due := taken[tick.task_id]).job_json is None else codec.loads(due.job_json) for tick in mine
        ]
        jobs = [job and _delayed(job, tick.delay) for job, tick in zip(jobs, mine, strict=True)]
        made = executor.run(enqueue_templates([job for job in jobs if job is not None]))
        numbers = iter(made)
        seqs = [None if job is None else next(numbers)[0] for job in jobs]
        if mine:
            executor.fetch("recurring_ticked", {**_columns(mine), "seqs": arrays.integers(seqs), "error": ""})
    elsewhere = [
        ElsewhereTask(tick.task_id, tick.name, taken[tick.task_id], tick.delay)
        for tick, job in zip(mine, jobs, strict=True)
        if job is None
    ]
    return mine, elsewhere


def skip(alias: str, tick: Tick, why: str, fence: Fence = lambda executor: None) -> None:
    """Take a tick without a job, and note why."""
    executor = DjangoExecutor(alias)
    with transaction.atomic(using=alias):
        fence(executor)
        if executor.fetch("recurring_take", _columns([tick])):
            executor.fetch("recurring_ticked", {**_columns([tick]), "seqs": arrays.integers([None]), "error": cut(why)})


def _delayed(template: dict[str, Any], delay: int) -> dict[str, Any]:
    """Return a template whose job starts ``delay`` ms later, and expires later by as much."""
    later = {"delay_ms": delay, **{name: ms + delay for name, ms in template["job"].items() if name == "ttl_ms"}}
    return {**template, "job": {**template["job"], **later}} if delay else template


def cut(error: str) -> str:
    """Return the text of an error as a row keeps it."""
    return error.replace("\x00", "")[:MAX_ERROR]


def _columns(ticks: Sequence[Tick]) -> dict[str, str]:
    return {
        "ids": arrays.integers(tick.task_id for tick in ticks),
        "ticks": arrays.times(tick.at for tick in ticks),
        "nexts": arrays.times(tick.following for tick in ticks),
    }
