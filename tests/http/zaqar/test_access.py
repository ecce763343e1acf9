"""Who may do what at this door: keys and projects."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client, override_settings

from django_leasequeue.http.access import Access, create_key
from django_leasequeue.models import ApiKey

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
    assert (answer.status_code, "Bearer" in answer["WWW-Authenticate"]) == (401, True)
    assert set(answer.json()) == {"title", "description"}
    assert nobody("GET", "/v1/health").status_code == 204
    assert nobody("GET", "/v1/", Accept="application/json-home").status_code == 200


def test_a_key_speaks_for_other_projects_with_the_scope_for_it_and_never_else() -> None:
    assert holder(*EVERYTHING)("PUT", "/v1/queues/inbox").status_code == 201
    stranger = holder(*EVERYTHING, project="other", names="demo")
    assert stranger("GET", "/v1/queues/inbox").status_code == 403
    silent = holder(*EVERYTHING, names=None)
    assert silent("GET", "/v1/queues/inbox").status_code == 204
    assert holder("read", "projects", project="")("GET", "/v1/queues/inbox").status_code == 204
    assert holder("read", "projects", project="other")("GET", "/v1/queues/inbox").status_code == 204
    assert holder("projects", project="")("GET", "/v1/queues/inbox").status_code == 403  # it gives no other right
    for rights in ({"project": ""}, {"project": "", "topics": ("in",)}, {"project": "other"}):
        answer = holder(*EVERYTHING, **rights)("GET", "/v1/queues/inbox")
        assert answer.status_code == 403
        assert "projects" in answer.json()["description"]


def test_a_superuser_of_the_host_speaks_for_no_other_project() -> None:
    holder(*EVERYTHING)("PUT", "/v1/queues/inbox")
    session = {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]}
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "keys", **session}}):
        client, own = Zaqar("demo"), Zaqar(None)
        for each in (client, own):
            each.http.force_login(User.objects.get_or_create(username="root", is_superuser=True)[0])
        assert own("GET", "/v1/queues").status_code == 204
        assert client("GET", "/v1/queues/inbox").status_code == 403


def test_a_key_for_every_project_cannot_be_limited_to_topics(admin_client: Client) -> None:
    with pytest.raises(ValidationError, match="projects"):
        create_key("both", ["read", "projects"], topics=["mail-"])
    with pytest.raises(CommandError, match="projects"):
        call_command("leasequeue_apikey", "create", "both", "--scopes", "read,projects", "--topic", "mail-")
    form = {"name": "both", "scopes": ["read", "projects"], "topics": "mail-", "project": ""}
    with override_settings(ROOT_URLCONF="testproject.urls"):
        page = admin_client.post("/admin/leasequeue/apikey/add/", form)
    assert b"cannot be limited to topics" in page.content
    with pytest.raises(ValueError, match="projects"):
        Access("host", frozenset({"read", "projects"}), prefixes=("mail-",))
    assert not ApiKey.objects.exists()
    key, _ = create_key("one", ["read", "projects"])
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(topics=["mail-"])


def test_a_list_names_nothing_that_the_key_may_not_see() -> None:
    owner = holder(*EVERYTHING)
    names = [f"{kind}-{number}" for number in range(4) for kind in ("mail", "secret", "zebra")]
    for name in names:
        owner("PUT", f"/v1/queues/{name}")
    limited = holder(*EVERYTHING, topics=("mail-", "zebra-"))
    seen, url = [], "/v1/queues?limit=3"
    while (answer := limited("GET", url)).status_code == 200:
        assert b"secret" not in answer.content
        seen += [queue["name"] for queue in answer.json()["queues"]]
        url = answer.json()["links"][0]["href"]
        assert len(seen) <= len(names)
    assert seen == sorted(name for name in names if not name.startswith("secret"))
    nobody = holder(*EVERYTHING, topics=("none-",))
    assert nobody("GET", "/v1/queues").status_code == 204


@pytest.mark.parametrize(("method", "path", "body", "scopes"), [
    ("GET", "/v1/queues", None, {"read"}), ("GET", "/v1/queues/inbox", None, {"read"}),
    ("PUT", "/v1/queues/new", None, {"admin"}), ("DELETE", "/v1/queues/inbox", None, {"delete"}),
    ("GET", "/v1/queues/inbox/metadata", None, {"read"}), ("PUT", "/v1/queues/inbox/metadata", {}, {"admin"}),
    ("GET", "/v1/queues/inbox/stats", None, {"read"}), ("GET", "/v1/queues/inbox/messages", None, {"read"}),
    ("POST", "/v1/queues/inbox/messages", [{"ttl": 60, "body": 1}], {"write"}),
    ("DELETE", "/v1/queues/inbox/messages?ids=x", None, {"delete"}),
    ("POST", "/v1/queues/inbox/claims", {"ttl": 60, "grace": 60}, {"read", "write"}),
    ("PATCH", "/v1/queues/inbox/claims/x", {"ttl": 60}, {"write"}),
    ("DELETE", "/v1/queues/inbox/claims/x", None, {"write"}),
])  # fmt: skip
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


def test_the_header_of_openstack_s_clients_carries_a_key() -> None:
    client = holder("read")
    key = client.headers.pop("Authorization").removeprefix("Bearer ")
    for token, status in ((key, 204), (key[:-1] + "~", 401), ("a token of Keystone", 401)):
        client.headers["X-Auth-Token"] = token
        assert client("GET", "/v1/queues").status_code == status, token
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "open"}}):
        assert client("GET", "/v1/queues").status_code == 204, "what is no key of ours is not ours to judge"
