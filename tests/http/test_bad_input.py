"""Bad input at every address of ``/v0``: a 400, and nothing is changed; and JSON nested too deep, at every door."""

import json
import re
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test import Client

from django_leasequeue import conf, engine
from django_leasequeue.engine import NewJob
from django_leasequeue.models import Claim, JobEvent, LiveJob, Queue, StoredJob
from tests.admin.letters import bury, store
from tests.http.client import Api
from tests.http.zaqar.conftest import Zaqar

#: The field is not sent.
LEFT_OUT = object()


class Calls(NamedTuple):
    """A good call, and for each field of it values that are refused. ``HELD`` stands for the number of a leased job."""

    method: str
    path: str
    body: dict[str, Any]
    wrong: dict[str, list[Any]]


def settling(word: str, wrong: dict[str, list[Any]]) -> Calls:
    return Calls("POST", f"jobs/{word}", {"node": "w1", "seqs": ["HELD"], "lease_ms": 1_000}, wrong)


HOLDING = {
    "node": [LEFT_OUT],
    "seqs": [LEFT_OUT, [], 1, ["1"], [1.5], [True], [-1], [2**63]],
    "lease_ids": [[], ["lease_1a", "lease_2b"], ["1a"], ["lease_"], ["lease_xyz"], [5], "lease_1a"],
}
CALLS = [
    Calls("POST", "jobs/claim", {"node": "w"}, {
        "node": [LEFT_OUT, "", None, 5, "x" * 129, "ü" * 65, "a\x00"], "max": [-1, "1", 1.5, True],
        "lease_ms": ["1", 1.5, False], "tag": ["", 5, "x" * 257, ["a"]],
    }),
    *(settling(word, HOLDING) for word in ("ack", "nack", "extend")),
    settling("nack", {"delay_ms": ["5", 1.5, True]}),
    settling("extend", {"lease_ms": [LEFT_OUT, None, "1", True]}),
    settling("ack", {
        "results": [[], [1, 2], {"1": 2}, "x", ["\x00"]], "result_ttl_ms": [-1, "5", 1.5],
    }),
    Calls("POST", "log/diff", {}, {
        "from_seq": [-1, "0", 2**63], "limit": [0, "5"], "node": ["", [5], ["x"] * 101], "include_tags": [1],
        "wait_ms": ["1", 1.5, True, -1, 30_001],
    }),
    Calls("POST", "log/delete", {}, {"before_seq": [LEFT_OUT, None, "5", -1], "match": [5, ""]}),
    Calls("POST", "log", {"records": [{"data": 1}]}, {
        "records": [LEFT_OUT, [], None, {}, [1]], "create": [1], "config": [[]], "idempotency_key": ["", 5],
    }),
    Calls("PUT", "new", {"type": "queue"}, {
        "type": ["stream", 1], "durability": ["paper"], "durable": [1, "true"], "ttl_ms": [-1, "5", 1.5, True],
        "cap_records": [-1], "cap_bytes": [2**63], "discard": ["new"], "lease_ms": ["30000", True],
        "max_deliveries": [-1, 2**31], "leases_durable": ["no"], "idempotency_window_ms": [-1],
        "dead_letter": ["new", "-x", "a b", "", "self", 5, ["x"], "x" * 256],
    }),
]  # fmt: skip
#: A field of a record that is written, and what of the message says what is wrong.
RECORDS = [
    ({}, "records[1].data"), ({"tag": ""}, "tag"), ({"tag": "x" * 257}, "tag"), ({"tag": "ü" * 129}, "tag"),
    ({"tag": 5}, "tag"), ({"tag": "a\x00"}, "tag"), ({"node": "x" * 129}, "node"), ({"node": ""}, "node"),
    ({"meta": []}, "meta"), ({"meta": {"a": 1, "$b": 2}}, "records[1].meta"),
    ({"meta": {"$dead_letter_deliveries": "x"}}, "'$'"), ({"meta": {str(n): n for n in range(65)}}, "64"),
    ({"meta": {"x": "y" * 16_384}}, "16384"), ({"data": "a\x00b"}, "U+0000"),
    *(({"priority": bad}, "records[1].priority") for bad in ("1", True, 1.5, 32_768, -32_768)),
    *(({"delay_ms": bad}, "records[1].delay_ms") for bad in ("1", True, 1.5, -1, 10**13)),
]  # fmt: skip


