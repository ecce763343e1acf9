"""Who may do what."""

import base64
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import InvalidCacheKey, cache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import BaseMemcachedCache
from django.core.management import CommandError
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from django_leasequeue import engine
from django_leasequeue.conf import process
from django_leasequeue.engine.clock import Clock
from django_leasequeue.http.access import MARK, USED_EVERY, Access, create_key, find, make_token
from django_leasequeue.http.auth import _left, spend_guess, split_token, throttle
from django_leasequeue.http.errors import ApiError
from django_leasequeue.http.fields import Text
from django_leasequeue.http.topics.base import NAMES_TOPIC
from django_leasequeue.http.topics.catalog import ConfigBody
from django_leasequeue.models import ApiKey
from tests.http.client import Api
from tests.support.commands import said

KeyMaker = Callable[..., Api]

READ: list[tuple[str, str, Any]] = [
    ("GET", "topics", None), ("GET", "topics/jobs", None), ("POST", "topics/jobs/diff", {}),
]  # fmt: skip
WRITE: list[tuple[str, str, Any]] = [
    ("POST", "topics/jobs", {"records": [{"data": 1}]}),
    ("POST", "topics/jobs/ack", {"node": "w", "seqs": [1]}),
    ("POST", "topics/jobs/nack", {"node": "w", "seqs": [1]}),
    ("POST", "topics/jobs/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
    ("PUT", "topics/jobs/jobs/1/steps/a", {"node": "w", "lease_id": "lease_1", "value": 1}),
    ("POST", "topics/jobs/jobs/1/suspend", {"node": "w", "lease_id": "lease_1", "event": "e"}),
]
BOTH: list[tuple[str, str, Any]] = [
    ("POST", "topics/jobs/claim", {"node": "w"}),
    ("GET", "topics/jobs/jobs/1/steps?node=w&lease_id=lease_1", None),
]
EMIT: list[tuple[str, str, Any]] = [("POST", "events/packed", {})]
DELETE: list[tuple[str, str, Any]] = [
    ("POST", "topics/jobs/delete", {"before_seq": 1}),
    ("DELETE", "topics/jobs", None),
]
ADMIN: list[tuple[str, str, Any]] = [("PUT", "topics/jobs", {"type": "queue"})]
EVERY = EMIT + READ + WRITE + BOTH + DELETE + ADMIN


@pytest.fixture
def key(db: None, settings: Any) -> KeyMaker:
    settings.LEASEQUEUE = {"API": {"KEY_CACHE_SECONDS": 0, "COUNT_SECONDS": 0}}

    def make(*scopes: str, **rights: Any) -> Api:
        return Api(create_key("test", scopes or ["read", "write", "delete", "admin"], **rights)[1])

    return make


@pytest.mark.parametrize("token", [None, "", "x", "Bearer", MARK, f"{MARK}abc", f"{MARK}0123456789ab_secret", "a.b.c"])
def test_without_a_good_key_every_call_is_refused(key: KeyMaker, token: str | None) -> None:
    for call in EVERY:
        answer = Api(token).call(*call, status=401)
        assert (answer.code, "leasequeue_apikey" in answer.message) == ("unauthorized", True)
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_known_prefix_with_another_secret_is_refused(key: KeyMaker) -> None:
    token = key().token or ""
    prefix, secret = split_token(token) or ("", "")
    for wrong in (secret[:-1] + ("A" if secret[-1] != "A" else "B"), secret + "x", "", secret.upper()):
        assert Api(f"{MARK}{prefix}_{wrong}").get("topics").status == 401
    assert Api(token).get("topics").status == 200
    assert Api().get(f"topics?token={token}").status == 401  # in the query it does not count
    assert Api().post(f"topics/jobs/claim?token={token}", {"node": "w"}).status == 401
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    row = ApiKey.objects.values().get()
    assert (secret in str(row), len(row["digest"])) == (False, 64)  # only the digest is kept
    assert make_token()[0] != make_token()[0]


@pytest.mark.parametrize(("scopes", "allowed"), [
    (["read"], READ), (["write"], WRITE), (["read", "write"], READ + WRITE + BOTH), (["delete"], DELETE),
    (["admin"], ADMIN), (["emit"], EMIT), (["metrics"], []), (["payloads"], []),
])  # fmt: skip
def test_a_key_does_what_its_scopes_allow(key: KeyMaker, scopes: list[str], allowed: list[Any]) -> None:
    key().queue()
    api = key(*scopes)
    for call in EVERY:
        answer = api.call(*call)
        if call in allowed:
            assert answer.status in (200, 201) or answer.code == "lease_lost", (call, answer)
            if call[0] == "DELETE":
                key().queue()
        else:
            assert (answer.status, answer.code) == (403, "forbidden"), (call, answer)
            assert "scope" in answer.message


def test_a_key_reaches_only_topics_of_its_prefixes(key: KeyMaker) -> None:
    everything = key()
    for name in ("jobs", "jobs.a", "mail.in", "mail.out", "other"):
        everything.queue(name)
    api = key("read", "write", "delete", "admin", topics=["jobs.", "mail."])
    for method, path, body in EVERY[2:]:
        answer = api.call(method, path, body)
        assert (answer.status, answer.code, "jobs" in answer.message) == (403, "forbidden", True)
    assert api.get("topics/jobs.a").status == 200
    assert [line["topic"] for line in api.get("topics")["topics"]] == ["jobs.a", "mail.in", "mail.out"]
    first = api.get("topics?page_size=2")
    assert [line["topic"] for line in api.get(f"topics?cursor={first['next_cursor']}")["topics"]] == ["mail.out"]
    assert api.get("topics?prefix=o")["topics"] == []
    assert api.get("topics/mail.none").status == 404  # within its prefixes absence may be told


def test_prefixes_hold_for_every_topic_that_a_configuration_names(key: KeyMaker) -> None:
    key().queue("other.dlq")
    api = key("read", "write", "admin", topics=["jobs."])
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": "other.dlq"}
    write = {"records": [{"data": 1}], "config": config}
    for answer in (api.put("topics/jobs.a", config), api.post("topics/jobs.b", write)):
        assert (answer.status, answer.code, "other.dlq" in answer.message) == (403, "forbidden", True)
    assert [line["topic"] for line in api.get("topics")["topics"]] == []
    config["dead_letter"] = "jobs.dlq"
    api.put("topics/jobs.a", config, status=201)
    api.post("topics/jobs.b", write, status=201)
    config["dead_letter"] = "other.dlq"
    assert api.put("topics/jobs.a", config).status == 403
    assert api.state("jobs.a")["config"]["dead_letter"] == "jobs.dlq"
    assert api.post("topics/jobs.a", write).status == 403  # also where it would not be used


def test_every_field_that_names_a_topic_is_known_as_one() -> None:
    """A configuration says nothing of another topic that prefixes do not hold for."""
    texts = {name for name, field in ConfigBody().fields.items() if type(field) is Text}
    assert texts == set(NAMES_TOPIC)


def test_a_key_belongs_to_a_project(key: KeyMaker) -> None:
    one, two = key(project="one"), key(project="two")
    one.queue("jobs")
    one.write("jobs", "of one")
    assert two.get("topics/jobs").status == 404
    two.queue("jobs")
    assert two.claim("jobs") == []
    (job,) = one.claim("jobs")
    assert two.ack("jobs", [job["$seq"]])["acked"] == 0
    assert [line["topic"] for line in two.get("topics")["topics"]] == ["jobs"]


def test_an_expired_or_revoked_key_is_refused(key: KeyMaker, clock: Clock) -> None:
    api = key(expires_at=clock.now + timedelta(seconds=10))
    assert api.get("topics").status == 200
    clock.advance(seconds=10)
    assert "expired" in api.get("topics", status=401).message
    other = key()
    ApiKey.objects.update(revoked_at=timezone.now())
    assert "revoked" in other.get("topics", status=401).message


def test_a_revoked_key_is_trusted_while_it_is_cached(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"KEY_CACHE_SECONDS": 60}}
    api = key()
    assert api.get("topics").status == 200
    ApiKey.objects.update(revoked_at=timezone.now())
    assert api.get("topics").status == 200
    process.forget()
    assert api.get("topics").status == 401


