"""Triggers: invariants that hold against everybody who writes, each an IntegrityError with a constraint's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pgtrigger
import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_leasequeue import engine
from django_leasequeue.models import Job, JobState, LeaseEvent, Queue
from django_leasequeue.models.job import LEGAL_MOVES
from tests.engine.helpers import NODE, claim, make, one, put

pytestmark = pytest.mark.django_db

MOVES = [(old, new) for old in JobState for new in JobState if old != new]
LEGAL = [(old, new) for old, new in MOVES if new in LEGAL_MOVES.get(old, ())]
ILLEGAL = [(old, new) for old, new in MOVES if (old, new) not in LEGAL]


def refused(constraint: str, act: Callable[[], Any]) -> str:
    """Expect an IntegrityError that names the constraint; return its message."""
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        act()
    cause = caught.value.__cause__
    assert isinstance(cause, psycopg.errors.CheckViolation)
    assert cause.diag.constraint_name == constraint
    return str(caught.value)


class TestTheLog:
    @pytest.fixture(autouse=True)
    def _events(self, db: None) -> None:
        make("work")
        put(3)

    def test_refuses_updates(self) -> None:
        message = refused("leasequeue_event_append_only", lambda: LeaseEvent.objects.update(node="x"))
        assert "append-only" in message
        event = LeaseEvent.objects.earliest("id")
        event.node = "x"
        refused("leasequeue_event_append_only", event.save)
        assert not LeaseEvent.objects.filter(node="x").exists()

    def test_refuses_deletes(self) -> None:
        refused("leasequeue_event_append_only", LeaseEvent.objects.all().delete)
        refused("leasequeue_event_append_only", LeaseEvent.objects.earliest("id").delete)
        assert LeaseEvent.objects.count() == 3

    def test_refuses_raw_sql_on_a_partition_too(self) -> None:
        def act() -> None:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE leasequeue_leaseevent_p0 SET kind = 5")

        refused("leasequeue_event_append_only", act)

    def test_takes_inserts(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(1):
            LeaseEvent.objects.create(txid=1, occurred_at=timezone.now(), queue_id=1, seq=1, kind=1)

    def test_lets_maintenance_through(self) -> None:
        with pgtrigger.ignore("leasequeue.LeaseEvent:append_only"):
            assert LeaseEvent.objects.update(node="x") == 3
            LeaseEvent.objects.all().delete()
        put(1)
        refused("leasequeue_event_append_only", lambda: LeaseEvent.objects.update(node="x"))

    def test_an_update_of_nothing_passes(self) -> None:
        assert LeaseEvent.objects.filter(seq=-1).update(node="x") == 0


class TestTheTypeOfAQueue:
    def test_cannot_change(self) -> None:
        queue = Queue.objects.get(pk=make("work"))
        queue.type = "log"
        message = refused("leasequeue_queue_type_immutable", queue.save)
        assert "delete the queue" in message
        refused("leasequeue_queue_type_immutable", lambda: Queue.objects.update(type="log"))

    def test_everything_else_can(self) -> None:
        make("work")
        assert Queue.objects.update(lease_ms=5_000, type="queue") == 1
        queue = Queue.objects.get()
        queue.metadata = {"a": 1}
        queue.save()

    def test_maintenance_passes(self) -> None:
        make("work")
        with pgtrigger.ignore("leasequeue.Queue:type_immutable"):
            assert Queue.objects.update(type="log") == 1


class TestTheStatesOfAJob:
    #: What a job needs to be in a state (the check constraints).
    FIELDS = {
        JobState.DELAYED: {"available_at": timezone.now()},
        JobState.LEASED: {"node": "n", "claim": 1, "deadline": timezone.now()},
    }

    def job(self, state: JobState) -> Job:
        queue = make("work")
        return Job.objects.create(
            queue_id=queue, position=1, state=state, created_at=timezone.now(), **self.FIELDS.get(state, {})
        )

    def move(self, job: Job, state: JobState) -> int:
        return Job.objects.filter(pk=job.pk).update(state=state, **self.FIELDS.get(state, {}))

    @pytest.mark.parametrize(("old", "new"), LEGAL, ids=lambda state: state.label)
    def test_legal_moves(self, old: JobState, new: JobState) -> None:
        assert self.move(self.job(old), new) == 1

    @pytest.mark.parametrize(("old", "new"), ILLEGAL, ids=lambda state: state.label)
    def test_illegal_moves(self, old: JobState, new: JobState) -> None:
        job = self.job(old)
        message = refused("leasequeue_job_state_moves", lambda: self.move(job, new))
        assert "use the engine" in message
        assert Job.objects.get().state == old

    def test_the_table_of_moves_is_complete(self) -> None:
        assert len(LEGAL) == 9
        assert len(ILLEGAL) == 11
        assert not [move for move in LEGAL if JobState.RECORD in move]

    def test_every_row_of_a_bulk_update_counts(self) -> None:
        make("work")
        first, *_ = put(3)
        Job.objects.filter(pk=first).update(state=JobState.DEAD)
        lease = self.FIELDS[JobState.LEASED]
        refused("leasequeue_job_state_moves", lambda: Job.objects.update(state=JobState.LEASED, **lease))
        assert Job.objects.filter(state=JobState.READY).count() == 2

    def test_a_bulk_update_of_unchanged_states_passes(self) -> None:
        make("work")
        put(500)
        assert Job.objects.update(state=JobState.READY, name="renamed") == 500
        assert Job.objects.update(tag="t") == 500

    def test_unchanged_rows_call_no_function(self) -> None:
        """The condition is the trigger's own: what does not change a state costs no call."""
        make("work")
        put(50)
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) UPDATE leasequeue_job SET state = state, name = 'x'")
            (plan,) = cursor.fetchone()[0]
        assert [trigger for trigger in plan["Triggers"] if trigger["Calls"]] == []

    def test_maintenance_passes(self) -> None:
        job = self.job(JobState.READY)
        with pgtrigger.ignore("leasequeue.Job:state_moves"):
            assert self.move(job, JobState.RECORD) == 1

    def test_the_engine_makes_legal_moves_only(self) -> None:
        make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
        put(2)
        job = one()
        engine.run(engine.nack([job.seq], NODE))
        engine.run(engine.redrive("work", [job.seq], delay_ms=60_000))
        assert len(claim(5)) == 1


def test_no_trigger_stands_in_the_way_of_a_truncate() -> None:
    """Every host's TransactionTestCase empties the tables."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'leasequeue%'"
            " AND tgtype::int & 32 > 0"
        )
        assert cursor.fetchall() == []


def test_every_trigger_has_a_condition_or_is_rare() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgqual IS NOT NULL, tgtype::int & 4 FROM pg_trigger"
            " WHERE NOT tgisinternal AND tgparentid = 0 AND tgrelid::regclass::text LIKE 'leasequeue%'"
        )
        found = cursor.fetchall()
    assert {table for table, *_ in found} >= {"leasequeue_job", "leasequeue_queue", "leasequeue_leaseevent"}
    for table, has_condition, on_insert in found:
        assert has_condition or table in ("leasequeue_leaseevent", "leasequeue_operatoraction")  # append-only
        assert not on_insert
