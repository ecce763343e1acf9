"""Constraints with names, indexes with purposes, partitions of the log, storage of the hot tables."""

from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.utils import timezone

from django_leasequeue.models import BulkOperation, Claim, Delayed, LeaseEvent, Ready, Record, StoredJob
from django_leasequeue.models.queue import Queue, QueueFloor, QueueRank, QueueStat
from tests.admin.letters import start
from tests.engine.helpers import make, put
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
    """A name in a project, a key in a queue, an active operation of a kind for all queues."""
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
    "delayed": {"delayed_pkey", "delayed_cut_off", "delayed_due", "delayed_expires", "delayed_tag"},
    "claim": {"claim_pkey", "claim_deadline", "claim_node"},
    "deadletter": {"deadletter_pkey", "dead_cause", "dead_died", "dead_expires", "dead_size"},
    "record": {"record_pkey", "record_expires", "record_tag"},
    "jobresult": {"jobresult_pkey", "result_expires", "result_failed"},
    "attempt": {"attempt_pkey", "attempt_job"},
    "queuefloor": {"queuefloor_pkey", "floor_place"},
    "queuerank": {"queuerank_pkey", "rank_place"},
}


def test_the_indexes_of_the_tables_and_no_foreign_keys() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename, indexname FROM pg_indexes")
        indexes = cursor.fetchall()
        cursor.execute("SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f'")
        assert [table for (table,) in cursor.fetchall() if table.startswith("leasequeue")] == []
    for table, names in INDEXES.items():
        found = {name for of, name in indexes if of == f"leasequeue_{table}"}
        assert found == {f"leasequeue_{name}" for name in names}, table


def test_the_hot_tables_leave_room_and_are_vacuumed_by_count() -> None:
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