def test_use_is_noted_once_a_minute(key: KeyMaker, clock: Clock, django_assert_num_queries: Any) -> None:
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


@pytest.mark.django_db(transaction=True)
def test_a_key_is_found_where_its_use_cannot_be_noted(key: KeyMaker) -> None:
    key("read")
    prefix = ApiKey.objects.get().prefix
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    found = engine.run(find(prefix))
    assert found is not None
    assert ApiKey.objects.get(prefix=prefix).last_used_at is None


def test_no_secret_is_logged(key: KeyMaker, caplog: pytest.LogCaptureFixture) -> None:
    api = key("read")
    with caplog.at_level(logging.DEBUG):
        api.get("topics")
        api.put("topics/x", {})
        Api((api.token or "") + "x").get("topics")
    assert (split_token(api.token or "") or ("", "-"))[1] not in caplog.text


def test_the_api_is_closed_by_default_and_open_when_configured(db: None, settings: Any) -> None:
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


def bogus(number: int = 0) -> int:
    return Api(f"{MARK}{number:012x}_secret").get("topics").status


def test_unknown_keys_are_refused_before_they_cost_a_query(key: KeyMaker, settings: Any, monkeypatch: Any) -> None:
    now = 1_000.0
    monkeypatch.setattr("django_leasequeue.http.auth.monotonic", lambda: now)
    looked_up: list[str] = []

    def counted(prefix: str) -> Any:
        looked_up.append(prefix)
        return find(prefix)

    monkeypatch.setattr("django_leasequeue.http.auth.find", counted)
    settings.LEASEQUEUE = {"API": {"KEY_CACHE_SECONDS": 0, "UNKNOWN_KEYS_PER_MINUTE": 3}}
    known, fresh = key(), key()
    assert known.get("topics").status == 200
    looked_up.clear()
    assert [bogus(number) for number in range(10)] == [401] * 3 + [429] * 7
    assert len(looked_up) == 3
    prefix, _ = split_token(known.token or "") or ("", "")
    answer = Api(f"{MARK}{prefix}_guess").get("topics", status=429)
    assert (answer.code, answer.headers["retry-after"], len(looked_up)) == ("throttled", "20", 3)
    assert known.get("topics").status == 200  # a key that was good here goes on, whoever else guesses at its address
    assert fresh.get("topics").status == 429
    now += 20
    assert fresh.get("topics").status == 200
    assert [bogus(), bogus()] == [401, 429]  # a good one costs nothing
    settings.LEASEQUEUE = {"API": {"UNKNOWN_KEYS_PER_MINUTE": None}}
    assert [bogus(number) for number in range(10)] == [401] * 10


