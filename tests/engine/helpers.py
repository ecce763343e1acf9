"""Short words for what nearly every engine test does."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection as django_connection

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, DjangoExecutor, Enqueued, JobRow, LeasedJob, NewJob
from django_leasequeue.engine.jobs.read import get_jobs
from django_leasequeue.engine.jobs.results import INLINE_BYTES, Status, complete_steps, status
from django_leasequeue.engine.leases.floor import Proposals
from django_leasequeue.engine.operation import Statements, operation
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import JobEvent, JobResult, JobState, LiveJob, Queue, QueueFloor, Ready
from tests.support.rows import rows
from tests.support.waiting import eventually

NODE = "worker-1"
OTHER = "worker-2"


def make(name: str = "work", **options: Any) -> int:
    project = options.get("project", "")
    engine.run(engine.create(name, **options))
    return Queue.objects.get(project=project, name=name).pk


@operation
def read_result(queue: str, **job: Any) -> Statements[Status]:
    """Read the status of one job together with its whole result."""
    (found,) = yield from status(queue, inline=INLINE_BYTES, **job)
    return (yield from complete_steps(found))


def enqueue(*jobs: NewJob, queue: str = "work", **call: Any) -> list[Enqueued]:
    return engine.run(engine.enqueue(queue, list(jobs), **call))


def put(count: int = 1, queue: str = "work", project: str = "", **fields: Any) -> list[int]:
    jobs = [NewJob(data=number, **fields) for number in range(count)]
    return [answer.seq for answer in engine.run(engine.enqueue(queue, jobs, project=project))]


def read_job(seq: int, project: str = "") -> JobRow | None:
    return next(iter(engine.run(get_jobs([seq], project=project))), None)


def claim(size: int = 1, queue: str | Sequence[str] = "work", node: str = NODE, **call: Any) -> list[LeasedJob]:
    return engine.run(engine.claim(queue, node, size, **call))


def one(queue: str = "work", node: str = NODE, **call: Any) -> LeasedJob:
    (job,) = claim(1, queue, node, **call)
    return job


def claim_only(seq: int, size: int = 10, **call: Any) -> LeasedJob:
    """Claim jobs: this one comes, and no other."""
    (job,) = claim(size, **call)
    assert job.seq == seq
    return job


def give_back(job: LeasedJob, *how: Any, **call: Any) -> engine.Settled:
    """Release a job; ``how`` is the delay and the failure of its `engine.Release`."""
    return engine.run(engine.release([engine.Release(job.seq, job.token, *how)], NODE, **call))


def seqs(jobs: Iterable[Any]) -> list[int]:
    return [job.seq for job in jobs]


def outcomes(settled: engine.Settled) -> list[str]:
    return [outcome.value for outcome in settled.outcomes.values()]


def state(seq: int) -> str | None:
    """Where a job is now: a job state, or how it ended, or None when nothing is known of it."""
    job = LiveJob.objects.filter(pk=seq).first()
    if job is not None:
        return JobState(job.state).label
    result = JobResult.objects.filter(pk=seq).first()
    return None if result is None else result.get_state_display()


def errors_of(seq: int) -> Any:
    ((text,),) = run("SELECT leasequeue_errors(%s)::text", [seq])
    return text and json.loads(text)


def delivered(times: int, *seqs: int) -> None:
    """Let ready jobs (all, by default) have been delivered so often already."""
    ready = rows(Ready)
    (ready.filter(seq__in=seqs) if seqs else ready).update(deliveries=times)


def kinds(seq: int) -> list[str]:
    return [event.get_kind_display() for event in JobEvent.objects.filter(seq=seq).order_by("id")]


def last_event(seq: int) -> JobEvent:
    return JobEvent.objects.filter(seq=seq).latest("id")


def run(text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with django_connection.cursor() as cursor:
        cursor.execute(text, params)
        return list(cursor.fetchall()) if cursor.description else []


def fetch(name: str, **params: Any) -> list[tuple[Any, ...]]:
    return DjangoExecutor("default").fetch(name, params)


def counts(queue: str = "work", project: str = "") -> dict[str, Any]:
    """The figures of a queue, by the names of its jobs' states."""
    found = engine.run(engine.counts(queue, project=project))._asdict()
    found["leased"] = found.pop("in_flight")
    names = ("ready", "delayed", "leased", "dead", "records", "dead_lettered", "oldest_at")
    return {name: found[name] for name in names}


def floors(queue_id: int) -> dict[tuple[int, int], int]:
    rows = QueueFloor.objects.filter(queue_id=queue_id).order_by("value").values_list("kind", "rank", "value")
    return {(kind, rank): value for kind, rank, value in rows}


def raise_floors(*queue_ids: int, run: Any = engine.run) -> None:
    """Propose floors and raise them, as the reaper does in some turns."""
    proposals = Proposals()
    for _ in range(3):
        run(engine.advance_floors(proposals, list(queue_ids) or None))


@contextmanager
def own_connection() -> Iterator[ConnectionExecutor]:
    """A connection beside Django's, in autocommit mode, as a worker has it."""
    connection = connect("default")
    try:
        yield ConnectionExecutor(connection)
    finally:
        connection.close()


@contextmanager
def open_transaction() -> Iterator[ConnectionExecutor]:
    """A connection beside Django's with a transaction open; it rolls back at the end unless the test committed it."""
    with own_connection() as executor:
        executor.connection.autocommit = False
        yield executor
        if executor.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            executor.connection.rollback()


def crowd(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in so many threads; each is given its number."""
    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(work, number) for number in range(count)]:
            done.result()


@contextmanager
def kept_waiting(call: Callable[[ConnectionExecutor], Any]) -> Iterator[Future[Any]]:
    """Run ``call`` on a connection and in a thread of its own; the block begins when it waits for a transaction."""
    blocked = "SELECT cardinality(pg_blocking_pids(%s::int)) > 0"
    with own_connection() as executor, own_connection() as watcher, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(call, executor)
        look = watcher.connection.execute
        pid = executor.connection.info.backend_pid
        eventually(lambda: answer.done() or look(blocked, [pid]).fetchone() == (True,), "it waits")
        assert not answer.done(), "it never waited"
        yield answer