@pytest.fixture
def held(api: Api) -> int:
    """The number of a job that w1 holds; there is a log as well, with a record."""
    api.queue()
    (seq,) = api.write("jobs", 1)
    api.claim()
    api.log("log")
    api.write("log", 1)
    return seq


def everything() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Queue, StoredJob, LiveJob, Claim, JobEvent)]


def refused(api: Api, held: int, method: str, path: str, body: dict[str, Any], code: str = "invalid_request") -> str:
    raw = json.dumps(body).replace('"HELD"', str(held)).encode()
    answer = api.call(method, f"topics/{path}", raw=raw)
    assert (answer.status, answer.code) == (400, code), (path, raw[:300], answer)
    return answer.message


@pytest.mark.parametrize("calls", CALLS, ids=lambda calls: f"{calls.path}-{'-'.join(calls.wrong)}"[:40])
def test_a_value_that_a_field_cannot_have(api: Api, held: int, calls: Calls) -> None:
    before = everything()
    for field, values in calls.wrong.items():
        for value in values:
            body = {name: item for name, item in {**calls.body, field: value}.items() if item is not LEFT_OUT}
            message = refused(api, held, calls.method, calls.path, body)
            if calls.path != "log/delete" or body:  # without a field none is at fault
                assert ("result" if field == "results" else field) in message, (field, value, message)
    assert everything() == before


@pytest.mark.parametrize("topic", ["log", "jobs", "made"])
def test_one_bad_record_refuses_all(api: Api, held: int, topic: str) -> None:
    before = everything()
    for record, says in RECORDS:
        whole = record if not record or "data" in record else {"data": 1, **record}
        assert says in refused(api, held, "POST", topic, {"records": [{"data": 0}, whole]}), record
    assert everything() == before


@pytest.mark.parametrize(("path", "body", "code", "says"), [
    *((f"jobs/{word}", {"node": "w1", "seqs": [*range(1_001)], "lease_ms": 5}, "batch_too_large", "1000")
      for word in ("ack", "nack", "extend")),
    ("log", {"records": [{"data": 0}] * 10_001}, "batch_too_large", "10000"),
    ("log", {"records": [{"data": 0}, {"data": "x" * 1_048_577}]}, "record_too_large", "1048576"),
    ("log", {"records": [{"data": "ü" * 524_288}]}, "record_too_large", "1048576"),
])  # fmt: skip
def test_too_much(api: Api, held: int, path: str, body: dict[str, Any], code: str, says: str) -> None:
    before = everything()
    assert says in refused(api, held, "POST", path, body, code)
    assert everything() == before


#: Deeper than any door takes, and as deep as Python itself still writes.
DEEP = 900
#: Deeper than Python reads, as another program may have stored it.
DEEPER = 3_000


