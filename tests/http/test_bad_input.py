"""Bad input at every address of the door ``/v0``: a 400 that names what is wrong, and nothing is changed."""

import json
from typing import Any, NamedTuple

import pytest

from django_leasequeue.models import Claim, JobEvent, LiveJob, Queue, StoredJob

from .client import Api

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
        "node": [LEFT_OUT, "", None, 5, "x" * 129, "ü" * 65, "a\x00"], "max": [-1, "1", 1.0, True],
        "lease_ms": ["1", 1.5, False], "tag": ["", 5, "x" * 257, ["a"]],
    }),
    *(settling(word, HOLDING) for word in ("ack", "nack", "extend")),
    settling("nack", {"delay_ms": ["5", 1.5, True]}),
    settling("extend", {"lease_ms": [LEFT_OUT, None, "1", True]}),
    settling("ack", {
        "results": [[], [1, 2], {"1": 2}, "x", ["\x00"]], "result_ttl_ms": [-1, "5", 1.0],
    }),
    Calls("POST", "log/diff", {}, {
        "from_seq": [-1, "0", 2**63], "limit": [0, "5"], "node": ["", [5], ["x"] * 101], "include_tags": [1],
        "wait_ms": ["1", 1.0, True, -1, 30_001],
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
    *(({"delay_ms": bad}, "records[1].delay_ms") for bad in ("1", True, 1.0, -1, 10**13)),
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
def test_w2_one_bad_record_refuses_all(api: Api, held: int, topic: str) -> None:
    before = everything()
    for record, says in RECORDS:
        whole = record if not record or "data" in record else {"data": 1, **record}
        assert says in refused(api, held, "POST", topic, {"records": [{"data": 0}, whole]}), record
    assert everything() == before


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        *((f"jobs/{word}", {"node": "w1", "seqs": [*range(1_001)], "lease_ms": 5}, "batch_too_large", "1000")
          for word in ("ack", "nack", "extend")),
        ("log", {"records": [{"data": 0}] * 10_001}, "batch_too_large", "10000"),
        ("log", {"records": [{"data": 0}, {"data": "x" * 1_048_577}]}, "record_too_large", "1048576"),
        ("log", {"records": [{"data": "ü" * 524_288}]}, "record_too_large", "1048576"),
    ],
)  # fmt: skip
def test_too_much(api: Api, held: int, path: str, body: dict[str, Any], code: str, says: str) -> None:
    before = everything()
    assert says in refused(api, held, "POST", path, body, code)
    assert everything() == before
