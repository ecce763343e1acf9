"""Jobs of tasks: the operations that store them and read them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import conf, engine
from ..engine.jobs import results
from ..engine.jobs.unique import hold_steps
from ..engine.large import reading
from ..engine.limits import MAX_BATCH
from ..engine.operation import BEGIN, Steps, operation
from ..engine.queues.definition import Definition
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from .options import BackendOptions
from .results import ResultRow

#: The columns of a row that may stand in a storage.
_DATA, _VALUE = reading.Columns("data", None), reading.Columns("value", None)


@operation
def submit(
    queues: Mapping[str, Sequence[engine.NewJob]],
    options: BackendOptions,
) -> Steps[dict[str, list[engine.Enqueued]]]:
    """Add jobs to queues of one database, all or none; a queue that is missing is made as the settings declare it.

    Args:
        queues: the jobs of each queue, at least one in all.
        options: the backend's.

    Returns:
        The engine's answers for each queue, in order.

    Raises:
        QueueNotFound: a queue is missing, nothing declares it, and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        InvalidOption: a job was refused; nothing was added.
    """
    batches = list(_batches(queues))
    if len(batches) > 1:
        yield BEGIN, {}
        for queue in sorted(queues):
            yield from hold_steps(options.project, queue, queues[queue])
    answers: dict[str, list[engine.Enqueued]] = {}
    for queue, jobs in batches:
        try:
            added = yield from _add(queue, jobs, options).steps()
        except QueueNotFound:
            yield from make_declared(options.project, queue, Definition(*options.declaration(queue)), options.database)
            added = yield from _add(queue, jobs, options).steps()
        answers.setdefault(queue, []).extend(added)
    return answers


def check(queues: Mapping[str, Sequence[engine.NewJob]], options: BackendOptions) -> None:
    """Refuse jobs that ``submit`` would refuse for what they are, without asking the database.

    Args:
        queues: the jobs of each queue.
        options: the backend's.

    Raises:
        InvalidOption: a job is not allowed.
    """
    for queue, jobs in _batches(queues):
        steps = _add(queue, [job._replace(limit=None) for job in jobs], options).steps()
        next(steps)  # what is given is checked before the first statement is asked for
        steps.close()


def _batches(queues: Mapping[str, Sequence[engine.NewJob]]) -> Iterator[tuple[str, Sequence[engine.NewJob]]]:
    size = conf.settings.MAX_ENQUEUE
    for queue, jobs in queues.items():
        for start in range(0, len(jobs), size):
            yield queue, jobs[start : start + size]


def _add(queue: str, jobs: Sequence[engine.NewJob], options: BackendOptions) -> engine.Operation[list[engine.Enqueued]]:
    return engine.enqueue(queue, jobs, project=options.project, create=False, fresh=True)


@operation
def find_taken(
    queues: Mapping[str, Sequence[engine.Enqueued]], project: str
) -> Steps[dict[int, tuple[str, ResultRow | None]]]:
    """Read what is known of the jobs that hold keys of unique tasks.

    Args:
        queues: answers of ``submit``.
        project: the tenant.

    Returns:
        By the numbers of those jobs: the id of the result, and its row if there is one. Jobs that are gone are not in
        it.
    """
    found: dict[int, tuple[str, ResultRow | None]] = {}
    for queue, answers in queues.items():
        seqs = list(dict.fromkeys(a.seq for a in answers if a.status is not engine.EnqueueStatus.QUEUED))
        for start in range(0, len(seqs), MAX_BATCH):
            rows = yield from results.status(queue, seqs=seqs[start : start + MAX_BATCH], project=project).steps()
            for row in rows:
                if row.key is not None:
                    found[row.seq] = row.key, (yield from find(row.key, project).steps())
    return found


@operation
def find(key: str, project: str) -> Steps[ResultRow | None]:
    """Read what is known of a job by its key; ``None`` if nothing is."""
    rows = yield "task_result", {"key": key, "project": project}
    if not rows:
        return None
    found = [ResultRow(*rows[0])]
    for columns in (_DATA, _VALUE):
        found = yield from reading.steps(found, columns)
    return found[0]
