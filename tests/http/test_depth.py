"""JSON that is nested too deep: refused at every door, and no harm where it is stored already."""

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_leasequeue import conf, engine
from django_leasequeue.engine import NewJob
from django_leasequeue.http import payload
from tests.admin.letters import bury, store
from tests.http.client import Api

#: Deeper than any door takes, and as deep as Python itself still writes.
DEEP = 900
#: Deeper than Python reads, as another program may have stored it.
DEEPER = 3_000


def nested(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


@pytest.fixture
def v1(open_api: None) -> Callable[..., Any]:
    http, headers = Client(), {"client-id": str(uuid.uuid4()), "accept": "application/json"}

    def call(method: str, path: str, body: str = "") -> Any:
        address = path if path.startswith("/") else f"/v1/queues/{path}"
        return http.generic(method, address, body, content_type="application/json", headers=headers)

    return call


@pytest.fixture(params=["orjson", "json"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the extra ``fast``."""
    if request.param == "json":
        monkeypatch.setattr(payload, "orjson", None)


def put(levels: int) -> int:
    (job,) = engine.run(engine.enqueue("jobs", [NewJob(data="-")]))
    store([job.seq], data=nested(levels))
    return job.seq


@pytest.mark.usefixtures("either")
def test_one_limit_at_every_door(api: Api, v1: Callable[..., Any], settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open", "MAX_DEPTH": 10}}
    api.queue("jobs")
    bodies: list[tuple[Callable[[str], Any], str, int]] = [
        (lambda body: api.post("topics/jobs", raw=body.encode()), '{"records": [{"data": %s}]}', 3),
        (lambda body: v1("POST", "jobs/messages", body), '[{"ttl": 60, "body": %s}]', 2),
        (lambda body: v1("PUT", "jobs/metadata", body), '{"more": %s}', 1),
        (lambda body: v1("POST", "jobs/claims", body), '{"ttl": 60, "grace": 60, "more": %s}', 1),
    ]
    for call, form, outer in bodies:
        allowed, refused = call(form % nested(10 - outer)), call(form % nested(11 - outer))
        assert getattr(allowed, "status", None) or allowed.status_code < 300, form
        assert (getattr(refused, "status", None) or refused.status_code) == 400, form
        assert b"nested more than 10 deep" in refused.content
        for levels in (DEEP, DEEPER, 100_000):
            answer = call(form % nested(levels))
            assert (getattr(answer, "status", None) or answer.status_code) == 400, (form, levels)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("levels", [conf.settings.API.MAX_DEPTH + 1, DEEP, DEEPER])
def test_what_is_stored_can_be_read_claimed_and_settled(api: Api, v1: Callable[..., Any], levels: int) -> None:
    api.queue("jobs")
    data = nested(levels)
    put(levels)
    engine.run(engine.enqueue("jobs", [NewJob(data="good")]))
    listed = v1("GET", "jobs/messages?echo=true")
    assert listed.status_code == 200
    assert data.encode() in listed.content
    claimed = v1("POST", "jobs/claims?limit=1", '{"ttl": 60, "grace": 60}')
    assert claimed.status_code == 201
    assert data.encode() in claimed.content
    (href,) = re.findall(rb'"href": ?"([^"]+)"', claimed.content)
    assert v1("GET", href.decode().split("?")[0]).status_code == 200
    assert v1("GET", claimed["Location"]).status_code == 200
    assert v1("DELETE", href.decode()).status_code == 204
    seq = put(levels + 1)
    raw = api.client.post("/v0/topics/jobs/claim", json.dumps({"node": "w", "max": 5}), content_type="application/json")
    assert raw.status_code == 200
    assert nested(levels + 1).encode() in raw.content
    assert api.client.post("/v0/topics/jobs/diff", "{}", content_type="application/json").status_code == 200
    assert api.ack("jobs", [seq], node="w")["acked"] == 1
    assert api.state()["count"] == 1


def test_metadata_of_old_does_no_harm(api: Api, v1: Callable[..., Any]) -> None:
    api.queue("jobs")
    engine.run(engine.enqueue("jobs", [NewJob(data=1)]))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE leasequeue_queue SET metadata = %s::jsonb", [f'{{"deep": {nested(980)}}}'])
    claimed = v1("POST", "jobs/claims", '{"ttl": 60, "grace": 60}')
    assert claimed.status_code == 201
    assert v1("DELETE", claimed.json()[0]["href"]).status_code == 204
    assert v1("DELETE", "jobs").status_code == 204
    assert api.get("topics/jobs").status == 404


def test_the_limit_holds_where_a_dead_letter_is_edited(admin_client: Client, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"MAX_DEPTH": 10}}
    (seq,) = bury(1, "mail", name=None, data={"n": 1})
    address = f"/admin/leasequeue/deadletter/{seq}/edit/"
    for levels, status in ((10, 200), (11, 400), (DEEP, 400), (DEEPER, 400)):
        page = admin_client.post(address, {"data": nested(levels)})
        assert page.status_code == status, levels
        assert ("nested" in page.content.decode()) == (status == 400)
