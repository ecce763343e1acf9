"""How the queues are doing: what the command shows, and what it says deserves attention."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import engine
from django_leasequeue.engine import LimitValues, NewJob
from django_leasequeue.engine.flow.declared import Limited
from django_leasequeue.models import LeaseEvent, RecurringTask, Worker
from django_leasequeue.reaper import Reaper, status
from django_leasequeue.reaper.concerns import BOUNDS
from tests.engine.helpers import claim, enqueue, make, open_transaction, put
from tests.support.rows import rows

pytestmark = pytest.mark.usefixtures("transactional_db")


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("leasequeue_status", *arguments, stdout=out)
    return out.getvalue()


def worker(clock: Any, node: str = "w1", seen: int = 0, **fields: Any) -> Worker:
    now = clock.now
    return rows(Worker).create(
        node=node, host="h", pid=1, queues=["work"], concurrency=8, running=[{"seq": 1}], completed=5, started_at=now,
        seen_at=now - timedelta(seconds=seen), **fields,
    )  # fmt: skip


def test_all_is_well(reaper: Reaper, clock) -> None:
    make("work")
    put(3)
    claim(1)
    RecurringTask.objects.create(
        name="report", schedule="@daily", task="x", next_tick_at=clock.now + timedelta(hours=1)
    )
    reaper.tick()
    clock.advance(minutes=1)
    worker(clock, seen=20)
    found = status.look("default")
    assert found.problems == []
    assert found.leader is not None
    assert [(row.queue, row.ready, row.in_flight) for row in found.queues] == [("work", 3, 0)]
    assert (found.workers[0].running, found.workers[0].seen) == (1, 20.0)
    assert found.log.free >= 3
    text = command("--check")
    for part in ("Reaper: leads from local", "work", "w1", "20 s ago", "report", "@daily"):
        assert part in text
    assert "To look at" not in text


def test_what_deserves_attention(clock) -> None:
    make("work")
    put(1)
    worker(clock, seen=31)
    RecurringTask.objects.create(
        name="late", schedule="@daily", task="x", next_tick_at=clock.now - timedelta(seconds=90)
    )
    RecurringTask.objects.create(
        name="off", schedule="@daily", task="x", enabled=False, next_tick_at=clock.now - timedelta(seconds=90)
    )
    rows(LeaseEvent).create(id=10**12, txid=1, occurred_at=clock.now, queue_id=1, low=1, high=1, seqs=[1], kind=1)
    text = "\n".join(status.look("default").problems)
    for part in (
        "No reaper leads",
        "Worker w1 was not seen for 31 s.",
        "No worker listens to work, and jobs are ready.",
        "Recurring tasks are late: late.",
        "1 events of the lease log are in its default partition",
    ):
        assert part in text
    out = StringIO()
    with pytest.raises(CommandError, match="5 things deserve attention") as error:
        call_command("leasequeue_status", "--check", stdout=out)
    assert error.value.returncode == 1
    assert "To look at:" in out.getvalue()
    command()


def test_a_transaction_that_is_open_for_long() -> None:
    make("work")
    with open_transaction() as other:
        other.connection.execute("SET application_name = 'reporting'")
        other.run(engine.enqueue("work", [engine.NewJob()]))
        assert "A transaction of reporting (pid" in "\n".join(
            status.look("default", bounds=BOUNDS._replace(transaction=-1)).problems
        )


def test_a_queue_that_no_worker_serves_or_that_waits_too_long(reaper: Reaper, clock) -> None:
    """Also one beyond those that are listed, and of another project."""
    make("a")
    make("orphaned", project="shop")
    make("slow")
    put(3, queue="orphaned", project="shop")
    put(2, queue="slow")
    reaper.tick()
    worker(clock, seen=0)
    rows(Worker).update(queues=["slow"])
    assert status.look("default", size=1).problems == [
        "No worker listens to shop/orphaned, and jobs are ready. Start 'manage.py runworker --queues orphaned'."
    ]
    clock.advance(minutes=31)
    rows(Worker).update(seen_at=clock.now)
    found = "\n".join(status.look("default", size=1).problems)
    assert "Jobs of slow have been ready for 31 min: its workers do not keep up." in found
    assert "of slow" not in command("--waiting", "3600")
    with pytest.raises(CommandError, match="take 0 to"):
        command("--late", "-1")
    with pytest.raises(CommandError, match="--size must be"):
        command("--size", "0")
    assert len(status.look("default", size=2).queues) == 2


def test_projects_and_json(reaper: Reaper, clock) -> None:
    make("work")
    make("work", project="shop")
    put(2, project="shop")
    reaper.tick()
    text = command()
    assert "Projects (newest samples)" in text
    answer = json.loads(command("--json", "--project", "shop"))
    assert [row["ready"] for row in answer["queues"]] == [2]
    assert {row["project"]: row["ready"] for row in answer["totals"]} == {"": 0, "shop": 2}
    assert answer["leader"]["address"]


def test_limits_that_jobs_wait_for(clock) -> None:
    make("work")
    free = NewJob(limit=Limited("b", LimitValues("free", concurrency=9)))
    enqueue(*[NewJob(limit=Limited("a", LimitValues("one", concurrency=1))) for _ in range(3)], free)
    assert len(claim(9)) == 2
    (line,) = status.look("default").limits
    assert line == status.LimitLine("one", "1 at a time", keys=1, waiting=2, taken=1)
    assert "Limits that jobs wait for" in command()
