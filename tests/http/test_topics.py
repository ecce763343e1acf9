"""Topics: names, PUT, GET, list, DELETE."""

from typing import Any

import pytest

from django_leasequeue.engine.clock import Clock
from django_leasequeue.http.topics import catalog
from django_leasequeue.models import Queue
from tests.http.client import Api

DEFAULTS = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "idempotency_window_ms": 120000, "lease_ms": 30000, "claim_jitter_ms": 0, "max_deliveries": 0,
    "dead_letter": None, "leases_durable": False,
}  # fmt: skip


@pytest.mark.parametrize("name", ["a", "A1", "0", "a.b_c:d-e", "x" * 255])
def test_a_topic_may_have_any_good_name(api: Api, name: str) -> None:
    assert api.put(f"topics/{name}", {}, status=201)["topic"] == name
    assert api.get(f"topics/{name}", status=200)["topic"] == name


@pytest.mark.parametrize("name", ["-a", ".a", "_a", "a%20b", "%C3%BC", "x" * 256, "a%00", "a%0A", "a$b"])
@pytest.mark.parametrize(("method", "end"), [
    ("PUT", ""), ("GET", ""), ("DELETE", ""), ("POST", ""), ("POST", "/diff"), ("POST", "/claim"), ("POST", "/ack"),
])  # fmt: skip
def test_a_bad_name_is_refused_everywhere(api: Api, name: str, method: str, end: str) -> None:
    answer = api.call(method, f"topics/{name}{end}", {} if method != "GET" else None, status=400)
    assert (answer.code, "name" in answer.message) == ("invalid_request", True)
    assert not Queue.objects.exists()


def test_a_new_topic_echoes_every_field(api: Api) -> None:
    answer = api.put("topics/default", {}, status=201)
    said = {"topic": "default", "created": True, "config": DEFAULTS}
    assert answer.json == {**said, "performance": answer["performance"]}
    assert api.put("topics/u", status=201)["config"] == DEFAULTS  # no body at all
    config = {
        "type": "queue", "ttl_ms": 60000, "cap_records": 10, "cap_bytes": 100000, "discard": "reject", "durable": True,
        "durability": "fsync", "idempotency_window_ms": 5000, "lease_ms": 1000, "claim_jitter_ms": 20,
        "max_deliveries": 3, "dead_letter": "t.dlq", "leases_durable": True,
    }  # fmt: skip
    assert api.put("topics/t", config, status=201)["config"] == config
    assert api.state("t")["config"] == config


