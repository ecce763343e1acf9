"""Writes of the models ``Queue`` and ``Job``, done as the engine's own calls do them.

Their managers and querysets have these as methods. Changes to the jobs of a queryset go in batches, in the caller's
transaction if there is one; each returns how many jobs were changed, and leaves alone what is in another state by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models.signals import post_delete, pre_delete

from ..conf.queue_options import OPTIONS
from ..exceptions import InvalidOption
from ..models import Claim, JobQuerySet, Queue
from . import DjangoExecutor, run
from .dead import action
from .jobs.cancel import cancel as cancel_jobs
from .leases.settle import release as release_jobs
from .leases.sweep import promote
from .limits import MAX_BATCH
from .operation import Statements, operation
from .queues import presets, queues
from .rows import Release

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
    plain = {
        name: value for name, value in values.items() if name in OPTIONS and not hasattr(value, "resolve_expression")
    }
    return {**values, **presets.check_options(plain)}


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
    executor = DjangoExecutor(using)
    with executor.transaction():
        pre_delete.send(sender=type(queue), instance=queue, using=using, origin=queue)
        gone = executor.run(queues.drop_steps(queue.name, queue.project))
        post_delete.send(sender=type(queue), instance=queue, using=using, origin=queue)
    if gone is not None:
        executor.run(queues.clear_steps(gone))
    queue.pk = None
    return int(gone is not None)


def _batches(jobs: JobQuerySet) -> Iterator[dict[tuple[str, str], list[int]]]:
    """Yield the numbers of the jobs, a thousand at a time, by the project and the name of their queue."""
    rows = jobs.values_list("queue__project", "queue__name", "pk").iterator(MAX_BATCH)
    while batch := list(islice(rows, MAX_BATCH)):
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for project, queue, seq in batch:
            found[project, queue].append(seq)
        yield found


def cancel(jobs: JobQuerySet, running: bool) -> int:
    """Take out jobs that were not started; with ``running`` those that run, too."""
    return sum(
        len(run(cancel_jobs(queue, seqs=seqs, project=project, running=running), jobs.db))
        for batch in _batches(jobs)
        for (project, queue), seqs in batch.items()
    )


def act(jobs: JobQuerySet, kind: str, **how: Any) -> int:
    """Retry, redrive or discard dead letters."""
    return sum(run(action.act(kind, seqs, **how), jobs.db).done for batch in _batches(jobs) for seqs in batch.values())


@operation
def _due_now(seqs: Sequence[int]) -> Statements[int]:
    queues = set()
    done = 0
    for seq in seqs:
        for (queue_id,) in (yield "run_now", {"seq": seq}):
            queues.add(queue_id)
            done += 1
    if queues:
        yield from promote(sorted(queues))
    return done


def run_now(jobs: JobQuerySet) -> int:
    """Make delayed jobs ready."""
    return sum(run(_due_now(seqs), jobs.db) for batch in _batches(jobs) for seqs in batch.values())


def release(jobs: JobQuerySet) -> int:
    """Take leased jobs from their workers: they are ready again, and what the workers say of them is refused."""
    done = 0
    for batch in _batches(jobs):
        for (project, queue), seqs in batch.items():
            held = Claim.objects.using(jobs.db).filter(queue__project=project, queue__name=queue, seqs__overlap=seqs)
            wanted = set(seqs)
            for token, node, of_claim in held.values_list("token", "node", "seqs"):
                asked = [Release(seq, token, delay_ms=0) for seq in of_claim if seq in wanted]
                done += len(run(release_jobs(asked, node, project=project), jobs.db).released)
    return done
