"""The door describes itself: every address, every status that the tests see, valid OpenAPI."""

from typing import Any

import pytest
from django.test import override_settings
from drf_spectacular.validation import validate_schema

from tests.http.contract import ZAQAR, check_snapshot

from .conftest import Zaqar, described


@pytest.mark.slow
def test_every_operation_is_described_with_its_errors() -> None:
    schema = described()
    validate_schema(schema)
    for methods in schema["paths"].values():
        for operation in methods.values():
            assert operation["operationId"].startswith("zaqar_")
            assert operation["summary"]
            assert {"400", "403", "429", "503"} <= set(operation["responses"])


def test_the_limits_of_the_settings_are_enforced_and_described(zaqar: Zaqar, queue: str) -> None:
    limits = {
        "MAX_QUEUES_PER_PAGE": 7, "MAX_MESSAGES_PER_PAGE": 3, "MAX_MESSAGES_PER_CLAIM": 2, "DEFAULT_PAGE": 5,
        "MAX_QUEUE_NAME_BYTES": 6, "MAX_METADATA_SIZE": 70, "MAX_MESSAGES_SIZE": 300, "MIN_MESSAGE_TTL": 10,
        "MAX_MESSAGE_TTL": 90, "MIN_CLAIM_TTL": 20, "MAX_CLAIM_TTL": 80, "MIN_CLAIM_GRACE": 30, "MAX_CLAIM_GRACE": 70,
    }  # fmt: skip
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "open", "ZAQAR": limits}}):
        paths = described()["paths"]
        assert _status(zaqar, queue, 3, ttl=10) == _status(zaqar, queue, 1, ttl=90) == 201
        assert {_status(zaqar, queue, *bad) for bad in ((4, 10), (1, 9), (1, 91))} == {400}
        assert _status(zaqar, queue, 1, ttl=10, body="x" * 300) == 400
        assert zaqar("PUT", "/v1/queues/longest").status_code == 400
        assert zaqar("PUT", f"/v1/queues/{queue}/metadata", {"a": "x" * 70}).status_code == 400
        for claim in ((2, 20, 30), (1, 80, 70)):
            assert zaqar.claim(queue, *claim).status_code == 201
        for claim in ((3, 20, 30), (1, 19, 30), (1, 81, 30), (1, 20, 29), (1, 20, 71)):
            assert zaqar.claim(queue, *claim).status_code == 400
        assert zaqar("GET", "/v1/queues?limit=7").status_code == 200
        assert zaqar("GET", "/v1/queues?limit=8").status_code == 400

    def body(address: str, method: str) -> Any:
        return paths[address][method]["requestBody"]["content"]["application/json"]["schema"]

    def limit(address: str, method: str) -> Any:
        (found,) = [one["schema"] for one in paths[address][method]["parameters"] if one["name"] == "limit"]
        return found["maximum"], found["default"]

    def seconds(low: int, high: int) -> dict[str, Any]:
        return {"type": "integer", "minimum": low, "maximum": high}

    messages, claims = "/v1/queues/{queue}/messages/", "/v1/queues/{queue}/claims/"
    posted = body(messages, "post")
    assert posted["maxItems"] == 3
    assert posted["items"]["properties"]["ttl"] == seconds(10, 90)
    for address, method in ((claims, "post"), (f"{claims}{{claim}}/", "patch")):
        assert body(address, method)["properties"] == {"ttl": seconds(20, 80), "grace": seconds(30, 70)}
    assert limit(messages, "get") == (3, 3)
    assert limit(claims, "post") == (2, 2)
    assert limit("/v1/queues/", "get") == (7, 5)
    assert "at most 300 characters" in paths[messages]["post"]["description"]
    assert "at most 70 characters" in paths["/v1/queues/{queue}/metadata/"]["put"]["description"]
    assert "at most 6 characters" in paths["/v1/queues/{queue}/"]["put"]["description"]


def _status(zaqar: Zaqar, queue: str, count: int, ttl: int, body: Any = 1) -> int:
    return int(zaqar("POST", f"/v1/queues/{queue}/messages", [{"ttl": ttl, "body": body}] * count).status_code)


def test_the_document_is_as_it_was() -> None:
    schema = described()
    schema["info"]["version"] = "1"
    check_snapshot(ZAQAR, schema)
