"""Claim, ack, nack, extend, dead letters."""

from typing import Any

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.conf import process
from django_leasequeue.engine.clock import Clock
from django_leasequeue.http.topics import base
from django_leasequeue.models import LiveJob, Queue
from tests.http.client import Api

LEASE = 30


BODIES: dict[str, dict[str, Any]] = {
    "claim": {"node": "w1"}, "ack": {"node": "w1", "seqs": [1]}, "nack": {"node": "w1", "seqs": [1]},
    "extend": {"node": "w1", "seqs": [1], "lease_ms": 1000},
}  # fmt: skip


@pytest.mark.parametrize("word", BODIES)
def test_a_log_and_an_absent_topic_have_no_leases(api: Api, word: str) -> None:
    api.log("events")
    api.write("events", 1)
    for topic, status, code in (("events", 409, "not_a_queue"), ("nope", 404, "topic_not_found")):
        answer = api.post(f"topics/{topic}/{word}", {**BODIES[word], "tag": "a"}, status=status)
        assert (answer.code, answer["error"]["detail"]) == (code, {"topic": topic})
    assert api.state("events")["count"] == 1
    assert Queue.objects.count() == 1


def test_a_claim_has_defaults_and_a_largest_batch(api: Api, clock: Clock) -> None:
    api.queue(lease_ms=5000)
    api.post("topics/jobs?return_seqs=false", {"records": [{"data": n} for n in range(1_005)]}, status=200)
    now = int(clock.now.timestamp() * 1000)
    (first,) = api.post("topics/jobs/claim", {"node": "w" * 128}, status=200)["claimed"]
    assert (first["data"], first["deadline"]) == (0, now + 5000)
    assert api.claim(max=0) == []
    assert len(api.claim(max=10**9)) == 1_000


