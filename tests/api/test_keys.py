"""Who may do what (spec/topics G5)."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from django_leasequeue.api.access import Access
from django_leasequeue.api.keys import MARK, USED_EVERY, create_key, make_token, ring, rotate_key, split_token
from django_leasequeue.api.redaction import redact
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.models import ApiKey
from tests.api.client import Api

KeyMaker = Callable[..., Api]

READ: list[tuple[str, str, Any]] = [
    ("GET", "topics", None),
    ("GET", "topics/jobs", None),
    ("POST", "topics/jobs/diff", {}),
]
WRITE: list[tuple[str, str, Any]] = [
    ("POST", "topics/jobs", {"records": [{"data": 1}]}),
    ("POST", "topics/jobs/ack", {"node": "w", "seqs": [1]}),
    ("POST", "topics/jobs/nack", {"node": "w", "seqs": [1]}),
    ("POST", "topics/jobs/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
]
BOTH: list[tuple[str, str, Any]] = [("POST", "topics/jobs/claim", {"node": "w"})]
DELETE: list[tuple[str, str, Any]] = [
    ("POST", "topics/jobs/delete", {"before_seq": 1}),
    ("DELETE", "topics/jobs", None),
]
ADMIN: list[tuple[str, str, Any]] = [("PUT", "topics/jobs", {"type": "queue"})]
EVERY = READ + WRITE + BOTH + DELETE + ADMIN


@pytest.fixture
def key(db: None, settings: Any) -> KeyMaker:
    """Makes clients with a key; the door is closed to everybody else."""
    settings.LEASEQUEUE = {"API": {"KEY_CACHE_SECONDS": 0, "COUNT_SECONDS": 0}}

    def make(*scopes: str, **rights: Any) -> Api:
        return Api(create_key("test", scopes or ["read", "write", "delete", "admin"], **rights)[1])

    return make


def status(api: Api, call: tuple[str, str, Any]) -> int:
    return api.call(*call).status


@pytest.mark.parametrize("token", [None, "", "x", "Bearer", MARK, f"{MARK}abc", f"{MARK}0123456789ab_secret", "a.b.c"])
def test_g5_without_a_good_key(key: KeyMaker, token: str | None) -> None:
    for call in EVERY:
        answer = Api(token).call(*call, status=401)
        assert answer.code == "unauthorized"
        assert "leasequeue_apikey" in answer.message
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_g5_another_secret_with_a_known_prefix(key: KeyMaker) -> None:
    token = key().token or ""
    prefix, secret = split_token(token) or ("", "")
    for wrong in (secret[:-1] + ("A" if secret[-1] != "A" else "B"), secret + "x", "", secret.upper()):
        assert Api(f"{MARK}{prefix}_{wrong}").get("topics").status == 401
    assert Api(token).get("topics").status == 200


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], READ),
        (["write"], WRITE),
        (["read", "write"], READ + WRITE + BOTH),
        (["delete"], DELETE),
        (["admin"], ADMIN),
    ],
)
def test_g5_scopes(key: KeyMaker, scopes: list[str], allowed: list[Any]) -> None:
    key().queue()
    api = key(*scopes)
    for call in EVERY:
        answer = api.call(*call)
        if call in allowed:
            assert answer.status in (200, 201), (call, answer)
            if call[0] == "DELETE":
                key().queue()
        else:
            assert (answer.status, answer.code) == (403, "forbidden"), (call, answer)
            assert "scope" in answer.message


def test_g5_prefixes(key: KeyMaker) -> None:
    everything = key()
    for name in ("jobs", "jobs.a", "mail.in", "mail.out", "other"):
        everything.queue(name)
    api = key("read", "write", "delete", "admin", topics=["jobs.", "mail."])
    for method, path, body in EVERY[1:]:
        answer = api.call(method, path, body)
        assert (answer.status, answer.code) == (403, "forbidden")
        assert "jobs" in answer.message
    assert api.get("topics/jobs.a").status == 200
    assert [line["topic"] for line in api.get("topics")["topics"]] == ["jobs.a", "mail.in", "mail.out"]
    first = api.get("topics?page_size=2")
    assert [line["topic"] for line in api.get(f"topics?cursor={first['next_cursor']}")["topics"]] == ["mail.out"]
    assert api.get("topics?prefix=o")["topics"] == []
    assert api.get("topics/mail.none").status == 404  # within its prefixes absence may be told


def test_g5_a_key_belongs_to_a_project(key: KeyMaker) -> None:
    one, two = key(project="one"), key(project="two")
    one.queue("jobs")
    one.write("jobs", "of one")
    assert two.get("topics/jobs").status == 404
    two.queue("jobs")
    assert two.claim("jobs") == []
    (job,) = one.claim("jobs")
    assert two.ack("jobs", [job["$seq"]])["acked"] == 0
    assert [line["topic"] for line in two.get("topics")["topics"]] == ["jobs"]


def test_g5_expired_and_revoked(key: KeyMaker, clock: engine_clock.Clock) -> None:
    api = key(expires_at=clock.now + timedelta(seconds=10))
    assert api.get("topics").status == 200
    clock.advance(seconds=10)
    assert "expired" in api.get("topics", status=401).message
    other = key()
    ApiKey.objects.update(revoked_at=timezone.now())
    assert "revoked" in other.get("topics", status=401).message


def test_g5_a_new_secret(key: KeyMaker) -> None:
    api = key()
    fresh = Api(rotate_key(ApiKey.objects.get()))
    assert api.get("topics").status == 401
    assert fresh.get("topics").status == 200


def test_g5_a_key_is_trusted_for_a_moment(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"KEY_CACHE_SECONDS": 60}}
    api = key()
    assert api.get("topics").status == 200
    ApiKey.objects.update(revoked_at=timezone.now())
    assert api.get("topics").status == 200
    ring.forget()
    assert api.get("topics").status == 401


def test_g5_only_the_digest_is_kept(key: KeyMaker) -> None:
    token = key().token or ""
    _, secret = split_token(token) or ("", "")
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    row = ApiKey.objects.values().get()
    assert secret not in str(row)
    assert len(row["digest"]) == 64
    assert make_token()[0] != make_token()[0]


def test_g5_use_is_noted_once_a_minute(
    key: KeyMaker, clock: engine_clock.Clock, django_assert_num_queries: Any
) -> None:
    api = key()
    for _ in range(3):
        api.get("topics")
    first = ApiKey.objects.get().last_used_at
    assert first == clock.now
    clock.advance(seconds=USED_EVERY / 2)
    api.get("topics")
    assert ApiKey.objects.get().last_used_at == first
    clock.advance(seconds=USED_EVERY)
    api.get("topics")
    assert ApiKey.objects.get().last_used_at == clock.now


def test_g5_no_secret_in_logs(key: KeyMaker, caplog: pytest.LogCaptureFixture) -> None:
    api = key("read")
    with caplog.at_level(logging.DEBUG):
        api.get("topics")
        api.put("topics/x", {})
        Api((api.token or "") + "x").get("topics")
    assert (split_token(api.token or "") or ("", "-"))[1] not in caplog.text
    assert redact("GET /v0/topics/q/work?node=a&token=lqk_1_x&max=2 HTTP/1.1") == (
        "GET /v0/topics/q/work?node=a&token=[redacted]&max=2 HTTP/1.1"
    )


def test_g5_a_token_in_the_query_does_not_count(key: KeyMaker) -> None:
    token = key().token
    assert Api().get(f"topics?token={token}").status == 401
    assert Api().post(f"topics/jobs/claim?token={token}", {"node": "w"}).status == 401


def test_g5_the_door_is_closed_by_default_and_open_when_told(db: None, settings: Any) -> None:
    settings.LEASEQUEUE = {}
    assert Api().get("topics").status == 401
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}}
    assert Api().get("topics").status == 200
    assert Api("lqk_0123456789ab_unknown").get("topics").status == 401  # a bad key is never better than none
    assert Api("something-else").get("topics").status == 401
    settings.LEASEQUEUE = {"API": {"ACCESS": "auto"}}
    settings.DEBUG = True
    assert Api().get("topics").status == 200
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys"}}
    assert Api().get("topics").status == 401


def test_g3_throttling_per_key(key: KeyMaker, monkeypatch: Any) -> None:
    now = 1_000_000.25
    monkeypatch.setattr("django_leasequeue.api.throttle.time.time", lambda: now)
    slow, fast = key(rate_per_second=3), key()
    assert [slow.get("topics").status for _ in range(5)] == [200, 200, 200, 429, 429]
    answer = slow.get("topics", status=429)
    assert answer.code == "throttled"
    assert answer.headers["retry-after"] == "1"
    assert fast.get("topics").status == 200
    now += 1
    assert slow.get("topics").status == 200


def test_g3_the_default_rate(key: KeyMaker, settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_leasequeue.api.throttle.time.time", lambda: 2_000_000.5)
    settings.LEASEQUEUE = {"API": {"RATE_PER_SECOND": 1}}
    api, other = key(), key(rate_per_second=2)
    assert [api.get("topics").status for _ in range(2)] == [200, 429]
    assert [other.get("topics").status for _ in range(3)] == [200, 200, 429]


class Hosts(BaseAuthentication):
    """A host's own tokens, with scopes as OAuth has them."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        word = request.META.get("HTTP_X_HOST_TOKEN")
        if word is None:
            return None

        class Token:
            scope = word

        return User(username="oauth"), Token()


