"""Changes to the jobs of a queryset, in batches, in the caller's transaction if there is one.

``JobQuerySet`` has these as methods. Each returns how many jobs were changed; what is in another state by then is left
alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..models import Claim, JobQuerySet
from . import run
from .dead.action import DISCARD, REDRIVE, RETRY, act
from .jobs.cancel import cancel as cancel_jobs
from .leases.settle import release as release_jobs
from .leases.sweep import promote
from .limits import MAX_BATCH
from .operation import Steps, operation
from .rows import Release


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


def _act(jobs: JobQuerySet, kind: str, **how: Any) -> int:
    return sum(run(act(kind, seqs, **how), jobs.db).done for batch in _batches(jobs) for seqs in batch.values())


def retry(jobs: JobQuerySet, from_step: str | None) -> int:
    """Bring dead letters back to the queue that they came from."""
    return _act(jobs, RETRY, from_step=from_step)


def redrive(jobs: JobQuerySet, queue: str, from_step: str | None) -> int:
    """Bring dead letters to another queue of their project."""
    return _act(jobs, REDRIVE, to=queue, from_step=from_step)


def discard(jobs: JobQuerySet, reason: str) -> int:
    """Remove dead letters for good."""
    return _act(jobs, DISCARD, reason=reason)


@operation
def _due_now(seqs: Sequence[int]) -> Steps[int]:
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
