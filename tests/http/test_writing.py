"""Appending records."""

from typing import Any

import pytest

from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import IdempotencyKey, Queue
from tests.http.client import Api


def records(*data: Any) -> dict[str, Any]:
    return {"records": [{"data": item} for item in data]}


def test_the_first_write_makes_the_topic(api: Api) -> None:
    first = api.post("topics/t", records("a", "b", "c"), status=201)
    assert (first["topic"], first["created"], first["deduped"], first["count"]) == ("t", True, False, 3)
    assert first["seqs"] == sorted(first["seqs"])
    assert (first["first_seq"], first["last_seq"]) == (first["seqs"][0], first["seqs"][-1])
    assert first["head_seq"] == first["last_seq"]
    assert api.state("t")["type"] == "log"
    second = api.post("topics/t", records("d"), status=200)
    assert (second["created"], second["count"]) == (False, 4)
    assert second["first_seq"] > first["last_seq"]


def test_a_write_configures_only_the_topic_that_it_makes(api: Api) -> None:
    config = {"type": "queue", "lease_ms": 5000, "durable": True}
    api.post("topics/t", {**records(1), "config": config}, status=201)
    kept = api.state("t")["config"]
    assert (kept["type"], kept["lease_ms"], kept["durability"]) == ("queue", 5000, "fsync")
    api.post("topics/t", {**records(1), "config": {"type": "queue", "lease_ms": 9000}}, status=200)
    assert api.state("t")["config"]["lease_ms"] == 5000  # an existing topic is configured by PUT only
    refused = api.post("topics/u", {**records(1), "config": {"type": "queue", "dead_letter": "u"}}, status=400)
    assert "dead_letter" in refused.message


def test_a_write_makes_no_topic_and_returns_no_seqs_if_told_so(api: Api) -> None:
    refused = api.post("topics/t", {**records(1), "create": False}, status=404)
    assert refused.code == "topic_not_found"
    assert not Queue.objects.exists()
    answer = api.post("topics/t?return_seqs=false", records(1, 2), status=201)
    assert "seqs" not in answer.json
    assert answer["first_seq"] < answer["last_seq"]
    assert api.post("topics/t?return_seqs=perhaps", records(1), status=400).code == "invalid_request"
    api.post("topics/t", {**records(1), "create": False}, status=200)


def test_any_json_comes_back_as_it_was(api: Api) -> None:
    values = [
        None, True, False, 0, -1, 2**63, -(10**40), 1.5, 1e-7, "", "ü\u2028\"\\/", "\t\n", [], {}, [[]], {"": None},
        {"$seq": 1, "data": {"x": [1, {"y": "z"}]}}, "a" * 10_000,
    ]  # fmt: skip
    api.queue("q")
    api.write("q", *values)
    assert [job["data"] for job in api.claim("q", max=100)] == values


def test_tags(api: Api) -> None:
    api.queue("q")
    api.post("topics/q", {"records": [{"data": 0, "tags": {"customer": 7}}, {"data": 1, "tags": {}}]}, status=200)
    assert [job.get("meta") for job in api.claim("q", max=2)] == [{"$tags": {"customer": 7}}, None]
    for wrong in ({"customer": None}, {"a b": 1}, [], "a"):
        answer = api.post("topics/q", {"records": [{"data": 0, "tags": wrong}]}, status=400)
        assert "records[0].tags" in str(answer), wrong


def test_a_write_at_the_limits_is_taken(api: Api) -> None:
    data = "x" * (1_048_576 - 2 - len('{"k":"v"}'))
    largest = {"data": data, "meta": {"k": "v"}, "tag": "ü" * 128, "node": "x" * 128}
    api.post("topics/t", {"records": [largest]}, status=201)
    meta = {str(k): k for k in range(64)}
    api.post("topics/t", {"records": [{"data": n, "meta": meta} for n in range(10)]}, status=200)
    assert api.post("topics/u?return_seqs=false", {"records": [{"data": 0}] * 10_000}, status=201)["count"] == 10_000


