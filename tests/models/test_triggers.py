"""Triggers: invariants that hold against everybody who writes, each an IntegrityError with a constraint's name."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pgtrigger
import pytest
from django.db import connection
from django.utils import timezone

from django_leasequeue import engine
from django_leasequeue.engine import audit
from django_leasequeue.models import LeaseEvent, OperatorAction, Queue, StoredJob
from django_leasequeue.models.storedjob import FROZEN
from tests.engine.flow import ack
from tests.engine.helpers import NODE, claim, make, one, put
from tests.support.rows import refused, rows

pytestmark = pytest.mark.django_db

#: Another value for each column that enqueue writes once.
OTHERS = {
    "seq": 99_000_000, "queue_id": 99_000_000, "rank": -9, "name": "app.other", "tag": "other",
    "data": {"n": "other"}, "meta": {"m": 1}, "body": b"other", "origin": "elsewhere",
    "created_at": timezone.now() + timedelta(days=1),
}  # fmt: skip


class TestTheLog:
    @pytest.fixture(autouse=True)
    def _events(self, db: None) -> None:
        make("work")
        for _ in range(3):
            put(2)

    @pytest.mark.parametrize("act", [
        lambda: rows(LeaseEvent).update(node="x"), lambda: rows(LeaseEvent).delete(),
        lambda: connection.cursor().execute("UPDATE leasequeue_leaseevent_p0 SET kind = 5"),
    ], ids=["update", "delete", "a partition"])  # fmt: skip
    def test_is_append_only(self, act: Callable[[], Any]) -> None:
        before = list(LeaseEvent.objects.values())
        assert "append-only" in refused("leasequeue_event_append_only", act)
        assert list(LeaseEvent.objects.values()) == before

    def test_takes_inserts_and_an_update_of_nothing_and_lets_maintenance_through(
        self, django_assert_num_queries
    ) -> None:
        with django_assert_num_queries(1):
            rows(LeaseEvent).create(txid=1, occurred_at=timezone.now(), queue_id=1, low=1, high=1, seqs=[1], kind=1)
        assert rows(LeaseEvent).filter(low=-1).update(node="x") == 0
        with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
            assert rows(LeaseEvent).update(node="x") == 4
            rows(LeaseEvent).delete()
        put(1)
        refused("leasequeue_event_append_only", lambda: rows(LeaseEvent).update(node="x"))


def test_nothing_changes_or_removes_a_line_of_the_audit(db: None) -> None:
    line = audit.write("retry", username="ann", seqs=range(1, 300), counts={"done": 1}, reason="why")
    assert line.seqs == list(range(1, 101))
    line.reason = "another"
    every = OperatorAction.objects.all()
    for act in (line.save, every.delete, lambda: every.update(username="bob")):
        refused("leasequeue_action_append_only", act)
    assert OperatorAction.objects.get().reason == "why"
    with pgtrigger.ignore("leasequeue.OperatorAction:append_only"):
        every.delete()
    assert not OperatorAction.objects.exists()


def test_the_type_of_a_queue_cannot_change_and_everything_else_can(db: None) -> None:
    make("work")
    message = refused("leasequeue_queue_type_immutable", lambda: Queue.objects.update(type="log"))
    assert "delete the queue" in message
    assert Queue.objects.update(lease_ms=5_000, type="queue") == 1
    queue = Queue.objects.get()
    queue.metadata = {"a": 1}
    queue.save()
    with pgtrigger.ignore("leasequeue.Queue:type_immutable"):
        assert Queue.objects.update(type="log") == 1


class TestWhatWasEnqueued:
    @pytest.fixture(autouse=True)
    def _jobs(self, db: None) -> None:
        make("work")
        put(3, name="app.task", meta={"m": 0})

    @pytest.mark.parametrize("column", FROZEN)
    def test_cannot_change(self, column: str) -> None:
        before = StoredJob.objects.values().earliest("seq")
        first = rows(StoredJob).filter(pk=before["seq"])
        message = refused("leasequeue_job_written_once", lambda: first.update(**{column: OTHERS[column]}))
        assert "edit its dead letter" in message
        assert StoredJob.objects.values().get(seq=before["seq"]) == before

    def test_one_row_of_a_bulk_update_counts_and_everything_else_and_the_same_values_pass(self) -> None:
        """The condition is the trigger's own: what changes nothing of it costs no call."""
        first, now = StoredJob.objects.earliest("seq"), timezone.now()
        refused("leasequeue_job_written_once", lambda: rows(StoredJob).update(data=first.data))
        with connection.cursor() as cursor:
            for text in ("position = seq", "name = name, data = data"):
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) UPDATE leasequeue_job SET {text}")
                (plan,) = cursor.fetchone()[0]
                assert [trigger for trigger in plan["Triggers"] if trigger["Calls"]] == []
        free = {"position": 5, "first_claimed_at": now, "expires_at": now, "progress": {"done": 1}, "key": None}
        for values in (free, {"max_deliveries": 7}, {"name": "app.task", "rank": 0}):
            assert rows(StoredJob).update(**values) == 3
        with pgtrigger.ignore("leasequeue.StoredJob:written_once"):
            assert rows(StoredJob).update(name="app.renamed") == 3

    @pytest.mark.parametrize("delete", [
        lambda: rows(StoredJob).filter(seq__gt=0).delete(), lambda: rows(StoredJob)._raw_delete("default"),
        lambda: connection.cursor().execute("WITH gone AS (DELETE FROM leasequeue_job RETURNING seq) SELECT FROM gone"),
    ])  # fmt: skip
    def test_is_not_deleted_by_others(self, delete: Callable[[], Any]) -> None:
        assert "cancel()" in refused("leasequeue_job_removed_by_engine", delete)
        # Also behind a statement of the engine in the same transaction.
        assert engine.run(engine.cancel("work", seqs=[StoredJob.objects.earliest("seq").seq]))
        (job,) = claim(1)
        ack(job)
        refused("leasequeue_job_removed_by_engine", delete)
        assert StoredJob.objects.count() == 1
        with pgtrigger.ignore("leasequeue.StoredJob:removed_by_engine"):
            delete()
        assert not StoredJob.objects.exists()

    def test_the_engine_changes_nothing_of_it(self) -> None:
        make("fragile", max_deliveries=1, exhaust_at="release", dead_letter="self")
        put(2, queue="fragile")
        job = one(queue="fragile")
        engine.run(engine.nack([job.seq], NODE))
        engine.run(engine.redrive("fragile", [job.seq], delay_ms=60_000))
        assert len(claim(5, queue="fragile")) == 1


def test_every_trigger_has_a_condition_or_is_rare_and_none_stands_in_the_way_of_a_truncate() -> None:
    """Every host's TransactionTestCase empties the tables."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgparentid = 0, tgqual IS NOT NULL, tgtype::int & 4, tgtype::int & 32"
            " FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'leasequeue%'"
        )
        found = cursor.fetchall()
    assert {table for table, *_ in found} >= {"leasequeue_job", "leasequeue_queue", "leasequeue_leaseevent"}
    assert [table for table, *_, on_truncate in found if on_truncate] == []
    for table, has_condition, on_insert in ((row[0], *row[2:4]) for row in found if row[1]):
        assert has_condition or table in ("leasequeue_leaseevent", "leasequeue_operatoraction")  # append-only
        assert not on_insert
