"""Deletions of queues while other sessions add jobs: what is committed stands in a queue, or its end is in the log."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.engine.dead import action
from django_leasequeue.engine.operation import Rows
from django_leasequeue.engine.queues import queues
from django_leasequeue.engine.topics import topics
from django_leasequeue.exceptions import InvalidOption, QueueBusy, QueueNotFound
from django_leasequeue.models import DeadLetter, JobEvent, LiveJob, Queue, StoredJob
from tests.engine import helpers
from tests.engine.helpers import NODE, claim, kept_waiting, kinds, last_event, make, one, own_connection, put, seqs
from tests.http.client import Api
from tests.support.commands import said

pytestmark = pytest.mark.django_db(transaction=True)

#: The ways to delete a queue.
WAYS: dict[str, Callable[[], object]] = {
    "engine": lambda: engine.run(engine.delete("work")),
    "instance": lambda: Queue.objects.get(name="work").delete(),
    "queryset": lambda: Queue.objects.filter(name="work").delete(),
    "topics": lambda: Api().delete("topics/work", status=200),
}
IN_PLACE = {"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self"}


@pytest.fixture(autouse=True)
def _work(transactional_db: None, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}}
    make("work")


def ended() -> dict[int, bool]:
    """Return of each job in the lease log whether it was cancelled."""
    return {seq: "cancelled" in kinds(seq) for seq in JobEvent.objects.values_list("seq", flat=True).distinct()}


@contextmanager
def begun() -> Iterator[ConnectionExecutor]:
    with helpers.open_transaction() as executor:
        executor.connection.execute("SELECT 1")
        yield executor


def delete_meanwhile(act: Callable[[], object], queue: str = "work", **how: Any) -> bool:
    """Delete a queue on a connection of its own, and do something once the deletion has begun to wait."""
    with own_connection() as deleter:
        usual, waits = deleter.fetch, []

        def fetch(name: str, params: Mapping[str, Any]) -> Rows:
            if name == "queue_writers" and params["pause"] and not waits:
                waits.append(act())
            return usual(name, params)

        deleter.fetch = fetch  # type: ignore[method-assign]
        try:
            return deleter.run(engine.delete(queue, **how))
        finally:
            assert len(waits) == 1, "it waits"


@pytest.mark.parametrize("size", [1, 2, 300])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_deletion_waits_for_an_open_transaction_and_takes_its_jobs(end: str, size: int) -> None:
    there = put(1)
    with begun() as writer:
        added = [answer.seq for answer in writer.run(engine.enqueue("work", [NewJob() for _ in range(size)]))]
        assert delete_meanwhile(getattr(writer.connection, end)) is True
    assert not StoredJob.objects.exists()
    assert ended() == dict.fromkeys(there + (added if end == "commit" else []), True)
    assert "0 differences" in said("leasequeue_verify")


@pytest.mark.parametrize("way", WAYS)
def test_a_deletion_is_refused_while_a_transaction_stays_open_and_its_jobs_run(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LOOKS", 5)
    with begun() as writer:
        writer.connection.execute("SET application_name = 'reporting'")
        (added,) = writer.run(engine.enqueue("work", [NewJob()]))
        if way == "topics":
            refused = Api().delete("topics/work", status=503)
            assert (refused.code, refused.headers["Retry-After"]) == ("not_ready", "1")
            assert "reporting" not in refused["error"]["message"]
        else:
            with pytest.raises(QueueBusy, match=r"'work' was not deleted.* are open, pid \d+ \(reporting, open for "):
                WAYS[way]()
        writer.connection.commit()
    assert seqs(claim()) == [added.seq]
    WAYS[way]()
    assert ended() == {added.seq: True}


def test_a_bulk_of_jobs_in_an_open_transaction_keeps_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOKS", 5)
    with begun() as writer:
        writer.run(engine.enqueue("work", [NewJob() for _ in range(300)]))
        with pytest.raises(QueueBusy, match="adds many jobs"):
            engine.run(engine.delete("work"))
        writer.connection.commit()
    assert len(claim(1_000)) == 300


@pytest.mark.parametrize("if_empty", [False, True])
@pytest.mark.parametrize("size", [1, 2, 300])
@pytest.mark.parametrize(("door", "end"), [
    (engine.enqueue, "commit"), (engine.enqueue, "rollback"), (topics.write, "commit"),
])  # fmt: skip
def test_a_write_that_comes_later_waits_for_the_deletion(door: Any, end: str, size: int, if_empty: bool) -> None:
    """Then it makes the queue again, or finds it gone."""
    with begun() as deleter:
        deleter.run(engine.delete("work", if_empty=if_empty))
        with kept_waiting(lambda writer: writer.run(door("work", [NewJob()] * size))) as answer:
            getattr(deleter.connection, end)()
    if door is topics.write:
        assert isinstance(answer.exception(), QueueNotFound)
        assert not StoredJob.objects.exists()
    else:
        assert len(answer.result()) == LiveJob.objects.filter(queue__name="work").count() == size
        assert len(claim(1_000)) == size


@pytest.mark.parametrize("type", ["queue", "log"])
@pytest.mark.parametrize("size", [1, 2, 300])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_write_keeps_a_queue_that_only_goes_without_jobs(end: str, size: int, type: str) -> None:
    make("topic", type=type)
    with begun() as writer:
        writer.run(topics.write("topic", [NewJob()] * size))
        with pytest.raises(InvalidOption) if end == "commit" else nullcontext():
            assert delete_meanwhile(getattr(writer.connection, end), "topic", if_empty=True) is True
    assert LiveJob.objects.count() == (size if end == "commit" else 0)


def test_writers_that_stay_open_are_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOKS", 5)
    make("other")
    with begun() as writer:
        writer.run(engine.enqueue("other", [NewJob()]))
        with pytest.raises(QueueBusy, match="about to get jobs"):
            engine.run(engine.delete("work", if_empty=True))
    assert engine.run(engine.delete("work", if_empty=True)) is True


@pytest.mark.parametrize("way", ["engine", "instance"])
def test_new_jobs_wait_for_the_end_of_the_queue_only_not_of_its_jobs(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(3)
    usual, found = queues.remove_orphans, []

    def remove(queue_id: int) -> Any:
        found.append(connection.in_atomic_block)
        return usual(queue_id)

    monkeypatch.setattr(queues, "remove_orphans", remove)
    WAYS[way]()
    assert found == [False, False]


def test_a_deletion_in_a_transaction_that_sees_one_snapshot_is_refused() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(InvalidOption, match="isolation level repeatable read does not see"):
            Queue.objects.get(name="work").delete()
    with own_connection() as other:
        other.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.connection.autocommit = False
        with pytest.raises(InvalidOption, match="isolation level repeatable read"):
            other.run(engine.delete("work"))


def test_a_host_that_reads_repeatably_deletes_queues() -> None:
    connection.ensure_connection()
    raw = connection.connection
    before, raw.isolation_level = raw.isolation_level, psycopg.IsolationLevel.REPEATABLE_READ
    try:
        Queue.objects.get(name="work").delete()
    finally:
        raw.isolation_level = before
    assert not Queue.objects.exists()


def test_every_job_of_a_deleted_queue_has_an_end_in_the_lease_log() -> None:
    make("mortal", **IN_PLACE, result_ttl_ms=60_000)
    done, dead, leased, ready = put(4, queue="mortal")
    (delayed,) = put(1, queue="mortal", delay_ms=60_000)
    engine.run(engine.ack(seqs(claim(1, "mortal")), NODE))
    engine.run(engine.nack(seqs(claim(1, "mortal")), NODE))
    held = one("mortal")
    assert engine.run(engine.delete("mortal")) is True
    assert {seq for seq, is_over in ended().items() if is_over} == {dead, leased, ready, delayed}
    assert kinds(done)[-1] == "acked"
    assert last_event(ready).detail == {"reason": "queue_deleted"}
    assert (last_event(leased).claim, last_event(leased).node) == (held.token, NODE)


def test_records_of_a_deleted_log_are_no_jobs_and_have_no_events() -> None:
    make("topic", type="log")
    put(2, queue="topic")
    assert engine.run(engine.delete("topic")) is True
    assert not JobEvent.objects.exists()


class TestDeadLettersThatAreOnTheirWay:
    """What moves a job into a queue reads that queue's row as an enqueue does."""

    def dead(self) -> tuple[int, str]:
        make("morgue", type="log")
        make("mortal", **{**IN_PLACE, "dead_letter": "morgue"})
        put(1, queue="mortal")
        return one("mortal").seq, "morgue"

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_a_dead_letter_does_not_go_to_a_topic_that_is_being_deleted(self, end: str, clock: Any) -> None:
        seq, topic = self.dead()
        with begun() as deleter:
            deleter.run(engine.delete(topic))
            engine.run(engine.nack([seq], NODE))
            getattr(deleter.connection, end)()
        clock.advance(hours=1)
        engine.run(engine.sweep([Queue.objects.get(name="mortal").pk]))
        assert not claim(1, "mortal")
        assert [job.queue.name for job in StoredJob.objects.select_related("queue")] == ["morgue"]
        assert "0 differences" in said("leasequeue_verify")

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    @pytest.mark.parametrize("kind", ["redrive", "edit"])
    def test_a_dead_letter_that_goes_home_waits_for_the_deletion_of_its_home(self, kind: str, end: str) -> None:
        seq, topic = self.dead()
        engine.run(engine.nack([seq], NODE))
        letter, dead_at = DeadLetter.objects.values_list("pk", "dead_at").get()
        with begun() as deleter:
            deleter.run(engine.delete("mortal"))

            def act(executor: ConnectionExecutor) -> object:
                if kind == "edit":
                    return executor.run(action.edit_and_retry(topic, letter, data=1, dead_at=dead_at))
                return executor.run(action.act("retry", [letter]))

            with kept_waiting(act) as answer:
                getattr(deleter.connection, end)()
        assert answer.exception() is None
        (job,) = StoredJob.objects.select_related("queue").exclude(pk=letter if end == "rollback" else None)
        assert job.queue.name == ("morgue" if end == "commit" else "mortal")
        assert "0 differences" in said("leasequeue_verify")