def grants(request: Request) -> Access | None:
    return Access("mine", frozenset({"read"}), ("only.",))


def test_g5_a_hosts_oauth_scopes(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": ["tests.api.test_keys.Hosts"], "KEY_CACHE_SECONDS": 0}}
    api = Api()
    headers = {"x-host-token": "openid leasequeue:read"}
    assert api.get("topics", headers=headers).status == 200
    assert api.put("topics/jobs", {}, headers=headers).status == 403
    assert api.get("topics").status == 401
    assert key().get("topics").status == 200  # our keys go on
    settings.LEASEQUEUE = {
        "API": {"AUTHENTICATION_CLASSES": ["tests.api.test_keys.Hosts"], "GRANTS": "tests.api.test_keys.grants"}
    }
    assert api.get("topics", headers=headers).status == 200
    assert api.get("topics/jobs", headers=headers).status == 403
    assert api.get("topics/only.jobs", headers=headers).status == 404


def test_g5_a_hosts_session_and_permissions(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {
        "API": {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]},
    }
    user = User.objects.create_user("ann", password="x")
    api = Api()
    api.client.force_login(user)
    assert api.get("topics").status == 403
    user.user_permissions.add(Permission.objects.get(codename="view_queue"))
    assert api.get("topics").status == 200
    assert api.put("topics/jobs", {}).status == 403
    user.is_superuser = True
    user.save()
    assert api.put("topics/jobs", {}).status == 201
    strict = Api()
    strict.client = Client(enforce_csrf_checks=True)
    strict.client.force_login(user)
    assert strict.get("topics").status == 200
    assert strict.put("topics/jobs", {}, status=403).code == "forbidden"


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("leasequeue_apikey", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def test_g5_the_command(key: KeyMaker) -> None:
    token = command("create", "billing", "--scopes", "read,write", "--topic", "bill.", "--days", "7", "--rate", "50")
    made = ApiKey.objects.get()
    assert (made.name, made.scopes, made.topics, made.rate_per_second) == ("billing", ["read", "write"], ["bill."], 50)
    assert Api(token).post("topics/bill.x/diff", {}).status == 404
    listed = command("list")
    assert made.prefix in listed
    assert "billing" in listed
    assert (split_token(token) or ("", "-"))[1] not in listed
    fresh = command("rotate", made.prefix)
    assert Api(token).get("topics").status == 401
    made.refresh_from_db()
    assert Api(fresh).get("topics").status == 200
    assert "Revoked" in command("revoke", str(made.pk))
    assert Api(fresh).get("topics").status == 401
    assert command("list") == ""
    assert "revoked" in command("list", "--all")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "x", "--scopes", "read,fly"], "fly"),
        (["create", "x", "--scopes", ""], "nothing"),
        (["create", "x", "--days", "0"], "days"),
        (["create", "x" * 200], "128"),
        (["revoke", "nope"], "nope"),
        (["rotate", "nope"], "nope"),
    ],
)
def test_g5_the_command_refuses(db: None, words: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        command(*words)
    assert not ApiKey.objects.exists()


def test_g5_the_admin_shows_a_secret_once(key: KeyMaker, admin_client: Client) -> None:
    form = {
        "name": "svc",
        "scopes": ["read"],
        "topics": "a.,b.",
        "project": "",
        "rate_per_second": "",
        "expires_at": "",
    }
    page = admin_client.post("/admin/leasequeue/apikey/add/", {**form, "expires_at_0": "", "expires_at_1": ""})
    assert page.status_code == 200
    made = ApiKey.objects.get()
    assert (made.scopes, made.topics) == (["read"], ["a.", "b."])
    token = page.content.decode().split('id="leasequeue-token">')[1].split("<")[0]
    assert Api(token).get("topics").status == 200
    assert "no-store" in page["cache-control"]
    for path in ("", f"{made.pk}/change/"):
        shown = admin_client.get(f"/admin/leasequeue/apikey/{path}")
        assert shown.status_code == 200
        assert made.digest not in shown.content.decode()
    rotated = admin_client.post("/admin/leasequeue/apikey/", {"action": "rotate", "_selected_action": made.pk})
    fresh = rotated.content.decode().split('id="leasequeue-token">')[1].split("<")[0]
    assert Api(token).get("topics").status == 401
    assert Api(fresh).get("topics").status == 200
    admin_client.post("/admin/leasequeue/apikey/", {"action": "revoke", "_selected_action": made.pk})
    assert Api(fresh).get("topics").status == 401
