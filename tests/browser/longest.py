"""Pages with the longest names there are, in which no line breaks by itself, and with jobs of nine digits."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import Limited, LimitValues, NewJob, Node
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.models import (
    ApiKey,
    BulkOperation,
    JobStep,
    Limit,
    OperatorAction,
    RecurringTask,
    SavedFilter,
)
from tests.admin.letters import bury, graves, suspended, worker
from tests.admin.pages import admin_url
from tests.engine.helpers import one, put
from tests.support.rows import rows

LONG = "a-topic-of-255-characters-" + "x" * 229
TASK = f"shop.tasks.{LONG}"
NODE = LONG[:128]


def count_from(number: int) -> None:
    """Let the next job have this number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('leasequeue_job', 'seq'), %s, false)", [number])


def furnish_longest() -> list[str]:
    """Put something with the longest names on each page; return the addresses."""
    count_from(123_456_789)
    at = engine.clock.now()
    queue = graves(LONG)
    dead, edited = bury(2, LONG, key=LONG, name=TASK, tag=LONG, failure=engine.Failure(LONG, LONG, LONG, "print"))
    for number in range(3):
        put(1, LONG, key=f"{number}{LONG[1:]}", name=TASK, tag=LONG)
    put(2, LONG, name=TASK, delay_ms=3_600_000)
    leased = one(LONG, NODE)
    waits, sleeps = suspended(queue="durable", event=LONG), suspended(queue="durable")
    rows(JobStep).create(seq=waits, number=7, name=LONG, value=LONG, done_at=at, delivery=1, undo=f"{TASK} atomic")
    engine.run(pause_task(TASK, by=LONG))
    running = [{"seq": leased.seq, "queue": LONG, "name": TASK, "seconds": 90, "suspect": "apart"}]
    busy = worker(NODE, (LONG, "durable"), running=running, info={"limits": {LONG: 3}}, stop_requested_at=at)
    limit = LimitValues(LONG[:200], concurrency=1)
    limited = [NewJob({}, name=TASK, limit=Limited(f"{limit.name}:{number}", limit)) for number in (1, 1, 2)]
    engine.run(engine.set_limits([limit]))
    engine.run(engine.enqueue("durable", limited))
    uid = uuid4()
    first, second = (Node("durable", NewJob({}, name=TASK), label=LONG, parents=each) for each in ((), (0,)))
    engine.run(engine.start_workflow([first, second], uid, name=LONG))
    task = rows(RecurringTask).create(
        name=LONG[:128], task=TASK, schedule="@hourly", queue_name=LONG, last_error=LONG, args=[LONG]
    )
    key = rows(ApiKey).create(name=LONG[:128], prefix="longest", topics=[LONG], project=LONG, created_at=at)
    operation = rows(BulkOperation).create(
        kind="redrive", state="failed", queue=LONG, target=LONG, reason=LONG, username=LONG, error=LONG, frozen_at=at,
        created_at=at, expected=9, done=2, conflicts=1, conflict_counts={LONG: 1}, conflict_sample=[[dead, LONG]],
    )  # fmt: skip
    rows(OperatorAction).create(
        at=at, username=LONG, action="revoke_key", queue=LONG, reason=LONG, filters=f"queue={LONG}",
        detail={"object": LONG, "before": {"concurrency": LONG}, "after": {"concurrency": LONG}},
    )  # fmt: skip
    for page in ("jobs", "deadletters"):
        name = f"{page}{LONG}"[:80]
        SavedFilter.objects.create(name=name, owner="0", owner_name=LONG, shared=True, query="", page=page)
    states = ("ready", "delayed", "leased", "dead")
    pages: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("queue_change", [queue], {}),
        ("queue_options", [queue], {}),
        *(("job_change", [seq], {}) for seq in (dead, leased.seq, waits, sleeps)),
        *(("job_changelist", [], {"state": each}) for each in (*states, "any", "sleeping", "waiting for an event")),
        *(("job_changelist", [], {"queue": queue, "state": each}) for each in states),
        ("job_changelist", [], {"queue": LONG, "task": TASK, "tag": LONG, "worker": NODE, "state": "any"}),
        ("job_changelist", [], {"q": LONG}),
        ("job_changelist", [], {"worker": NODE}),
        ("job_changelist", [], {"payload": f"data.{LONG} = 1"}),
        ("job_changelist", [], {"state": LONG}),
        ("task", [], {"name": TASK}),
        ("worker_change", [busy.pk], {}),
        ("workflow", [uid], {}),
        ("limit_change", [Limit.objects.get(name=limit.name).pk], {}),
        ("recurringtask_change", [task.pk], {}),
        ("apikey_change", [key.pk], {}),
        ("bulkoperation_change", [operation.pk], {}),
        ("deadletters", [], {"queue": LONG}),
        ("deadletters", [], {LONG: "mail"}),
        ("deadletters_list", [], {"queue": LONG, "task": TASK, "text": LONG}),
        ("deadletters_edit", [edited], {}),
    ]  # fmt: skip
    return [admin_url(name, *args, **query) for name, args, query in pages]
