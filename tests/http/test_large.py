"""Large payloads over HTTP: topics, streams, messages, dead letters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.http.access import create_key
from tests.admin.letters import bury
from tests.engine.helpers import read_result
from tests.http.client import Api
from tests.http.servers import EventSource, serving
from tests.http.zaqar.conftest import Zaqar
from tests.large import BIG, FailingStorage, away, files, large_settings
from tests.support.environment import child_environment

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path, API={"ACCESS": "open", "COUNT_SECONDS": 0}):
        yield tmp_path


@pytest.fixture
def api(storage: Path) -> Api:
    return Api()


class TestTopics:
    @pytest.mark.parametrize("config", [{}, {"claim_jitter_ms": 10}], ids=["claimed", "dealt"])
    def test_write_read_claim_ack_with_a_result(self, api: Api, storage: Path, config: dict[str, Any]) -> None:
        api.queue(**config)
        api.write("jobs", BIG, "small")
        assert len(files(storage)) == 1
        answer = api.post("topics/jobs/diff", {"from_seq": 0}, status=200)
        assert [record["data"] for record in answer["records"]] == [BIG, "small"]
        refused = api.post("topics/jobs", {"records": [{"data": 1, "meta": {"$large": 1}}]})
        assert (refused.status, refused.code) == (400, "invalid_request")
        jobs = api.claim(max=5)
        assert [job["data"] for job in jobs] == [BIG, "small"]
        api.ack("jobs", [jobs[0]["$seq"]], results=[BIG], result_ttl_ms=60_000)
        assert len(files(storage)) == 2
        result = engine.run(read_result("jobs", seqs=[jobs[0]["$seq"]]))
        assert json.loads(result.result_json or "") == BIG

    def test_away_is_503_with_retry_after(self, api: Api) -> None:
        api.queue()
        with away():
            answer = api.post("topics/jobs", {"records": [{"data": BIG}]})
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "not_ready", "1")
        assert api.claim() == []
        api.write("jobs", BIG)
        with away():
            answer = api.post("topics/jobs/claim", {"node": "w1", "max": 1})
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")


class TestMessages:
    @pytest.fixture
    def zaqar(self, storage: Path, settings: Any) -> Zaqar:
        settings.ROOT_URLCONF = "tests.http.zaqar.conftest"
        engine.run(engine.create("fizbit", project="demo", preset="zaqar"))
        return Zaqar()

    def test_post_list_get_claim(self, zaqar: Zaqar, storage: Path) -> None:
        [path] = zaqar.post("fizbit", {"text": BIG})
        assert len(files(storage)) == 1
        listed = zaqar("GET", "/v1/queues/fizbit/messages?echo=true").json()["messages"]
        assert [message["body"] for message in listed] == [{"text": BIG}]
        assert zaqar("GET", path).json()["body"] == {"text": BIG}
        claimed = zaqar.claim("fizbit")
        assert [message["body"] for message in claimed.json()] == [{"text": BIG}]
        live = zaqar("GET", claimed["Location"]).json()
        assert [message["body"] for message in live["messages"]] == [{"text": BIG}]

    def test_away_is_503_with_retry_after(self, zaqar: Zaqar) -> None:
        with away():
            answer = zaqar("POST", "/v1/queues/fizbit/messages", [{"ttl": 300, "body": BIG}])
        assert (answer.status_code, answer["Retry-After"]) == (503, "1")


def test_dead_letters(storage: Path, settings: Any) -> None:
    settings.LEASEQUEUE = {**settings.LEASEQUEUE, "API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}}
    [seq] = bury(1, "mail", data={"text": BIG})
    token = create_key("test", ["read"])[1]
    headers = {"authorization": f"Bearer {token}"}
    one = Client().get(f"/v0/dead-letters/{seq}", headers=headers).json()
    assert one["dead_letter"]["data"] == {"text": BIG}
    page = Client().get("/v0/dead-letters", {"with_payload": "true"}, headers=headers).json()
    assert [letter["data"] for letter in page["dead_letters"]] == [{"text": BIG}]


@pytest.mark.slow
def test_streams_of_work_and_watch(test_database_url: str, storage: Path) -> None:
    backend = f"{FailingStorage.__module__}.{FailingStorage.__qualname__}"
    large = {"large": {"BACKEND": backend, "OPTIONS": {"location": str(storage)}}}
    environment = {
        **child_environment(test_database_url), "LEASEQUEUE_TEST_STORAGES": json.dumps(large),
        "LEASEQUEUE_TEST": json.dumps({"LARGE": {"ABOVE": 4_096, "STORAGE": "large"}}),
    }  # fmt: skip
    for (server,) in serving(environment):
        server.put("topics/big", {"type": "queue"})
        server.write("big", BIG)
        assert len(files(storage)) == 1
        watch = server.post("watch", {"topics": {"big": 0}})
        for path in ("topics/big/work?node=w1&max=1", watch["stream_url"].split("/v0/")[-1]):
            with EventSource(server, path) as stream:
                assert stream.event()["data"] == BIG
