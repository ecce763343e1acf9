"""Steps, sleeps, waits and events for workers in other languages."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.http.access import create_key
from django_leasequeue.models import Job, JobStep
from django_leasequeue.tasks import emit
from django_leasequeue.worker import JobControl
from tests.http.client import Answer, Api

pytestmark = pytest.mark.django_db


class Worker:
    def __init__(self, api: Api, node: str = "w1") -> None:
        (self.job,) = api.claim(node=node)
        self.api, self.node = api, node
        self.path = f"topics/jobs/jobs/{self.job['$seq']}"
        self.lease = {"node": node, "lease_id": self.job["lease_id"]}

    def steps(self, status: int = 200, **query: Any) -> Answer:
        words = "&".join(f"{name}={value}" for name, value in {**self.lease, **query}.items())
        return self.api.get(f"{self.path}/steps?{words}", status=status)

    def done(self) -> dict[str, Any]:
        return {step["name"]: step["value"] for step in self.steps()["steps"]}

    def put(self, name: str, value: Any, status: int = 201) -> Answer:
        return self.api.put(f"{self.path}/steps/{quote(name, safe='')}", {**self.lease, "value": value}, status=status)

    def suspend(self, status: int = 200, **body: Any) -> Answer:
        return self.api.post(f"{self.path}/suspend", {**self.lease, **body}, status=status)


@pytest.fixture
def worker(api: Api, clock: Clock) -> Worker:
    api.queue()
    api.write("jobs", {"order": 7})
    return Worker(api)


def test_what_was_kept_first_stays(worker: Worker, clock: Clock) -> None:
    assert worker.put("charge", {"id": 7})["value"] == {"id": 7}
    assert worker.put("charge", "other", status=200)["value"] == {"id": 7}
    worker.put("a/b?c%", None)
    worker.put("page#2", [1])
    assert list(worker.done()) == ["charge", "a/b?c%", "page#2"]
    clock.advance(minutes=1)
    later = Worker(worker.api, "w2")
    assert later.done() == {"charge": {"id": 7}, "a/b?c%": None, "page#2": [1]}
    assert list(JobStep.objects.order_by("number").values_list("delivery", flat=True)) == [1, 1, 1]
    clock.advance(minutes=1)
    (job,) = engine.run(engine.claim("jobs", "w3"))  # a worker in Python goes on behind it
    assert JobControl(job, "w3").step("charge", str) == {"id": 7}


@pytest.mark.parametrize("call", ["steps", "put", "suspend"])
def test_without_the_lease(worker: Worker, clock: Clock, call: str) -> None:
    calls = {
        "steps": worker.steps,
        "put": lambda status: worker.put("a", 1, status=status),
        "suspend": lambda status: worker.suspend(event="e", status=status),
    }
    good = dict(worker.lease)
    for lease in ({"node": "w2"}, {"lease_id": "lease_2a"}):
        worker.lease = {**good, **lease}
        assert calls[call](status=409).code == "lease_lost"
    worker.lease = good
    path, worker.path = worker.path, worker.path.replace("topics/jobs", "topics/other")
    assert calls[call](status=404).code == "topic_not_found"
    worker.api.queue("other")
    assert calls[call](status=409).code == "lease_lost"
    worker.api.log("log")
    worker.path = path.replace("topics/jobs", "topics/log")
    assert calls[call](status=409).code == "not_a_queue"
    worker.path = path
    clock.advance(minutes=1)
    assert calls[call](status=409).code == "lease_lost"
    assert not JobStep.objects.exists()


def test_sleep(worker: Worker, clock: Clock) -> None:
    answer = worker.suspend(name="cool off", sleep_ms=3_600_000)
    assert (answer["suspended"], answer["left_ms"]) == (True, 3_600_000)
    assert Job.objects.get().available_at == clock.now + timedelta(hours=1)
    assert worker.suspend(name="cool off", sleep_ms=1, status=409).code == "lease_lost"
    clock.advance(hours=1)
    later = Worker(worker.api)
    assert later.job["deliveries"] == 1
    assert not later.suspend(name="cool off", sleep_ms=3_600_000)["suspended"]
    until = int((clock.now + timedelta(days=1)).timestamp() * 1000)
    assert later.suspend(name="till", until=until)["left_ms"] == 86_400_000


def test_an_event(worker: Worker, clock: Clock) -> None:
    assert worker.suspend(event="packed:7", timeout_ms=60_000)["suspended"]
    assert worker.api.post("events/packed%3A7", {"payload": {"parcel": 3}}, status=201)["first"]
    assert not worker.api.post("events/packed%3A7", {"payload": 4}, status=200)["first"]
    later = Worker(worker.api)
    answer = later.suspend(event="packed:7", timeout_ms=60_000)
    assert (answer["suspended"], answer["timed_out"], answer["payload"]) == (False, False, {"parcel": 3})
    assert answer["name"] == "event packed:7"
    assert later.suspend(event="lost", timeout_ms=1_000)["left_ms"] == 1_000
    clock.advance(seconds=1)
    answer = Worker(worker.api).suspend(event="lost", timeout_ms=1_000)
    assert (answer["timed_out"], "payload" in answer.json) == (True, False)


def test_pages_and_the_bound_of_steps(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.engine.jobs.steps.MAX_PAGE_BYTES", 10)
    for number in range(5):
        worker.put(f"step {number}", "1234")
    seen, after = [], 0
    while after is not None:
        page = worker.steps(after=after)
        seen += [step["name"] for step in page["steps"]]
        after = page.json.get("next")
    assert seen == [f"step {number}" for number in range(5)]
    assert len(worker.steps()["steps"]) == 1
    monkeypatch.setattr("django_leasequeue.engine.jobs.steps.MAX_STEPS", 6)
    worker.put("a", 1)
    worker.put("a", 2, status=200)
    assert "at most 6 steps" in worker.put("b", 1, status=400).message
    assert "at most 6 steps" in worker.suspend(event="e", status=400).message


@pytest.mark.parametrize(("body", "text"), [
    ({}, "one of sleep_ms, until and event"), ({"sleep_ms": 1, "event": "e"}, "one of sleep_ms, until and event"),
    ({"sleep_ms": 1}, "a sleep needs one"), ({"until": 1, "name": "a", "timeout_ms": 1}, "only a wait for an event"),
    ({"sleep_ms": 1, "name": "a#b"}, "name of a step"), ({"event": ""}, "event"),
    ({"event": "$result:1"}, "begin with '$'"), ({"event": "$workflow:x", "name": "mine"}, "begin with '$'"),
    ({"event": "e", "lease_id": "x"}, "lease id"),
])  # fmt: skip
def test_suspensions_that_make_no_sense(worker: Worker, body: dict[str, Any], text: str) -> None:
    assert text in worker.suspend(status=400, **body).message
    assert not JobStep.objects.exists()


def test_values_and_names_that_are_refused(worker: Worker, clock: Clock, settings: Any) -> None:
    settings.LEASEQUEUE = {**settings.LEASEQUEUE, "MAX_RESULT_BYTES": 100, "MAX_PAYLOAD_BYTES": 100}
    assert worker.put("a", "x" * 101, status=400).code == "record_too_large"
    assert worker.put("a#", 1, status=400).code == "invalid_request"
    worker.suspend(name="nap", sleep_ms=1)
    assert worker.api.post("events/e", {"payload": "x" * 101}, status=400).code == "record_too_large"
    assert worker.api.post("events/%24mine", {}, status=400).code == "invalid_request"
    assert worker.api.post(f"events/{'x' * 513}", {}, status=400).code == "invalid_request"
    Job.objects.all().run_now()
    assert "a sleep or a wait" in Worker(worker.api).put("nap", 1, status=400).message


def test_events_are_of_the_keys_project(api: Api) -> None:
    for project in ("", "b"):
        assert Api(create_key("k", ["emit"], project=project)[1]).post("events/e", {}, status=201)["first"]
    assert not emit("e")