def test_unknown_keys_are_counted_by_address(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"UNKNOWN_KEYS_PER_MINUTE": 1}}

    def guess(address: str, forwarded: str | None = None) -> int:
        more = {} if forwarded is None else {"headers": {"x-forwarded-for": forwarded}}
        return Api(f"{MARK}0123456789ab_secret").get("topics", REMOTE_ADDR=address, **more).status

    assert [guess("192.0.2.1"), guess("192.0.2.1"), guess("192.0.2.2")] == [401, 429, 401]
    assert [guess("::ffff:192.0.2.3"), guess("192.0.2.3")] == [401, 429]
    assert [guess("2001:db8::1"), guess("2001:db8::ffff:2"), guess("2001:db8:0:1::1")] == [401, 429, 401]
    assert [guess("10.0.0.1", "198.51.100.1"), guess("10.0.0.1", "198.51.100.2")] == [401, 429]  # anybody can say that
    settings.LEASEQUEUE = {"API": {"UNKNOWN_KEYS_PER_MINUTE": 1, "PROXIES": 2}}
    assert [guess("10.0.0.2", f"{spoofed}, 198.51.100.3, 10.0.0.1") for spoofed in ("1.1.1.1", "1.1.1.2")] == [401, 429]
    assert guess("10.0.0.2", "1.1.1.1, 198.51.100.4, 10.0.0.1") == 401
    assert guess("10.0.0.3", "198.51.100.4") == 401  # fewer than our proxies write: it came past one of them


def test_what_is_remembered_of_unknown_keys_is_bounded(monkeypatch: Any, settings: Any) -> None:
    monkeypatch.setattr("django_leasequeue.http.auth._REMEMBERED", 100)
    for number in range(1_000):
        assert spend_guess(f"client-{number}") == 0
    assert len(_left) == 100


def test_a_database_that_is_away_uses_up_no_guesses(key: KeyMaker, settings: Any, monkeypatch: Any) -> None:
    settings.LEASEQUEUE = {"API": {"UNKNOWN_KEYS_PER_MINUTE": 1}}

    async def away(*_: Any) -> Any:
        raise OperationalError("gone")

    api = key()
    with monkeypatch.context() as patch:
        patch.setattr("django_leasequeue.http.views.RequestRunner.run", away)
        assert [api.get("topics").status for _ in range(3)] == [503] * 3
    assert api.get("topics").status == 200


def test_each_key_has_its_own_rate(key: KeyMaker, settings: Any, monkeypatch: Any) -> None:
    now = 1_000_000.25
    monkeypatch.setattr("django_leasequeue.http.auth.time.time", lambda: now)
    slow, fast = key(rate_per_second=3), key()
    assert [slow.get("topics").status for _ in range(5)] == [200, 200, 200, 429, 429]
    answer = slow.get("topics", status=429)
    assert (answer.code, answer.headers["retry-after"]) == ("throttled", "1")
    assert fast.get("topics").status == 200
    now += 1
    assert slow.get("topics").status == 200
    settings.LEASEQUEUE = {"API": {"RATE_PER_SECOND": 1, "KEY_CACHE_SECONDS": 0}}
    assert [key().get("topics").status, fast.get("topics").status, fast.get("topics").status] == [200, 200, 429]


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