def test_the_same_key_in_the_body_or_the_header_appends_once(api: Api, clock: Clock) -> None:
    first = api.post("topics/t", {**records(1, 2), "idempotency_key": "k1"}, status=201)
    again = api.post("topics/t", {**records(1, 2), "idempotency_key": "k1"}, status=200)
    assert (again["seqs"], again["deduped"], again["created"], again["count"]) == (first["seqs"], True, False, 2)
    assert (again["first_seq"], again["last_seq"]) == (first["first_seq"], first["last_seq"])
    other = api.post("topics/t", {**records(1, 2), "idempotency_key": "k2"}, status=200)
    assert other["deduped"] is False
    assert other["first_seq"] > first["last_seq"]
    assert api.post("topics/u", {**records(1), "idempotency_key": "k1"}, status=201)["deduped"] is False  # per topic
    by_header = api.post("topics/v", records(1), headers={"idempotency-key": "k1"}, status=201)
    again = api.post("topics/v", {**records(1), "idempotency_key": "k1"}, headers={"idempotency-key": "k9"})
    assert (again["deduped"], again["seqs"]) == (True, by_header["seqs"])  # the body wins
    assert api.post("topics/v", records(1), headers={"idempotency-key": "k9"})["deduped"] is False
    refused = api.post("topics/v", records(1), headers={"idempotency-key": "x" * 1_025}, status=400)
    assert "Idempotency-Key" in refused.message


def test_a_key_may_be_used_again_when_its_window_has_ended(api: Api, clock: Clock) -> None:
    api.log("t", idempotency_window_ms=1000)
    body = {**records(1), "idempotency_key": "k"}
    first = api.post("topics/t", body)
    clock.advance(milliseconds=999)
    assert api.post("topics/t", body)["deduped"] is True
    clock.advance(milliseconds=1)
    second = api.post("topics/t", body)
    assert (second["deduped"], second["count"]) == (False, 2)
    assert second["first_seq"] > first["first_seq"]
    assert api.post("topics/t", body)["seqs"] == second["seqs"]
    for number in range(30):
        api.post("topics/t", {**records(1), "idempotency_key": f"k{number}"})
    clock.advance(seconds=2)
    for number in range(3):
        api.post("topics/t", {**records(1), "idempotency_key": f"n{number}"})
    assert IdempotencyKey.objects.count() == 3  # old ones do not pile up
    api.delete("topics/t")
    assert not IdempotencyKey.objects.exists()


def test_without_a_window_or_after_a_refused_write_no_key_is_kept(api: Api) -> None:
    for topic, config, data, status in (
        ("t", {"idempotency_window_ms": 0}, (1,), 200),
        ("u", {"cap_records": 2, "discard": "reject"}, (1, 2, 3), 422),
    ):
        api.log(topic, **config)
        api.post(f"topics/{topic}", {**records(*data), "idempotency_key": "k"}, status=status)
        assert api.post(f"topics/{topic}", {**records(1), "idempotency_key": "k"}, status=200)["deduped"] is False
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_full_topic_that_rejects_refuses_writes(api: Api, kind: str) -> None:
    api.put("topics/t", {"type": kind, "cap_records": 3, "discard": "reject"}, status=201)
    api.write("t", 1, 2)
    refused = api.post("topics/t", records(3, 4), status=422)
    assert (refused.code, "3 records" in refused.message) == ("topic_full", True)
    assert api.state("t")["count"] == 2
    api.write("t", 3)
    api.post("topics/t", records(4), status=422)
    assert api.state("t")["count"] == 3


def test_a_cap_drops_the_oldest_leased_or_not(api: Api) -> None:
    api.log("t", cap_records=3)
    first = api.write("t", *range(5))  # one batch larger than the cap
    assert api.state("t")["earliest_seq"] == first[2]
    second = api.write("t", 5, 6)
    state = api.state("t")
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (3, first[4], second[1])
    assert api.post("topics/t", {"records": [{"data": n} for n in range(200)]})["count"] == 3
    api.queue("q", cap_records=3)
    api.write("q", 1, 2, 3)
    jobs = api.claim("q", max=2)
    assert api.state("q")["queue"] == {"ready": 1, "in_flight": 2, "dead_lettered": 0}
    api.write("q", 4)
    assert api.state("q")["queue"] == {"ready": 2, "in_flight": 1, "dead_lettered": 0}
    acked = api.ack("q", [job["$seq"] for job in jobs])
    assert (acked["acked"], acked["skipped"]) == (1, [jobs[0]["$seq"]])


def test_a_cap_in_bytes_holds(api: Api) -> None:
    api.log("t", cap_bytes=5_000, discard="reject")
    api.write("t", "x" * 2_000)
    assert 2_000 <= api.state("t")["bytes"] <= 2_100
    api.write("t", "x" * 2_000)
    assert api.post("topics/t", records("x" * 2_000), status=422).code == "topic_full"
    api.put("topics/t", {"type": "log", "cap_bytes": 5_000}, status=200)
    api.write("t", "y" * 2_000)
    state = api.state("t")
    assert state["count"] == 2
    assert state["bytes"] <= 5_000
