"""Bad input at every address of the door ``/v1``: a 400 in this door's form, and nothing is changed."""

from typing import Any

import pytest

from .conftest import Zaqar

MESSAGE = '{"ttl": 300, "body": 1}'
#: (method, what follows the queue) -> documents that are refused.
DOCUMENTS: dict[tuple[str, str], list[str]] = {
    ("POST", "/messages"): [
        "", "[]", "{}", "[1]", '[{"ttl": 300}]', '[{"body": 1}]', '[{"ttl": 59, "body": 1}]',
        '[{"ttl": 1209601, "body": 1}]', '[{"ttl": "300", "body": 1}]', '[{"ttl": true, "body": 1}]',
        '[{"ttl": 1e400, "body": 1}]', '[{"ttl": 99999999999999999999999, "body": 1}]',
        '[{"ttl": 300, "body": "\\u0000"}]', f'[{MESSAGE}, {{"ttl": 1, "body": 1}}]',
        "[" + ",".join([MESSAGE] * 21) + "]",
    ],
    ("POST", "/claims"): [
        "", "[]", '{"ttl": 60}', '{"grace": 60}', '{"ttl": 59, "grace": 60}', '{"ttl": 43201, "grace": 60}',
        '{"ttl": 60, "grace": 59}', '{"ttl": 60, "grace": 43201}', '{"ttl": 60.5, "grace": 60}',
        f'{{"ttl": {10**30}, "grace": 60}}',
    ],
    ("POST", "/claims?limit=0"): ['{"ttl": 60, "grace": 60}'],
    ("POST", "/claims?limit=21"): ['{"ttl": 60, "grace": 60}'],
    ("PATCH", "CLAIM"): ["", "{}", '{"ttl": 59}', '{"ttl": "60"}', '{"ttl": 60, "grace": 1}'],
    ("PUT", "/metadata"): ["", "{", "[1]", '"text"', '{"a": NaN}', '{"a": "\\u0000"}', "[" * 100_000],
}  # fmt: skip
QUERIES = {
    "": ["limit=0", "limit=21", "limit=x", "limit=-1", "limit=99999999999999999999", "detailed=7"],
    "/fizbit/messages": ["limit=0", "limit=21", "echo=perhaps", "include_claimed=1"],
}
MISSING = {
    ("POST", "/messages"): 404, ("GET", "/messages"): 204, ("GET", "/messages?ids=abc"): 204, ("POST", "/claims"): 204,
    ("GET", "/metadata"): 404, ("PUT", "/metadata"): 404, ("GET", "/stats"): 404,
}  # fmt: skip
GOOD: dict[str, Any] = {"messages": [{"ttl": 300, "body": 1}], "claims": {"ttl": 60, "grace": 60}, "metadata": {}}


def refused(answer: Any) -> None:
    assert answer.status_code == 400
    assert set(answer.json()) == {"title", "description"}


@pytest.mark.parametrize(("method", "path"), DOCUMENTS)
def test_bad_documents(zaqar: Zaqar, queue: str, method: str, path: str) -> None:
    zaqar.post(queue, 1)
    claim = zaqar.claim(queue)["Location"] if path == "CLAIM" else ""
    for raw in DOCUMENTS[method, path]:
        refused(zaqar(method, claim or f"/v1/queues/{queue}{path}", raw=raw))
    if not claim:
        assert [message["body"] for message in zaqar.claim(queue).json()] == [1]
    assert zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").status_code == 204


@pytest.mark.parametrize("path", QUERIES)
def test_bad_queries(zaqar: Zaqar, queue: str, path: str) -> None:
    for query in QUERIES[path]:
        refused(zaqar("GET", f"/v1/queues{path}?{query}"))


@pytest.mark.parametrize(("method", "path"), MISSING)
def test_a_missing_queue(zaqar: Zaqar, method: str, path: str) -> None:
    body = GOOD.get(path.strip("/")) if method != "GET" else None
    assert zaqar(method, f"/v1/queues/none{path}", body).status_code == MISSING[method, path]