def test_a_hosts_oauth_scopes_grant_calls(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": ["tests.http.test_keys.Hosts"], "KEY_CACHE_SECONDS": 0}}
    api = Api()
    headers = {"x-host-token": "openid leasequeue:read"}
    assert api.get("topics", headers=headers).status == 200
    assert api.put("topics/jobs", {}, headers=headers).status == 403
    assert api.get("topics").status == 401
    assert key().get("topics").status == 200  # our keys go on
    settings.LEASEQUEUE = {
        "API": {"AUTHENTICATION_CLASSES": ["tests.http.test_keys.Hosts"], "GRANTS": "tests.http.test_keys.grants"}
    }
    assert api.get("topics", headers=headers).status == 200
    assert api.get("topics/jobs", headers=headers).status == 403
    assert api.get("topics/only.jobs", headers=headers).status == 404


def test_a_hosts_session_and_permissions_grant_calls(key: KeyMaker, settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]}}
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
    return said("leasequeue_apikey", *words).strip()


def test_the_command_makes_and_lists_keys(key: KeyMaker) -> None:
    token = command("create", "billing", "--scopes", "read,write", "--topic", "bill.", "--days", "7", "--rate", "50")
    made = ApiKey.objects.get()
    assert (made.name, made.scopes, made.topics, made.rate_per_second) == ("billing", ["read", "write"], ["bill."], 50)
    assert Api(token).post("topics/bill.x/diff", {}).status == 404
    listed = command("list")
    assert made.prefix in listed
    assert "billing" in listed
    assert (split_token(token) or ("", "-"))[1] not in listed


def test_the_command_rotates_and_revokes_keys(key: KeyMaker) -> None:
    token = command("create", "billing", "--scopes", "read")
    made = ApiKey.objects.get()
    fresh = command("rotate", made.prefix)
    assert Api(token).get("topics").status == 401
    assert Api(fresh).get("topics").status == 200
    made.refresh_from_db()
    assert "Revoked" in command("revoke", str(made.pk))
    assert Api(fresh).get("topics").status == 401
    assert command("list") == ""
    assert "revoked" in command("list", "--all")


@pytest.mark.parametrize(("words", "says"), [
    (["create", "x", "--scopes", "read,fly"], "fly"), (["create", "x", "--scopes", ""], "it is ''"),
    (["create", "x", "--days", "0"], "days"), (["create", "x" * 200], "128"), (["revoke", "nope"], "nope"),
    (["rotate", "nope"], "nope"),
])  # fmt: skip
def test_the_command_refuses_bad_arguments(db: None, words: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        command(*words)
    assert not ApiKey.objects.exists()


def test_the_admin_shows_a_secret_once(key: KeyMaker, admin_client: Client) -> None:
    form = {
        "name": "svc", "scopes": ["read"], "topics": "a.,b.", "project": "", "rate_per_second": "", "expires_at": "",
    }  # fmt: skip
    page = admin_client.post("/admin/leasequeue/apikey/add/", {**form, "expires_at_0": "", "expires_at_1": ""})
    assert page.status_code == 200
    made = ApiKey.objects.get()
    assert (made.scopes, made.topics) == (["read"], ["a.", "b."])
    shown = page.content.decode()
    token = shown.split('id="leasequeue-token">')[1].split("<")[0]
    # In the frame of the other pages.
    assert [each in shown for each in ('class="lq-nav"', "leasequeue/admin.css")] == [True, True]
    assert Api(token).get("topics").status == 200
    assert "no-store" in page["cache-control"]
    for path in ("", f"{made.pk}/change/"):
        page = admin_client.get(f"/admin/leasequeue/apikey/{path}")
        assert (page.status_code, made.digest in page.content.decode()) == (200, False)
    rotated = admin_client.post("/admin/leasequeue/apikey/", {"action": "rotate", "_selected_action": made.pk})
    fresh = rotated.content.decode().split('id="leasequeue-token">')[1].split("<")[0]
    assert Api(token).get("topics").status == 401
    assert Api(fresh).get("topics").status == 200
    admin_client.post("/admin/leasequeue/apikey/", {"action": "revoke", "_selected_action": made.pk})
    assert Api(fresh).get("topics").status == 401


class AsMemcached(LocMemCache):
    """A cache in memory that refuses the keys that Django's memcached backends refuse."""

    validate_key = BaseMemcachedCache.validate_key


@pytest.mark.parametrize("who", ["billing service", "Zahlung für Müller", "n" * 400, "line\nbreak", "a \ud800"])
async def test_requests_are_counted_whatever_the_caller_is_called(who: str, settings: Any, monkeypatch: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.AsMemcached", "LOCATION": "throttle"}}
    for key in ("billing service", "tab\there", "k" * 251):
        with pytest.raises(InvalidCacheKey):  # the stand-in is as particular
            cache.add(key, 1)
    monkeypatch.setattr("django_leasequeue.http.auth.time.time", lambda: 1_000.0)
    caller = Access(who, frozenset())
    await throttle(caller, 1)
    with pytest.raises(ApiError, match="1 requests a second"):
        await throttle(caller, 1)