def test_a_topic_that_is_deleted_while_it_is_configured(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put("topics/t", {}, status=201)
    configure = catalog.engine.configure

    def too_late(name: str, **options: Any) -> Any:
        monkeypatch.undo()
        return configure(f"{name}.gone", **options)

    monkeypatch.setattr(catalog.engine, "configure", too_late)
    assert api.put("topics/t", {"ttl_ms": 5}, status=200)["config"]["ttl_ms"] == 5
    assert api.state("t")["config"]["ttl_ms"] == 5


def test_a_put_replaces_the_whole_configuration(api: Api, clock: Clock) -> None:
    api.put("topics/t", {"type": "queue", "lease_ms": 10**30, "claim_jitter_ms": 5001, "dead_letter": "d"}, status=201)
    assert [api.state("t")["config"][name] for name in ("lease_ms", "claim_jitter_ms")] == [86_400_000, 5_000]
    clamped = api.put("topics/t", {"type": "queue", "lease_ms": -5, "claim_jitter_ms": -1}, status=200)["config"]
    assert (clamped["lease_ms"], clamped["claim_jitter_ms"]) == (100, 0)
    for _ in range(2):
        assert api.put("topics/t", {"type": "queue", "lease_ms": 7000}, status=200)["created"] is False
    assert api.state("t")["config"] == {**DEFAULTS, "type": "queue", "lease_ms": 7000}
    api.write("t", 1)
    (job,) = api.claim("t")
    assert job["deadline"] - job["$ts"] == 7000  # from then on


def test_the_type_of_a_topic_never_changes(api: Api) -> None:
    api.put("topics/t", {"type": "queue", "lease_ms": 5000}, status=201)
    answer = api.put("topics/t", {"type": "log"}, status=409)
    assert (answer.code, answer["error"]["detail"]) == ("topic_exists_incompatible", {"topic": "t"})
    assert api.put("topics/t", {}, status=409).code == "topic_exists_incompatible"
    assert api.state("t")["config"]["lease_ms"] == 5000


@pytest.mark.parametrize(("given", "durability", "durable"), [
    ({}, "disk", False), ({"durable": False}, "disk", False), ({"durable": True}, "fsync", True),
    ({"durability": "fsync"}, "fsync", True), ({"durability": "memory", "durable": True}, "memory", False),
    ({"durability": "ephemeral"}, "ephemeral", False), ({"durability": None, "durable": True}, "fsync", True),
])  # fmt: skip
def test_the_durability_of_a_topic_is_as_configured(
    api: Api, given: dict[str, object], durability: str, durable: bool
) -> None:
    config = api.put("topics/t", given, status=201)["config"]
    assert (config["durability"], config["durable"]) == (durability, durable)


def test_the_state_of_a_queue_and_of_a_log_whose_head_survives_its_records(api: Api, clock: Clock) -> None:
    api.queue("jobs")
    empty = api.state()
    assert (empty["head_seq"], empty["next_seq"], empty["count"], empty["bytes"]) == (0, 1, 0, 0)
    assert (empty["earliest_seq"], empty["last_write_ts"]) == (1, None)
    assert empty["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    clock.advance(seconds=5)
    seqs = api.write("jobs", *range(5))
    api.claim(max=2)
    state = api.state()
    assert (state["topic"], state["type"], state["count"]) == ("jobs", "queue", 5)
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (seqs[-1], seqs[0], seqs[-1] + 1)
    assert state["bytes"] > 0
    assert state["last_write_ts"] == int(clock.now.timestamp() * 1000)
    assert state["queue"] == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
    api.log("events")
    seqs = api.write("events", 1, 2)
    state = api.state("events")
    assert "queue" not in state.json
    assert (state["type"], state["count"], state["head_seq"], state["earliest_seq"]) == ("log", 2, seqs[1], seqs[0])
    api.post("topics/events/delete", {"before_seq": seqs[-1] + 1}, status=200)
    state = api.state("events")
    assert (state["count"], state["head_seq"], state["next_seq"]) == (0, seqs[1], seqs[1] + 1)


def test_topics_are_listed_in_pages_by_name_and_prefix(api: Api) -> None:
    names = [f"t{number:02}" for number in range(7)] + ["u1"]
    for name in reversed(names):
        api.put(f"topics/{name}", {}, status=201)
    first = api.get("topics?page_size=3", status=200)
    assert [line["topic"] for line in first["topics"]] == names[:3]
    second = api.get(f"topics?page_size=3&cursor={first['next_cursor']}", status=200)
    third = api.get(f"topics?page_size=3&cursor={second['next_cursor']}", status=200)
    assert [line["topic"] for page in (first, second, third) for line in page["topics"]] == names
    assert "next_cursor" not in third.json
    assert api.get("topics", status=200)["topics"][0] == {"topic": "t00", "type": "log"}
    exact = api.get("topics?page_size=8", status=200)
    assert (len(exact["topics"]), "next_cursor" in exact.json) == (8, False)
    assert [line["topic"] for line in api.get("topics?prefix=u&page_size=100000")["topics"]] == ["u1"]
    assert api.get("topics?prefix=%25")["topics"] == []
    wrong = ("cursor=x", "cursor=%FF", "cursor=YQ==", "page_size=0", "page_size=x", "page_size=-1")
    for query in wrong:
        assert api.get(f"topics?{query}", status=400).code == "invalid_request"


def test_a_topic_is_deleted_or_only_if_it_is_empty(api: Api) -> None:
    api.queue("jobs")
    (seq,) = api.write("jobs", 1)
    refused = api.delete("topics/jobs?if_empty=true", status=409)
    assert (refused.code, refused["error"]["detail"]) == ("topic_not_empty", {"topic": "jobs"})
    api.claim()
    api.ack("jobs", [seq])
    assert api.delete("topics/jobs?if_empty=maybe", status=400).code == "invalid_request"
    assert api.delete("topics/jobs?if_empty=true", status=200)["deleted"] is True
    absent = api.get("topics/jobs", status=404)
    assert (absent.code, absent["error"]["detail"]) == ("topic_not_found", {"topic": "jobs"})
    api.post("topics/jobs/diff", {}, status=404)
    gone = api.delete("topics/jobs", status=200)
    assert (gone["topic"], gone["deleted"]) == ("jobs", False)
    assert not Queue.objects.exists()  # a read makes no topic
    api.queue("jobs")
    api.write("jobs", 1)
    assert api.delete("topics/jobs", status=200)["deleted"] is True