def test_a_claim_answers_with_its_jobs_and_expired_jobs_come_again(api: Api, clock: Clock) -> None:
    api.queue()
    now = int(clock.now.timestamp() * 1000)
    records = [{"data": {"n": 1}, "tag": "a", "meta": {"trace": "z9"}, "node": "p"}, {"data": None}]
    written = api.post("topics/jobs", {"records": records})["seqs"]
    clock.advance(seconds=1)
    answer = api.post("topics/jobs/claim", {"node": "w1", "max": 10}, status=200)
    assert (answer["topic"], answer["count"], answer["ready"]) == ("jobs", 2, 0)
    first, second = answer["claimed"]
    assert first == {
        "$seq": written[0], "lease_id": first["lease_id"], "deadline": now + 1000 + LEASE * 1000, "$ts": now,
        "$tag": "a", "deliveries": 1, "data": {"n": 1}, "meta": {"trace": "z9"},
    }  # fmt: skip
    assert (set(second), second["data"]) == ({"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}, None)
    clock.advance(seconds=LEASE)  # now = deadline: not expired yet
    empty = api.post("topics/jobs/claim", {"node": "w1", "max": 10}, status=200)
    assert (empty["claimed"], empty["count"], empty["ready"]) == ([], 0, 0)
    clock.advance(milliseconds=1)
    fresh = api.write("jobs", "fresh")
    again = api.claim(node="w2", max=3)
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(written[0], 2), (written[1], 2), (fresh[0], 1)]
    assert again[0]["lease_id"] != first["lease_id"]


def test_an_ack_removes_claimed_jobs_and_names_skipped_ones(api: Api) -> None:
    api.queue()
    written = api.write("jobs", *range(5))
    api.claim(max=3)
    answer = api.ack("jobs", [written[4], written[1], 10**15, written[0], written[1]])
    assert answer.json == {
        "topic": "jobs", "acked": 2, "skipped": [written[4], 10**15], "ready": 2, "in_flight": 1,
        "performance": answer["performance"],
    }  # fmt: skip
    assert api.state()["count"] == 3


@pytest.mark.parametrize("word", ["ack", "nack", "extend"])
def test_nothing_is_settled_after_the_deadline_or_with_a_stale_token(api: Api, clock: Clock, word: str) -> None:
    api.queue()
    first, second = api.write("jobs", 1, 2)
    (old,) = api.claim()
    clock.advance(seconds=LEASE, milliseconds=1)
    body = {"node": "w1", "seqs": [first], "lease_ms": 60_000}
    late = api.post(f"topics/jobs/{word}", body, status=200)
    assert (late["skipped"], late[{"ack": "acked", "nack": "nacked", "extend": "extended"}[word]]) == ([first], 0)
    assert api.state()["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}
    present, other = api.claim(max=2)  # the same node again
    for token in (old["lease_id"], other["lease_id"], "lease_7f3a9c", "lease_" + "f" * 32):
        assert api.post(f"topics/jobs/{word}", {**body, "lease_ids": [token]}, status=200)["skipped"] == [first]
    assert LiveJob.objects.get(seq=first).deadline == LiveJob.objects.get(seq=second).deadline
    assert api.post(f"topics/jobs/{word}", {**body, "lease_ids": [present["lease_id"]]}, status=200)["skipped"] == []


def test_the_counters_add_up_and_exclude_a_delayed_nack(api: Api, clock: Clock) -> None:
    api.queue()
    api.write("jobs", *range(10))

    def add_up(ready: int, in_flight: int, delayed: int = 0) -> None:
        state = api.state()
        assert state["queue"] == {"ready": ready, "in_flight": in_flight, "dead_lettered": 0}
        assert state["count"] == ready + in_flight + delayed

    add_up(10, 0)
    done, delayed, longer, _ = [job["$seq"] for job in api.claim(max=4)]
    add_up(6, 4)
    api.ack("jobs", [done])
    add_up(6, 3)
    answer = api.post("topics/jobs/nack", {"node": "w1", "seqs": [delayed], "delay_ms": 5000}, status=200)
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 6, 2)
    clock.advance(milliseconds=4999)
    add_up(6, 2, 1)
    clock.advance(milliseconds=1)
    add_up(7, 2)
    api.post("topics/jobs/extend", {"node": "w1", "seqs": [longer], "lease_ms": 90_000}, status=200)
    clock.advance(seconds=LEASE, milliseconds=1)
    add_up(8, 1)  # an expired lease counts as ready before any sweep ran
    assert LiveJob.objects.filter(state=2).count() == 2


def test_extend_sets_the_deadline(api: Api, clock: Clock) -> None:
    api.queue()
    written = api.write("jobs", 1, 2)
    api.claim(max=2)
    clock.advance(seconds=10)
    now = int(clock.now.timestamp() * 1000)
    longer = api.post("topics/jobs/extend", {"node": "w1", "seqs": [*written, 99], "lease_ms": 60_000}, status=200)
    assert longer.json == {
        "topic": "jobs", "extended": 2, "skipped": [99], "deadlines": {str(seq): now + 60_000 for seq in written},
        "performance": longer["performance"],
    }  # fmt: skip


def exhaust(api: Api, clock: Clock, seq: int) -> None:
    assert [(job["$seq"], job["deliveries"]) for job in api.claim()] == [(seq, 1)]
    api.post("topics/jobs/nack", {"node": "w1", "seqs": [seq]}, status=200)
    assert [(job["$seq"], job["deliveries"]) for job in api.claim()] == [(seq, 2)]
    clock.advance(seconds=LEASE, milliseconds=1)


def test_the_claim_after_the_last_delivery_moves_the_job_to_its_dead_letter_topic(api: Api, clock: Clock) -> None:
    api.queue("forever", max_deliveries=2)
    api.write("forever", 1)
    for delivery in range(1, 4):
        assert [job["deliveries"] for job in api.claim("forever")] == [delivery]
        clock.advance(seconds=LEASE, milliseconds=1)
    api.queue(max_deliveries=2, dead_letter="jobs.dlq")
    exhaust(api, clock, *api.write("jobs", 1))
    before = api.state()
    assert (before["count"], before["queue"]["ready"]) == (1, 1)
    answer = api.post("topics/jobs/claim", {"node": "w1"}, status=200)
    assert (answer["claimed"], answer["ready"]) == ([], 0)
    state = api.state()
    assert (state["count"], state["queue"]) == (0, {"ready": 0, "in_flight": 0, "dead_lettered": 1})
    target = api.state("jobs.dlq")  # made by the move
    assert (target["type"], target["count"]) == ("log", 1)


@pytest.fixture
def kept(api: Api, settings: Any, monkeypatch: Any) -> None:
    """Counting takes long: counters are kept."""
    settings.LEASEQUEUE = {"API": {"ACCESS": "open", "COUNT_SECONDS": 60}}
    monkeypatch.setattr(base, "CHEAP", -1)
    monkeypatch.setattr(base, "FACTOR", 1e9)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("jitter", [0, 1])
def test_exhausted_jobs_are_in_no_counter(api: Api, clock: Clock, jitter: int) -> None:
    api.queue(max_deliveries=2, dead_letter="jobs.dlq", claim_jitter_ms=jitter)
    exhaust(api, clock, *api.write("jobs", 1))
    process.forget()  # another server process
    api.write("jobs", 2, 3, 4)
    answers = [api.post("topics/jobs/claim", {"node": "w1", "max": size}, status=200) for size in (1, 1, 2)]
    assert [(answer["count"], answer["ready"]) for answer in answers] == [(1, 2), (1, 1), (1, 0)]


@pytest.mark.usefixtures("kept")
def test_expired_leases_and_expired_messages_are_in_no_counter(api: Api, clock: Clock) -> None:
    api.queue(ttl_ms=60_000)
    Queue.objects.filter(name="jobs").update(max_deliveries=1, exhaust_at="release", dead_letter="self")
    api.write("jobs", 1, 2)
    assert len(api.claim(max=2)) == 2
    clock.advance(seconds=LEASE, milliseconds=1)
    api.write("jobs", 3, 4)
    assert api.post("topics/jobs/claim", {"node": "w1"}, status=200)["ready"] == 1
    clock.advance(seconds=60)
    api.write("jobs", 5, 6, 7)
    assert api.post("topics/jobs/claim", {"node": "w1"}, status=200)["ready"] == 2


@pytest.mark.usefixtures("kept")
def test_a_nack_counts_what_is_ready(api: Api) -> None:
    api.queue()
    Queue.objects.filter(name="jobs").update(exhaust_at="release", dead_letter="self", max_deliveries=2)
    written = api.write("jobs", 1, 2)
    api.claim()
    answers = [api.post("topics/jobs/nack", {"node": "w1", "seqs": written[:1]}, status=200)]
    api.claim(max=2)
    answers.append(api.post("topics/jobs/nack", {"node": "w1", "seqs": written}, status=200))
    assert [(answer["nacked"], answer["ready"], answer["in_flight"]) for answer in answers] == [(1, 2, 0), (2, 1, 0)]


@pytest.mark.usefixtures("kept")
def test_deleted_records_are_in_no_counter(api: Api) -> None:
    api.queue()
    written = api.write("jobs", 1, 2, 3, 4)
    api.claim()
    api.post("topics/jobs/delete", {"before_seq": written[2]}, status=200)
    answer = api.post("topics/jobs/claim", {"node": "w1"}, status=200)
    assert (answer["count"], answer["ready"]) == (1, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", [1, 3, 5])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_calls_whose_transaction_is_undone_are_made_again(api: Api, place: int, durability: str) -> None:
    api.queue(durability=durability)
    engine.run(engine.configure("jobs", concurrency=5))
    seen: list[str] = []

    def fail_once(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        if len(seen) == place + 1:
            execute("DO $$BEGIN RAISE EXCEPTION 'undone' USING ERRCODE = '40P01'; END$$", None, many, context)
        return execute(sql, params, many, context)

    calls = [lambda: api.write("jobs", *range(9)), lambda: api.claim(max=9)]
    for call in calls:
        seen.clear()
        with connection.execute_wrapper(fail_once):
            call()
    assert len(seen) > place + 1
    counts = Queue.objects.get(name="jobs")
    assert LiveJob.objects.filter(queue=counts).count() == 9
    assert LiveJob.objects.filter(queue=counts, node="w1").count() == 5