def nested(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


@pytest.fixture
def zaqar(open_api: None) -> Zaqar:
    return Zaqar(project=None)


def put(levels: int) -> int:
    (job,) = engine.run(engine.enqueue("jobs", [NewJob(data="-")]))
    store([job.seq], data=nested(levels))
    return job.seq


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(("method", "address", "form", "outer"), [
    ("POST", "/v0/topics/jobs", '{"records": [{"data": %s}]}', 3),
    ("POST", "/v1/queues/jobs/messages", '[{"ttl": 60, "body": %s}]', 2),
    ("PUT", "/v1/queues/jobs/metadata", '{"more": %s}', 1),
    ("POST", "/v1/queues/jobs/claims", '{"ttl": 60, "grace": 60, "more": %s}', 1),
])  # fmt: skip
def test_one_limit_at_every_door(
    api: Api, zaqar: Zaqar, settings: Any, method: str, address: str, form: str, outer: int
) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open", "MAX_DEPTH": 10}}
    api.queue("jobs")

    def send(levels: int) -> Any:
        return api.client.generic(method, address, form % nested(levels), "application/json", headers=zaqar.headers)

    assert send(10 - outer).status_code < 300
    assert b"nested more than 10 deep" in send(11 - outer).content
    assert {send(levels).status_code for levels in (11 - outer, DEEP, DEEPER, 100_000)} == {400}


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("levels", [conf.settings.API.MAX_DEPTH + 1, DEEP, DEEPER])
def test_what_is_stored_can_be_read_claimed_and_settled(api: Api, zaqar: Zaqar, levels: int) -> None:
    api.queue("jobs")
    data = nested(levels)
    put(levels)
    engine.run(engine.enqueue("jobs", [NewJob(data="good")]))
    listed = zaqar("GET", "/v1/queues/jobs/messages?echo=true")
    claimed = zaqar.claim("jobs", 1)
    assert (listed.status_code, claimed.status_code) == (200, 201)
    for answer in (listed, claimed):
        assert data.encode() in answer.content
    (href,) = re.findall(rb'"href": ?"([^"]+)"', claimed.content)
    assert zaqar("GET", href.decode().split("?")[0]).status_code == 200
    assert zaqar("GET", claimed["Location"]).status_code == 200
    assert zaqar("DELETE", href.decode()).status_code == 204
    seq = put(levels + 1)
    raw = api.client.post("/v0/topics/jobs/claim", json.dumps({"node": "w", "max": 5}), content_type="application/json")
    assert raw.status_code == 200
    assert nested(levels + 1).encode() in raw.content
    assert api.client.post("/v0/topics/jobs/diff", "{}", content_type="application/json").status_code == 200
    assert api.ack("jobs", [seq], node="w")["acked"] == 1
    assert api.state()["count"] == 1


def test_metadata_of_old_does_no_harm(api: Api, zaqar: Zaqar) -> None:
    api.queue("jobs")
    engine.run(engine.enqueue("jobs", [NewJob(data=1)]))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE leasequeue_queue SET metadata = %s::jsonb", [f'{{"deep": {nested(980)}}}'])
    claimed = zaqar.claim("jobs")
    assert claimed.status_code == 201
    assert zaqar("DELETE", claimed.json()[0]["href"]).status_code == 204
    assert zaqar("DELETE", "/v1/queues/jobs").status_code == 204
    assert api.get("topics/jobs").status == 404


def test_the_limit_holds_where_a_dead_letter_is_edited(admin_client: Client, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"MAX_DEPTH": 10}}
    (seq,) = bury(1, "mail", name=None, data={"n": 1})
    address = f"/admin/leasequeue/deadletter/{seq}/edit/"
    for levels, status in ((10, 200), (11, 400), (DEEP, 400), (DEEPER, 400)):
        page = admin_client.post(address, {"data": nested(levels)})
        assert page.status_code == status, levels
        assert ("nested" in page.content.decode()) == (status == 400)


def test_a_number_without_a_fraction_is_an_integer_however_it_is_written(api: Api) -> None:
    """As in JSON Schema; and an empty cursor is the first page."""
    api.queue()
    record = {"data": 1, "delay_ms": 0.0, "tags": {"n": 179.0}}
    (seq,) = api.post("topics/jobs", {"records": [record]}, status=200)["seqs"]
    (job,) = api.post("topics/jobs/claim", {"node": "w", "max": 1.0, "lease_ms": 340.0}, status=200)["claimed"]
    assert (job["$seq"], job["meta"]) == (seq, {"$tags": {"n": 179}})
    body = {"node": "w", "seqs": [float(seq)]}
    assert api.post("topics/jobs/extend", {**body, "lease_ms": 6e4}, status=200)["extended"] == 1
    assert api.post("topics/jobs/ack", body, status=200)["acked"] == 1
    assert api.get("topics?page_size=1.0&cursor=", status=200)["topics"] == [{"topic": "jobs", "type": "queue"}]
