"""Making dead letters, for the tests of triage."""

from typing import Any

import pgtrigger
import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release, clock
from django_leasequeue.engine.dead.bulkoperation import Asked, run_batch, start_operation
from django_leasequeue.engine.dead.filter import DeadFilter, from_query
from django_leasequeue.engine.dead.triage import preview
from django_leasequeue.models import BulkOperation, JobState, LiveJob, Queue, Worker
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.engine.helpers import make, one, put
from tests.support.rows import rows

NODE = "worker-1"


def graves(name: str = "work", **options: Any) -> int:
    """Make a queue whose jobs are dead in place after one delivery; return its id."""
    return make(name, **{"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self", **options})


def die(seqs: list[int], queue: str = "work", failure: Failure | None = None, project: str = "") -> None:
    wanted = set(seqs)
    leased = engine.run(engine.claim(queue, NODE, max(len(wanted), 1), project=project))
    assert {job.seq for job in leased} == wanted
    failure = failure or Failure("shop.Declined", "card 17 was declined", "Traceback: line 1", "print-a")
    for start in range(0, len(leased), 1_000):
        given_back = [Release(job.seq, job.token, failure=failure) for job in leased[start : start + 1_000]]
        engine.run(engine.release(given_back, NODE, project=project))


def bury(
    count: int = 1, queue: str = "work", *, failure: Failure | None = None, project: str = "", **fields: Any
) -> list[int]:
    """Let so many jobs die in a queue, which is made like `graves` where it is not there."""
    found: list[int] = []
    fields.setdefault("name", "shop.tasks.charge")
    if not Queue.objects.filter(name=queue, project=project).exists():
        graves(queue, project=project)
    for start in range(0, count, 1_000):
        jobs = [
            NewJob(**{"data": {"args": [number], "kwargs": {"customer": number % 10}}, **fields})
            for number in range(start, min(count, start + 1_000))
        ]
        seqs = [answer.seq for answer in engine.run(engine.enqueue(queue, jobs, project=project))]
        die(seqs, queue, failure, project)
        found += seqs
    return found


def store(seqs: list[int], *, data: str | None = None, meta: str | None = None) -> None:
    """Give jobs this JSON text as their data or meta, past all checks, as another program may have stored it."""
    with pgtrigger.ignore("leasequeue.StoredJob:written_once"), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leasequeue_job SET data = COALESCE(%s::text::json, data), meta = COALESCE(%s::text::json, meta)"
            " WHERE seq = ANY (%s)",
            [data, meta, seqs],
        )


def end(*jobs: engine.LeasedJob, **ending: Any) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token, **ending) for job in jobs], NODE))


def give_back(*jobs: engine.LeasedJob, **release: Any) -> None:
    engine.run(engine.release([Release(job.seq, job.token, **release) for job in jobs], NODE))


def failure(print_: str, message: str = "it failed", kind: str = "shop.Error") -> Failure:
    return Failure(kind, message, "Traceback (most recent call last): ...", print_)


def start(kind: str, query: str = "", by=engine.audit.CODE, expected: int | None = None, **options) -> BulkOperation:
    wanted = from_query(query) if isinstance(query, str) else query
    asked = Asked(kind, wanted, at=engine.run(preview(DeadFilter())).at, **options)
    number = engine.run(start_operation(asked, by, expected))
    return BulkOperation.objects.get(pk=number)


def carry_out(made: BulkOperation) -> None:
    while engine.run(run_batch(made.pk)):
        pass
    made.refresh_from_db()


def states(seqs: list[int]) -> list[str]:
    found = dict(LiveJob.objects.filter(pk__in=seqs).values_list("seq", "state"))
    return [JobState(found[seq]).label if seq in found else "-" for seq in seqs]


def worker(node: str = "worker-1", queues: tuple[str, ...] = ("work",), **values: Any) -> Worker:
    at = clock.now()
    known = {"host": "h", "pid": 1, "concurrency": 2, "started_at": at, "seen_at": at}
    return rows(Worker).create(node=node, queues=list(queues), **{**known, **values})


def suspended(*, event: str | None = None, queue: str = "work") -> int:
    """Let a job sleep, or wait for an event; return its number."""
    make(queue)
    (seq,) = put(1, queue, name="shop.pay")
    job = one(queue)
    control = JobControl(job, NODE)
    with pytest.raises(Suspended):
        if event is None:
            control.sleep("nap", hours=1)
        else:
            control.wait_for(event, timeout=3_600)
    assert control.suspension is not None
    back = [engine.Release(job.seq, job.token, control.suspension.delay_ms)]
    engine.run(engine.release(back, NODE, suspended=True))
    return seq
