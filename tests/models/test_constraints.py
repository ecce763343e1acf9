"""Constraints with names, indexes with purposes, partitions of the log, storage of the hot tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from django_leasequeue.models import Claim, Job, JobResult, JobState, LeaseEvent, Queue, QueueFloor, QueueStat
from tests.engine.helpers import make, put

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def refused(constraint: str, act: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        act()
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.diag.constraint_name == constraint


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("leasequeue_queue_lease_ms", {"lease_ms": 99}),
        ("leasequeue_queue_lease_ms", {"lease_ms": 86_400_001}),
        ("leasequeue_queue_priority_range", {"priority_min": 5, "priority_max": 4}),
        ("leasequeue_queue_priority_range", {"priority_min": -32_768}),
        ("leasequeue_queue_not_negative", {"max_deliveries": -1}),
        ("leasequeue_queue_not_negative", {"claim_jitter_ms": 5_001}),
        ("leasequeue_queue_not_negative", {"result_ttl_ms": -1}),
        ("leasequeue_queue_not_negative", {"ttl_ms": -1}),
        ("leasequeue_queue_not_negative", {"dead_ttl_ms": -1}),
        ("leasequeue_queue_not_negative", {"cap_records": -1}),
        ("leasequeue_queue_not_negative", {"backoff_base_ms": -1}),
        ("leasequeue_queue_dead_letter_other", {"dead_letter": "work"}),
    ],
    ids=repr,
)
def test_options_of_a_queue(constraint: str, values: dict[str, Any]) -> None:
    make("work")
    refused(constraint, lambda: Queue.objects.update(**values))


def test_a_name_once_a_project() -> None:
    make("work")
    make("work", project="acme")
    refused("leasequeue_queue_name", lambda: Queue.objects.create(name="work"))


def test_a_key_once_a_queue() -> None:
    queue, other = make("work"), make("other")

    def job(queue_id: int, key: str | None) -> Job:
        return Job.objects.create(queue_id=queue_id, position=1, created_at=NOW, key=key)

    job(queue, "k")
    job(other, "k")
    job(queue, None)
    job(queue, None)
    refused("leasequeue_job_key", lambda: job(queue, "k"))


def test_a_lease_is_complete() -> None:
    make("work")
    put()
    for missing in ("node", "claim", "deadline"):
        fields = {"state": JobState.LEASED, "node": "n", "claim": 1, "deadline": NOW, missing: None}
        refused("leasequeue_job_lease_complete", lambda fields=fields: Job.objects.update(**fields))


def test_a_delay_has_a_time() -> None:
    make("work")
    put()
    refused("leasequeue_job_delay_complete", lambda: Job.objects.update(state=JobState.DELAYED))


def test_a_result_once_a_key() -> None:
    def result(seq: int, key: str | None) -> JobResult:
        return JobResult.objects.create(
            seq=seq, queue_id=1, key=key, created_at=NOW, finished_at=NOW, expires_at=NOW, deliveries=1, state=1
        )

    result(1, "k")
    result(2, None)
    result(3, None)
    refused("leasequeue_result_key", lambda: result(4, "k"))


def test_floors_and_samples_once_each() -> None:
    QueueFloor.objects.create(queue_id=1, kind=0, rank=0)
    refused("leasequeue_floor_place", lambda: QueueFloor.objects.create(queue_id=1, kind=0, rank=0))
    QueueStat.objects.create(queue_id=1, sampled_at=NOW, ready=0, delayed=0, leased=0, dead=0)
    refused(
        "leasequeue_stat_sample",
        lambda: QueueStat.objects.create(queue_id=1, sampled_at=NOW, ready=0, delayed=0, leased=0, dead=0),
    )


def test_every_constraint_and_index_has_a_name_of_ours() -> None:
    """A name that Django makes up would be another one after a rename, and says nothing in an error."""
    for model in apps.get_app_config("leasequeue").get_models():
        for item in [*model._meta.constraints, *model._meta.indexes]:
            assert item.name.startswith("leasequeue_"), f"{model.__name__}: {item.name}"


def test_there_is_no_index_on_the_jobs_deadline() -> None:
    """Leases change all the time: what expires is found through its claim (DESIGN section 4)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'leasequeue_job'")
        indexes = dict(cursor.fetchall())
    assert set(indexes) == {
        "leasequeue_job_pkey",
        *(f"leasequeue_job_{name}" for name in ("ready", "delayed", "dead", "died", "tag", "expires", "record", "key")),
    }
    assert not [name for name, definition in indexes.items() if "deadline" in definition]
    assert "WHERE (state = 0)" in indexes["leasequeue_job_ready"]


def test_the_database_has_no_foreign_keys_on_the_hot_tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND conrelid::regclass::text LIKE 'leasequeue%'"
        )
        tables = {table for (table,) in cursor.fetchall()}
    hot = {model._meta.db_table for model in (Job, Claim, LeaseEvent, JobResult, QueueFloor, QueueStat)}
    assert not tables & hot


def test_the_hot_tables_leave_room_and_are_vacuumed_by_count() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL AND relkind = 'r'")
        options = {name: set(values) for name, values in cursor.fetchall()}
    assert "fillfactor=80" in options["leasequeue_job"]
    assert "autovacuum_vacuum_scale_factor=0.02" in options["leasequeue_job"]
    assert "fillfactor=40" in options["leasequeue_queuefloor"]
    assert "autovacuum_vacuum_scale_factor=0.02" in options["leasequeue_claim"]


class TestPartitions:
    def place(self, number: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO leasequeue_leaseevent (id, occurred_at, queue_id, seq, kind) VALUES (%s, now(), 1, 1, 1)"
                " RETURNING tableoid::regclass::text, txid",
                [number],
            )
            table, txid = cursor.fetchone()
            assert txid > 0
        return str(table)

    @pytest.mark.parametrize(
        ("number", "partition"),
        [(0, "p0"), (1_999_999, "p0"), (2_000_000, "p2000000"), (5_999_999, "p4000000"), (10**15, "default")],
    )
    def test_an_event_goes_where_its_number_says(self, number: int, partition: str) -> None:
        assert self.place(number) == f"leasequeue_leaseevent_{partition}"

    def test_a_search_by_number_reads_one_partition(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN SELECT * FROM leasequeue_leaseevent WHERE id = 2500000")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "leasequeue_leaseevent_p2000000" in plan
        assert "leasequeue_leaseevent_p0" not in plan

    def test_the_log_has_brin_indexes_only(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'leasequeue_leaseevent'")
            definitions = [definition for (definition,) in cursor.fetchall()]
        assert len(definitions) == 3
        assert all("USING brin" in definition for definition in definitions)
        assert any("int8_minmax_multi_ops" in definition for definition in definitions)

    def test_a_partition_can_be_dropped(self) -> None:
        put_in = self.place(4_000_000)
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {put_in}")
        assert not LeaseEvent.objects.filter(id=4_000_000).exists()


def test_every_model_reads_and_prints() -> None:
    for model in apps.get_app_config("leasequeue").get_models():
        assert model.objects.count() >= 0
        assert model.__str__ is not models.Model.__str__, model.__name__
