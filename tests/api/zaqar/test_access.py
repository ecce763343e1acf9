"""Who may do what at this door: keys and projects."""

from typing import Any

import pytest
from django.test import override_settings

from django_leasequeue.api.keys import create_key

from .conftest import Zaqar

EVERYTHING = ("read", "write", "delete", "admin")


@pytest.fixture(autouse=True)
def _closed(_door: None) -> Any:
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "keys"}}):
        yield


def holder(*scopes: str, project: str = "demo", names: str | None = "demo", topics: tuple[str, ...] = ()) -> Zaqar:
    """Return a client with a key of its own; ``names`` is the project that its requests name."""
    _, token = create_key("test", scopes, project=project, topics=topics)
    client = Zaqar(names)
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def test_closed_without_a_key_but_health_and_home_are_public() -> None:
    nobody = Zaqar()
    answer = nobody("GET", "/v1/queues")
    assert answer.status_code == 401
    assert "Bearer" in answer["WWW-Authenticate"]
    assert set(answer.json()) == {"title", "description"}
    assert nobody("GET", "/v1/health").status_code == 204
    assert nobody("GET", "/v1/", Accept="application/json-home").status_code == 200


def test_an_unknown_key_is_401() -> None:
    client = Zaqar()
    client.headers["Authorization"] = "Bearer lqk_000000000000_nothing"
    assert client("GET", "/v1/queues").status_code == 401


def test_a_key_of_one_project_cannot_name_another() -> None:
    assert holder(*EVERYTHING)("PUT", "/v1/queues/inbox").status_code == 201
    stranger = holder(*EVERYTHING, project="other", names="demo")
    assert stranger("GET", "/v1/queues/inbox").status_code == 403
    silent = holder(*EVERYTHING, names=None)
    assert silent("GET", "/v1/queues/inbox").status_code == 204


def test_an_operators_key_speaks_for_every_project_and_a_plain_one_for_none() -> None:
    holder(*EVERYTHING)("PUT", "/v1/queues/inbox")
    assert holder(*EVERYTHING, project="")("GET", "/v1/queues/inbox").status_code == 204
    assert holder("read", project="")("GET", "/v1/queues/inbox").status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "body", "scopes"),
    [
        ("GET", "/v1/queues", None, {"read"}),
        ("GET", "/v1/queues/inbox", None, {"read"}),
        ("PUT", "/v1/queues/new", None, {"admin"}),
        ("DELETE", "/v1/queues/inbox", None, {"delete"}),
        ("GET", "/v1/queues/inbox/metadata", None, {"read"}),
        ("PUT", "/v1/queues/inbox/metadata", {}, {"admin"}),
        ("GET", "/v1/queues/inbox/stats", None, {"read"}),
        ("GET", "/v1/queues/inbox/messages", None, {"read"}),
        ("POST", "/v1/queues/inbox/messages", [{"ttl": 60, "body": 1}], {"write"}),
        ("DELETE", "/v1/queues/inbox/messages?ids=x", None, {"delete"}),
        ("POST", "/v1/queues/inbox/claims", {"ttl": 60, "grace": 60}, {"read", "write"}),
        ("PATCH", "/v1/queues/inbox/claims/x", {"ttl": 60}, {"write"}),
        ("DELETE", "/v1/queues/inbox/claims/x", None, {"write"}),
    ],
)
def test_each_call_needs_its_scopes(method: str, path: str, body: Any, scopes: set[str]) -> None:
    holder(*EVERYTHING)("PUT", "/v1/queues/inbox")
    assert holder(*scopes)(method, path, body).status_code not in (401, 403)
    for scope in scopes:
        assert holder(*(set(EVERYTHING) - {scope}))(method, path, body).status_code == 403


def test_deleting_a_free_message_needs_delete_a_held_one_its_claim() -> None:
    owner, worker = holder(*EVERYTHING), holder("read", "write")
    owner("PUT", "/v1/queues/inbox")
    free, _ = owner.post("inbox", 1, 2)
    assert worker("DELETE", free).status_code == 403
    [held] = worker.claim("inbox", 1).json()
    assert worker("DELETE", held["href"]).status_code == 204


def test_name_prefixes() -> None:
    owner = holder(*EVERYTHING)
    owner("PUT", "/v1/queues/mail-in")
    owner("PUT", "/v1/queues/other")
    limited = holder(*EVERYTHING, topics=("mail-",))
    assert limited("GET", "/v1/queues/mail-in").status_code == 204
    assert limited("GET", "/v1/queues/other").status_code == 403
    assert [queue["name"] for queue in limited("GET", "/v1/queues").json()["queues"]] == ["mail-in"]


def test_too_many_requests_are_429() -> None:
    _, token = create_key("fast", ["read"], project="demo", rate_per_second=1)
    client = Zaqar()
    client.headers["Authorization"] = f"Bearer {token}"
    answers = [client("GET", "/v1/queues") for _ in range(5)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0]["Retry-After"]
