"""Queries of the models, as projects write them, read a bounded piece of the tables."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from django_leasequeue.admin import reading
from django_leasequeue.models import Job, JobEvent, Queue, Workflow

from .filling import DEAD, DONE, FRESH, IDS, LATER, LEASED, NOW
from .regimes import STATISTICS

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

#: Of a job by its number: where it is leased, the live claims of its queue are looked through.
CLAIMS = 1_000

#: Of each limit: all of them are looked at, whether jobs wait for them.
KEYS = 200


def newest(state: str, queue: str, order: str) -> Any:
    return Job.objects.filter(state=state, queue=IDS[queue]).order_by(order)[:20]


def ended(jobs: Any) -> Any:
    """Jobs of a queue with results of many times, of which the last 20 ended in the last second."""
    return jobs.filter(queue=IDS["other"], finished_at__gt=NOW - timedelta(seconds=1)).order_by("-finished_at")


#: As those below, with the index of the page of the models on the times of the ends.
BY_TIME: dict[str, tuple[Callable[[], Any], int]] = {
    "completed of a queue, the newest": (lambda: newest("completed", "other", "-finished_at"), 20),
    "completed of a queue, the oldest": (lambda: newest("completed", "other", "finished_at"), 20),
    "completed of a queue since": (lambda: ended(Job.objects.completed()), 20),
    "finished of a queue since": (lambda: ended(Job.objects.finished()), 20),
    "cancelled of a queue since": (lambda: ended(Job.objects.cancelled()), 20),
    "finished of a queue, the newest": (
        lambda: Job.objects.finished().filter(queue=IDS["other"], finished_at__isnull=False)
            .order_by("-finished_at")[:20], 20),
}  # fmt: skip

#: What is asked, and how many rows are looked at to answer it.
QUERIES: dict[str, tuple[Callable[[], Any], int]] = {
    "pk": (lambda: Job.objects.filter(pk=FRESH + 7), 1),
    "pk of a finished one": (lambda: Job.objects.filter(pk=DONE + 7), 1),
    "pks": (lambda: Job.objects.filter(pk__in=[FRESH + 7, DONE + 7, DEAD + 7, LATER + 7]), 4),
    "key": (lambda: Job.objects.filter(key="a key that nobody has"), 1),
    "keys": (lambda: Job.objects.filter(key__in=["one", "two"]), 2),
    "a tag": (lambda: Job.objects.filter(tags__customer=FRESH + 7), 1),
    "tags of dead ones": (lambda: Job.objects.dead().filter(tags__contains={"customer": DEAD + 7, "kind": "mail"}), 1),
    "newest": (lambda: Job.objects.order_by("-pk")[:20], 20), "ready": (lambda: Job.objects.ready()[:20], 20),
    "ready of a queue": (lambda: Job.objects.filter(state="ready", queue=IDS["busy"])[:20], 20),
    "ready of a queue by name": (lambda: Job.objects.in_queue("busy").ready()[:20], 20),
    "delayed of a queue": (lambda: Job.objects.filter(state="delayed", queue_id=IDS["later"])[:20], 20),
    "dead of a queue": (lambda: Job.objects.filter(state="dead", queue_id=IDS["morgue"])[:20], 20),
    "leased": (lambda: Job.objects.leased()[:20], 20),
    "completed": (lambda: Job.objects.filter(state="completed")[:20], 20),
    "finished": (lambda: Job.objects.finished()[:20], 20), "cancelled": (lambda: Job.objects.cancelled()[:20], 20),
    "finished, the newest": (lambda: Job.objects.finished().order_by("-pk")[:20], 20),
    "finished, the oldest": (lambda: Job.objects.finished().order_by("pk")[:20], 20),
    "either of two states": (lambda: Job.objects.filter(Q(state="dead") | Q(state="failed"))[:20], 20),
    "failed of a queue": (lambda: Job.objects.filter(state="failed", queue_id=IDS["other"])[:20], 20),
    "failed of a queue, the newest": (lambda: newest("failed", "busy", "-finished_at"), 20),
    "dead of a queue, the newest": (lambda: newest("dead", "morgue", "-finished_at"), 20),
    "delayed of a queue, the next": (lambda: newest("delayed", "later", "available_at"), 20),
    "results of a queue that failed": (
        lambda: Queue(pk=IDS["busy"]).results.filter(state=2).order_by("-finished_at").select_related("job")[:20], 20),
    "leased by a worker": (lambda: Job.objects.leased().filter(worker="single-7")[:20], 20),
    "dead letters of a queue": (
        lambda: Queue(pk=IDS["morgue"]).dead_letters.order_by("-dead_at").select_related("job")[:20], 40),
    "of a task, the newest": (lambda: Job.objects.for_task("app.task_3").order_by("-pk")[:20], 20 * 7),
    "without a result": (lambda: Job.objects.order_by("pk").filter(result=None)[:20], 20),
    "of a workflow": (lambda: Job.objects.filter(workflow=987_654), 1),
    "waiting for a limit": (lambda: Job.objects.waiting_for("limit-7")[:20], 20 + KEYS),
    "waiting for a key": (lambda: Job.objects.waiting_for("limit-7", "key-6")[:20], 20),
    "samples of a queue": (lambda: Queue(pk=IDS["busy"]).samples.order_by("-sampled_at")[:20], 20),
    "jobs of a queue": (lambda: Queue(pk=IDS["busy"]).jobs.filter(state="ready")[:20], 20),
    "jobs of a workflow": (Workflow(pk=987_654).jobs.all, 1),
    "result of a job": (lambda: Job.objects.select_related("result", "queue").filter(pk=DONE + 7), 1),
    "attempts of jobs": (lambda: Job.objects.filter(pk=DEAD + 7).select_related("dead_letter"), 1),
    "events of a job": (lambda: JobEvent.objects.filter(seq=DONE + 7), 1),
}  # fmt: skip


#: Where the tables were never analyzed it may cost more pages: all index entries, delayed jobs or results of the
#: queue, or rows of the log.
READY = 10_000
NEVER_ANALYZED = {
    "ready of a queue": READY, "ready of a queue by name": READY, "jobs of a queue": READY, "dead of a queue": 200,
    "delayed of a queue, the next": 200_000, "events of a job": 1_000, "either of two states": 20_000,
    "cancelled": 20_000, "completed of a queue, the newest": 200_000, "completed of a queue, the oldest": 200_000,
}  # fmt: skip
#: The planner knows nothing of the tables, or that new ones are empty.
UNKNOWN = ("empty", "none")


def bound(name: str, rows: int, statistics: str) -> int:
    return 50 + 12 * rows + (NEVER_ANALYZED.get(name, 0) if statistics in UNKNOWN else 0)


#: What the admin reads of one job; its events lie in rows of 1,000 jobs.
SEEN: dict[str, Callable[[], Any]] = {
    "page of a ready job": lambda: reading.read_job(FRESH + 7),
    "page of a dead job": lambda: reading.read_job(DEAD + 7),
    "page of an ended job": lambda: reading.read_job(DONE + 7),
    "steps of a job": lambda: reading.read_steps(LEASED),
    "events of a live job": lambda: reading.read_events(FRESH + 6_000, reading.read_job(FRESH + 6_000)),
    "events of an ended job": lambda: reading.read_events(DONE + 7, reading.read_job(DONE + 7)),
    "jobs of a key": lambda: reading.find_jobs(f"busy-{FRESH + 8}"),
}


def pages_of(sql: str, params: Any = None) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, TIMING OFF) {sql}", params)
        ((found,),) = cursor.fetchall()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("statistics", ["full", "emptied", *UNKNOWN])
def test_pages(fuller_tables: None, statistics: str) -> None:
    wrong = []
    with transaction.atomic():
        with connection.cursor() as cursor:
            for change in STATISTICS[statistics]:
                cursor.execute(change)
        for name, (make, rows) in QUERIES.items():
            pages = pages_of(*make().query.sql_with_params())
            more = CLAIMS if "pk" in name or name == "newest" else 0
            if pages > bound(name, rows, statistics) + more:
                wrong.append(f"{name}: {pages} pages for {rows} rows")
        for name, read in SEEN.items():
            with CaptureQueriesContext(connection) as seen:
                read()
            log = "events" in name
            told = [each["sql"] for each in seen]
            statements = [sql for sql in told if sql.startswith("SELECT") and "set_config" not in sql]
            assert statements, name
            for sql in statements:
                with reading.steadily(log=log):
                    pages = pages_of(sql)
                if pages > 50 + 12 * (200 if "steps" in name else 1) + CLAIMS:
                    wrong.append(f"{name}: {pages} pages for {sql[:300]}")
        transaction.set_rollback(True)
    assert wrong == []


#: Each second one of the results of a queue ended, most of them well; then twenty more in the last of all.
ENDS = (
    """INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state)
    SELECT seq, queue_id, seq, %(now)s, %(now)s::timestamptz - CASE WHEN row > 20 THEN row ELSE 0 END * interval '1 s',
        %(now)s, 1, (ARRAY[2, 3, 1, 1, 1, 1, 1, 1, 1, 1])[1 + row %% 10]
    FROM (SELECT seq, queue_id, row_number() OVER (ORDER BY seq DESC) AS row FROM leasequeue_job
        WHERE queue_id = %(other)s) j""",
    "CREATE INDEX shop_job_ended ON leasequeue_jobresult (queue_id, finished_at)",
    "ANALYZE leasequeue_jobresult",
)


@pytest.mark.parametrize("statistics", ["full", "emptied", *UNKNOWN])
def test_pages_by_time(fuller_tables: None, statistics: str) -> None:
    """It comes last: what it takes back stays in the tables as dead rows."""
    pages = {}
    with transaction.atomic():
        with connection.cursor() as cursor:
            for change in ENDS:
                cursor.execute(change, {"now": NOW, "other": IDS["other"]})
            for change in STATISTICS[statistics]:
                cursor.execute(change)
        for name, (make, _) in BY_TIME.items():
            assert make(), name
            pages[name] = pages_of(*make().query.sql_with_params())
        transaction.set_rollback(True)
    assert {name: seen for name, seen in pages.items() if seen > bound(name, BY_TIME[name][1], statistics)} == {}
