"""A job as JSON, to be enqueued again and again where the code that made it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from ...exceptions import QueueNotFound
from .. import codec
from ..flow.declared import Limited, LimitValues
from ..operation import Statements, operation
from ..queues.presets import Definition, define
from ..queues.queues import make_declared
from ..rows import NewJob, make_id
from .enqueue import enqueue_steps


class Template(NamedTuple):
    """A job, its queue and how that is made if it is missing; ``database``: an alias, if its backend names one."""

    queue: str
    project: str
    database: str | None
    preset: str | None
    options: dict[str, Any]
    job: dict[str, Any]


def dump_template(
    job: NewJob, queue: str, *, project: str, definition: Definition, database: str | None = None
) -> dict[str, Any]:
    """Return what ``enqueue_template`` takes, as JSON; each job that it adds has an id of its own."""
    found = define(project, queue, definition, database)
    values = {name: value for name, value in job._asdict().items() if value is not None and name != "id_end"}
    if "data" in values:
        values["data"] = codec.loads(codec.dumps(job.data))
    if job.run_at is not None:
        values["run_at"] = job.run_at.isoformat()
    if isinstance(job.limit, Limited):
        values["limit"] = [job.limit.key, asdict(job.limit.values)]
    return Template(queue, project, database, found.preset, dict(found.options), values)._asdict()


@operation
def enqueue_templates(given: Sequence[dict[str, Any]]) -> Statements[list[tuple[int, str]]]:
    """Add the jobs of templates; return the number and the id of each. Queues are made if they are missing."""
    groups: dict[tuple[str, str], list[int]] = {}
    templates = [Template(**each) for each in given]
    for index, template in enumerate(templates):
        groups.setdefault((template.project, template.queue), []).append(index)
    made: dict[int, tuple[int, str]] = {}
    for (project, queue), places in groups.items():
        jobs = [_job(templates[index]) for index in places]
        add = partial(enqueue_steps, queue, jobs, project=project, create=False)
        try:
            answers = yield from add()
        except QueueNotFound:
            first = templates[places[0]]
            definition = Definition(first.preset, first.options)
            yield from make_declared(project, queue, definition, first.database)
            answers = yield from add()
        for index, job, answer in zip(places, jobs, answers, strict=True):
            made[index] = answer.seq, make_id(answer.seq, job.id_end) if job.id_end else str(job.key)
    return [made[index] for index in range(len(templates))]


@operation
def enqueue_template(given: dict[str, Any]) -> Statements[tuple[int, str]]:
    """Add the job of a template; return its number and its id. The queue is made if it is missing."""
    (made,) = yield from enqueue_templates([given])
    return made


def _job(template: Template) -> NewJob:
    values = dict(template.job)
    if "run_at" in values:
        values["run_at"] = datetime.fromisoformat(values["run_at"])
    if "limit" in values:
        key, allowed = values["limit"]
        values["limit"] = Limited(key, LimitValues(**allowed))
    job = NewJob(**values)
    return job if job.key is not None else job._replace(id_end=str(uuid4())[-17:])
