"""Signals of the engine: once each, after the commit, and never in the way."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_leasequeue import engine, signals
from django_leasequeue.engine import NewJob
from tests.engine.helpers import NODE, claim, enqueue, give_back, make, one, own_connection, put, run
from tests.support.heard import connected, hearing

Heard = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def heard() -> Iterator[Heard]:
    with hearing(signals.ENGINE_SIGNALS) as calls:
        yield calls


@pytest.mark.django_db(transaction=True)
class TestOnCommit:
    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None) -> None:
        make("work", max_deliveries=2, exhaust_at="release", dead_letter="self")

    def words(self, heard: Heard) -> list[str]:
        return [name for name, _ in heard]

    def test_enqueued_and_cancelled(self, heard: Heard) -> None:
        (first,) = enqueue(NewJob(key="k", name="app.task"))
        enqueue(NewJob(key="k"))
        engine.run(engine.cancel("work", keys=["k", "other"]))
        info = {"queue": "work", "project": "", "seq": first.seq, "key": "k", "name": "app.task"}
        assert heard == [("enqueued", {**info, "status": "queued"}), ("cancelled", info)]
        enqueue(*[NewJob()] * 150)
        assert len(heard) == 152

    def test_inside_a_transaction_they_wait_for_its_commit(self, heard: Heard) -> None:
        with transaction.atomic():
            put()
            assert heard == []
        assert self.words(heard) == ["enqueued"]
        with transaction.atomic():
            put(2)
            transaction.set_rollback(True)
        assert self.words(heard) == ["enqueued"]
        with own_connection() as executor:
            executor.run(engine.enqueue("work", [NewJob()]))
        assert self.words(heard) == ["enqueued"] * 2

    @pytest.mark.parametrize("expires", [True, False])
    def test_stalled_and_dead_lettered(self, heard: Heard, clock, expires: bool) -> None:
        (made,) = enqueue(NewJob(key="k", name="app.task"))
        for _ in range(2):
            job = one()
            if expires:
                clock.advance(seconds=31)
            else:
                give_back(job)
        assert claim() == []
        assert self.words(heard) == ["enqueued", *["stalled"] * 2 * expires, "dead_lettered"]
        for _, info in heard:
            assert (info["seq"], info["key"], info["name"]) == (made.seq, "k", "app.task")
        assert heard[-1][1]["deliveries"] == 2
        told = [(info["node"], info["deliveries"], info["state"]) for _, info in heard[1:-1]]
        assert told == [(NODE, 1, "ready"), (NODE, 2, "dead")][: len(told)]

    @pytest.mark.parametrize("exhaust_at", ["claim", "release"])
    @pytest.mark.parametrize("dead_letter", ["self", "graveyard"])
    def test_dead_lettered_once_wherever_it_goes(self, heard: Heard, clock, exhaust_at: str, dead_letter: str) -> None:
        engine.run(engine.configure("work", max_deliveries=1, exhaust_at=exhaust_at, dead_letter=dead_letter))
        put()
        one()
        clock.advance(seconds=31)
        claim()
        assert sorted(self.words(heard)) == ["dead_lettered", "enqueued", "stalled"]

    def test_a_receiver_that_raises_changes_nothing(self, heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
        def broken(**_: Any) -> None:
            raise RuntimeError("no")

        with connected(signals.enqueued, broken):
            assert len(put()) == 1
        assert self.words(heard) == ["enqueued"]
        assert "receiver of a job signal raised" in caplog.text

    def test_nothing_is_announced_of_an_operation_that_failed_or_whose_commit_did(self, heard: Heard) -> None:
        enqueue(NewJob(key="k"))
        heard.clear()
        with pytest.raises(Exception, match="leasequeue_job_key"):
            enqueue(*[NewJob(key=f"n{number}") for number in range(150)], NewJob(key="k"), fresh=True)
        run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no commit today''; END';"
            " CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON leasequeue_job DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        try:
            with pytest.raises(DatabaseError, match="no commit today"):
                put(150)
        finally:
            run("DROP TRIGGER refuse ON leasequeue_job; DROP FUNCTION refuse()")
        assert heard == []
