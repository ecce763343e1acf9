"""What the database refuses whoever writes: constraints and triggers; indexes, partitions of the log, hot tables."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pgtrigger
import pytest
from django.apps import apps
from django.db import connection, models, transaction
from django.utils import timezone

from django_leasequeue import engine
from django_leasequeue.engine import audit
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import BulkOperation, Claim, Delayed, LeaseEvent, OperatorAction, Ready, Record, StoredJob
from django_leasequeue.models.queue import Queue, QueueFloor, QueueRank, QueueStat
from django_leasequeue.models.storedjob import FROZEN
from tests.admin.letters import start
from tests.engine.flow import ack
from tests.engine.helpers import NODE, claim, make, one, put
from tests.support.rows import refused, rows

pytestmark = pytest.mark.django_db

NOW = timezone.now()


@pytest.mark.parametrize(("constraint", "values"), [
    ("leasequeue_queue_lease_ms", {"lease_ms": 99}), ("leasequeue_queue_lease_ms", {"lease_ms": 86_400_001}),
    ("leasequeue_queue_priority_range", {"priority_min": 5, "priority_max": 4}),
    ("leasequeue_queue_priority_range", {"priority_min": -32_768}),
    ("leasequeue_queue_not_negative", {"max_deliveries": -1}),
    ("leasequeue_queue_not_negative", {"claim_jitter_ms": 5_001}),
    ("leasequeue_queue_not_negative", {"result_ttl_ms": -1}), ("leasequeue_queue_not_negative", {"ttl_ms": -1}),
    ("leasequeue_queue_not_negative", {"dead_ttl_ms": -1}), ("leasequeue_queue_not_negative", {"cap_records": -1}),
    ("leasequeue_queue_not_negative", {"backoff_base_ms": -1}),
    ("leasequeue_queue_dead_letter_other", {"dead_letter": "work"}),
], ids=repr)  # fmt: skip
def test_options_of_a_queue(constraint: str, values: dict[str, Any]) -> None:
    make("work")
    refused(constraint, lambda: rows(Queue).update(**values))


@pytest.mark.parametrize(("change", "constraint"), [
    ({"rate": 0}, "leasequeue_operation_rate"), ({"jitter_ms": -1}, "leasequeue_operation_jitter"),
    ({"kind": "redrive"}, "leasequeue_operation_target"), ({"kind": "discard"}, "leasequeue_operation_reason"),
])  # fmt: skip
def test_an_operation_makes_sense(change: dict[str, Any], constraint: str) -> None:
    start("retry")
    refused(constraint, lambda: rows(BulkOperation).update(**change))


def test_what_is_there_once() -> None:
    queue, other = make("work"), make("other")
    make("work", project="acme")
    refused("leasequeue_queue_name", lambda: rows(Queue).create(name="work"))

    def job(queue_id: int, key: str | None) -> StoredJob:
        return rows(StoredJob).create(queue_id=queue_id, created_at=NOW, key=key)

    for queue_id, key in ((queue, "k"), (other, "k"), (queue, None), (queue, None)):
        job(queue_id, key)
    refused("leasequeue_job_key", lambda: job(queue, "k"))
    again = {"kind": "retry", "frozen_at": start("retry").frozen_at, "created_at": NOW}
    refused("leasequeue_operation_one_active", lambda: rows(BulkOperation).create(**again))
    rows(BulkOperation).update(state="done")
    rows(BulkOperation).create(**again)


def test_a_place_once_a_job() -> None:
    """Floors and ranks need not be unique: nobody who adds one waits for another who does."""
    queue = make("work")
    (seq,) = put()
    (late,) = put(delay_ms=1_000)
    at = {"queue_id": queue, "rank": 0}
    refused("leasequeue_ready_pkey", lambda: rows(Ready).create(**at, lane=2, position=seq, seq=seq, ready_at=NOW))
    refused("leasequeue_delayed_pkey", lambda: rows(Delayed).create(**at, seq=late, available_at=NOW))
    rows(Record).create(queue_id=queue, seq=1)
    refused("leasequeue_record_pkey", lambda: rows(Record).create(queue_id=queue, seq=1))
    claim = {"queue_id": queue, "token": 1, "deadline": NOW, "created_at": NOW, "ttl_ms": 1, "node": "n", "seqs": [1]}
    rows(Claim).create(**claim)
    rows(Claim).create(**claim, part=1)
    refused("leasequeue_claim_pkey", lambda: rows(Claim).create(**claim))
    for _ in range(2):
        rows(QueueFloor).create(**at, kind=0, value=5, made_at=NOW)
        rows(QueueRank).create(**at)
    sample = {"queue_id": 1, "sampled_at": NOW, "ready": 0, "delayed": 0, "leased": 0, "dead": 0}
    rows(QueueStat).create(**sample)
    refused("leasequeue_stat_sample", lambda: rows(QueueStat).create(**sample))


def test_every_model_reads_prints_and_names_its_constraints_and_indexes_itself() -> None:
    """A name that Django makes up would be another one after a rename, and says nothing in an error."""
    for model in apps.get_app_config("leasequeue").get_models():
        assert model.objects.count() >= 0
        assert model.__str__ is not models.Model.__str__, model.__name__
        for item in [*model._meta.constraints, *model._meta.indexes]:
            assert item.name.startswith("leasequeue_"), f"{model.__name__}: {item.name}"


INDEXES = {
    # What is enqueued is written once: each index here is paid for by every job.
    "job": {"job_pkey", "job_key", "job_tags"},
    "ready": {"ready_pkey", "ready_tag", "ready_expires", "ready_moved"},
    "delayed": {"delayed_pkey", "delayed_cut_off", "delayed_due", "delayed_expires", "delayed_put_off", "delayed_tag"},
    "claim": {"claim_pkey", "claim_deadline", "claim_node"},
    "deadletter": {"deadletter_pkey", "dead_cause", "dead_died", "dead_expires", "dead_size"},
    "record": {"record_pkey", "record_expires", "record_tag"},
    "jobresult": {"jobresult_pkey", "result_expires", "result_failed"},
    "attempt": {"attempt_pkey", "attempt_job"},
    "queuefloor": {"queuefloor_pkey", "floor_place"},
    "queuerank": {"queuerank_pkey", "rank_place"},
}


def test_indexes_no_foreign_keys_and_how_hot_tables_are_stored() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename, indexname FROM pg_indexes")
        indexes = cursor.fetchall()
        cursor.execute("SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f'")
        assert [table for (table,) in cursor.fetchall() if table.startswith("leasequeue")] == []
    for table, names in INDEXES.items():
        found = {name for of, name in indexes if of == f"leasequeue_{table}"}
        assert found == {f"leasequeue_{name}" for name in names}, table
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL AND relkind = 'r'")
        options = {name: set(values) for name, values in cursor.fetchall()}
    for table in ("ready", "delayed", "claim"):
        assert "autovacuum_vacuum_scale_factor=0.02" in options[f"leasequeue_{table}"]
    assert "fillfactor=50" in options["leasequeue_claim"]
    assert "autovacuum_vacuum_scale_factor=0" in options["leasequeue_queuefloor"]


class TestPartitions:
    def place(self, number: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO leasequeue_leaseevent (id, occurred_at, queue_id, low, high, seqs, kind)"
                " VALUES (%s, now(), 1, 1, 1, '{1}', 1) RETURNING tableoid::regclass::text, txid",
                [number],
            )
            table, txid = cursor.fetchone()
            assert txid > 0
        return str(table)

    @pytest.mark.parametrize(("number", "partition"), [
        (0, "p0"), (499_999, "p0"), (500_000, "p500000"), (1_499_999, "p1000000"), (10**15, "default"),
    ])  # fmt: skip
    def test_an_event_goes_where_its_number_says(self, number: int, partition: str) -> None:
        assert self.place(number) == f"leasequeue_leaseevent_{partition}"

    def test_a_search_by_number_reads_one_by_a_brin_index_and_one_can_be_dropped(self) -> None:
        put_in = self.place(1_000_000)
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN SELECT * FROM leasequeue_leaseevent WHERE id = 750000")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'leasequeue_leaseevent'")
            definitions = [definition for (definition,) in cursor.fetchall()]
            cursor.execute(f"DROP TABLE {put_in}")
        assert ("leasequeue_leaseevent_p500000" in plan, "leasequeue_leaseevent_p0" in plan) == (True, False)
        assert ["USING brin" in definition for definition in definitions] == [True] * 3
        assert not LeaseEvent.objects.filter(id=1_000_000).exists()


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

    def test_takes_inserts_and_an_update_of_nothing_and_lets_maintenance_pass(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(1):
            rows(LeaseEvent).create(txid=1, occurred_at=timezone.now(), queue_id=1, low=1, high=1, seqs=[1], kind=1)
        assert rows(LeaseEvent).filter(low=-1).update(node="x") == 0
        with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
            assert rows(LeaseEvent).update(node="x") == 4
            rows(LeaseEvent).delete()
        put(1)
        refused("leasequeue_event_append_only", lambda: rows(LeaseEvent).update(node="x"))


def test_nothing_changes_or_removes_a_line_of_the_audit(db: None) -> None:
    line = audit.write("retry", audit.Actor(username="ann"), seqs=range(1, 300), counts={"done": 1}, reason="why")
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
    with pytest.raises(InvalidOption, match="cannot change: delete the queue"), transaction.atomic():
        Queue.objects.update(type="log")
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
        # Append-only ones, and a small one.
        rare = {"leasequeue_leaseevent", "leasequeue_operatoraction", "leasequeue_recurringtask"}
        assert has_condition or table in rare
        assert not on_insert
