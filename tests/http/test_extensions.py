"""What the door ``/v0`` has beyond the protocol: priorities, delays, tags of a claim, results of an ack."""

from collections.abc import Callable
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import DjangoExecutor
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.jobs.results import status
from django_leasequeue.models import JobResult
from tests.http.client import Api


def write(api: Api, topic: str, *records: dict[str, Any], **body: Any) -> Any:
    return api.post(f"topics/{topic}", {"records": list(records), **body})


def taken(api: Api, topic: str = "jobs", **body: Any) -> list[Any]:
    return [job["data"] for job in api.claim(topic, max=100, **body)]


@pytest.mark.parametrize(("order", "expected"), [("desc", ["h", "m", "n", "l"]), ("asc", ["n", "l", "m", "h"])])
def test_jobs_come_in_the_order_of_their_priorities_and_by_tag(api: Api, order: str, expected: list[str]) -> None:
    records = [{"data": "n"}, {"data": "h", "priority": 9}, {"data": "l", "priority": 0}, {"data": "m", "priority": 5}]
    for config in ({}, {"priority_order": "none"}):
        assert "priority_order" not in api.put("topics/jobs", {"type": "queue", **config})["config"]
        assert "warnings" in write(api, "jobs", records[1], create=False).json
    assert taken(api) == ["h", "h"]
    assert api.put("topics/jobs", {"type": "queue", "priority_order": "up"}, status=400).code == "invalid_request"
    config = {"type": "queue", "priority_order": order}
    assert api.put("topics/jobs", config)["config"]["priority_order"] == order
    assert "warnings" not in write(api, "made", *records, config=config).json
    for topic in ("jobs", "made"):
        assert api.state(topic)["config"]["priority_order"] == order
    write(api, "jobs", *({**record, "tag": tag} for record in records for tag in "ab"))
    assert taken(api, tag="nothing") == []
    assert taken(api, tag="a") == taken(api) == taken(api, "made") == expected


def test_a_priority_that_is_not_heeded_is_told(api: Api) -> None:
    api.queue("plain")
    api.queue("ranked", priority_order="desc")
    api.log("log")
    for topic, record, word in (
        ("plain", {"priority": 1}, "priority_order none"), ("ranked", {"priority": 10}, "from 0 to 9"),
        ("ranked", {"priority": -1}, "from 0 to 9"), ("log", {"priority": 1}, "is a log"),
        ("log", {"delay_ms": 5}, "is a log"),
    ):  # fmt: skip
        answer = write(api, topic, {"data": 0}, {"data": 1, **record})
        (warning,) = answer["warnings"]
        assert word in warning, answer
    for topic, record in (("plain", {"delay_ms": 5}), ("plain", {"priority": None}), ("ranked", {"priority": 9})):
        assert "warnings" not in write(api, topic, {"data": 1, **record}).json


@pytest.mark.parametrize("count", [1, 300])  # one statement, and COPY
def test_a_delayed_job_comes_when_its_time_has_come(api: Api, clock: Clock, count: int) -> None:
    api.queue()
    answer = write(api, "jobs", *({"data": n, "delay_ms": 5_000} for n in range(count)), {"data": "now"})
    assert answer["count"] == count + 1
    assert api.state()["queue"]["ready"] == 1
    assert taken(api) == ["now"]
    clock.advance(seconds=4.9)
    assert taken(api) == []
    clock.advance(seconds=0.2)
    assert api.state()["queue"]["ready"] == count
    assert len(api.claim("jobs", max=1_000)) == count


def test_a_claim_of_one_tag_does_not_wait_for_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.http.topics.leases.claim_together", None)
    api.queue(claim_jitter_ms=5_000)
    write(api, "jobs", {"data": "a", "tag": "a"}, {"data": "b", "tag": "b"})
    answer = api.post("topics/jobs/claim", {"node": "w", "max": 5, "tag": "b"}, status=200)
    assert [job["data"] for job in answer["claimed"]] == ["b"]
    empty = api.post("topics/jobs/claim", {"node": "w", "max": 5, "tag": "b"}, status=200)
    assert empty["count"] == 0


def test_the_results_of_an_ack_are_kept(api: Api) -> None:
    api.queue()
    written = api.write("jobs", 1, 2, 3)
    api.claim(max=3)
    answer = api.post(
        "topics/jobs/ack",
        raw=b'{"node": "w1", "seqs": [%d, %d, %d], "results": [{"n": 1e300}, null, [2]], "result_ttl_ms": 60000}'
        % tuple(written),
        status=200,
    )
    assert (answer["acked"], answer["skipped"], "warnings" in answer.json) == (3, [], False)
    kept = sorted(engine.run(status("jobs", seqs=written, inline=1_000)))
    assert [(result.seq, result.state, result.result_json) for result in kept] == [
        (written[0], "completed", '{"n":1e300}'), (written[1], "completed", None), (written[2], "completed", "[2]"),
    ]  # fmt: skip
    assert {(result.expires_at - result.finished_at).total_seconds() for result in kept} == {60}
    state = api.state()  # for readers the jobs are gone, as without results
    assert (state["count"], state["bytes"], state["head_seq"]) == (0, 0, written[-1])


def test_results_that_nobody_keeps_are_told(api: Api) -> None:
    api.queue()
    api.write("jobs", 1, 2)
    first, second = [job["$seq"] for job in api.claim(max=2)]
    (warning,) = api.ack("jobs", [first], results=["x"])["warnings"]
    assert "result_ttl_ms" in warning
    assert not JobResult.objects.exists()
    engine.run(engine.configure("jobs", preset="topics", result_ttl_ms=5_000))
    assert "warnings" not in api.ack("jobs", [second], results=["x"]).json
    assert JobResult.objects.get().seq == second


def test_what_is_heeded_costs_no_statement_for_warnings(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    fetch = DjangoExecutor.fetch
    monkeypatch.setattr(DjangoExecutor, "fetch", lambda *call: sent.append(call[1]) or fetch(*call))

    def statements(call: Callable[[], Any]) -> list[str]:
        sent.clear()
        call()
        return list(sent)

    engine.run(engine.create("jobs", preset="topics", priority_order="desc", result_ttl_ms=60_000))
    api.write("jobs", 0)
    plain = statements(lambda: api.write("jobs", 1))
    assert statements(lambda: write(api, "jobs", {"data": 2, "priority": 3})) == plain
    first, second = (job["$seq"] for job in api.claim("jobs", max=2))
    done = statements(lambda: api.ack("jobs", [first]))
    assert statements(lambda: api.ack("jobs", [second], results=[7])) == done
