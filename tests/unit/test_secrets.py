"""What is hidden: by its name, by the name of its parameter, by its form; and what is not."""

import time
from typing import Any

import pytest

from django_leasequeue.engine import Failure
from django_leasequeue.engine.dead.filter import from_query
from django_leasequeue.engine.dead.redaction import hide_secrets, hides, is_secret, scrub
from django_leasequeue.exceptions import InvalidOption
from tests.tasks import samples

SECRET = """
    password password1 PASSWORD_2 userPassword pwd db_pwd pass passphrase secret clientSecret token x-auth-token apiKey
    api-key auth basic_auth HTTP_AUTHORIZATION jwt otp totp pin pin_code cardPin cvv cvc dsn sentry_dsn database_url
    DATABASE_URL redisUrl connection_string private_key iban ssn cookie session_id credentials signature
"""
OPEN = """
    author authored shipping opinion spinner passenger passport compass_dir key monkey keyboard url customer id
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    assert hide_secrets({"a": [{name: "x"}]}) == {"a": [{name: "[hidden]"}]}


@pytest.mark.parametrize("name", OPEN.split())
def test_other_names(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(("text", "shown"), [
    ("postgres://app:p%40ss@db/shop", "postgres://app:[hidden]@db/shop"),
    ("mysql://root:p@ss@host/db", "mysql://root:[hidden]@host/db"), ("redis://:hunter2@h:1", "redis://:[hidden]@h:1"),
    ("https://ghp_abcdefghijklmnop1234@github.com/x", "https://[hidden]@github.com/x"),
    ("GET https://api/x?token=abc&page=1", "GET https://api/x?token=[hidden]&page=1"),
    ("could not connect: host=db password=hunter2 port=1", "could not connect: host=db password=[hidden] port=1"),
    ("{'password': 'x y', 'a': 'b'}", "{'password': '[hidden]', 'a': 'b'}"), ('{"otp": "1', '{"otp": "[hidden]"'),
    ("f(pin='1234', n=2)", "f(pin='[hidden]', n=2)"), ("DSN=postgres://u:p@h/d x", "DSN=[hidden] x"),
    ("Authorization: Bearer abcdefghijk", "Authorization: Bearer [hidden]"), ("Basic dXNlcjpwYXNz", "Basic [hidden]"),
    ("bad eyJhbGciOi.eyJzdWIi.abc-d", "bad [hidden]"), ("lqk_0123456789ab_secret!", "[hidden]!"),
    ("sk_live_0123456789abcdef", "[hidden]"), ("AKIAABCDEFGHIJKLMNOP", "[hidden]"),
    ("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----.", "[hidden]."),
    ("Key (email, token)=(a@b.c, xyz) already exists.", "Key (email, token)=([hidden]) already exists."),
])  # fmt: skip
def test_secrets_within_texts(text: str, shown: str) -> None:
    assert scrub(text) == hide_secrets(text) == shown
    failure = Failure("builtins.ValueError", text, f"Traceback\n  {text}")
    assert (failure.message, failure.traceback) == (shown, f"Traceback\n  {shown}"), "they are not kept"


@pytest.mark.parametrize("text", [
    "password: too short", "the token expired", "ssh://git@github.com/x", "https://example.com:8000/a?b=c", "a == b",
    "Key (id)=(7) already exists.", "token == 'x'", "", "no route to host", "x = 1, y = 2", "eyJ", "Bearer of news",
])  # fmt: skip
def test_texts_without_secrets(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize("text", [
    "a=" * 8_000, "://" * 5_000, "a:" * 8_000, "password=" * 2_000, '"' * 16_000, "eyJ" * 5_000, "-----BEGIN " * 1_500,
    "://a" * 4_000 + "@", "a" * 16_000 + "://", "Key (" * 3_000, "password" + " " * 16_000 + "=", "Key (a)=(" * 1_700,
])  # fmt: skip
def test_hostile_texts_cost_little(text: str) -> None:
    """A bound far above what it takes, and far below what backtracking would."""
    began = time.process_time()
    scrub(text)
    assert time.process_time() - began < 2


def test_positional_arguments_are_hidden_by_the_names_of_their_parameters() -> None:
    def shown(task: Any, *args: Any, **kwargs: Any) -> Any:
        return hide_secrets({"args": list(args), "kwargs": kwargs}, kind="data", task=task)

    path = samples.sign_in.module_path
    assert shown(path, "hunter2", 3, url="x") == {"args": ["[hidden]", 3], "kwargs": {"url": "x"}}
    assert shown(path, None) == {"args": [None], "kwargs": {}}
    assert shown(samples.renew.module_path, "ann", "t1", "t2")["args"] == ["ann", "[hidden]", "[hidden]"]
    assert shown("shop.tasks.unknown", "a", 1)["args"] == ["a", 1]
    assert hide_secrets({"args": ["a"]}, kind="meta", task=path) == {"args": ["a"]}


@pytest.mark.parametrize("test", [
    "data.kwargs.password = x", "data.kwargs.password1 != x", "meta.token = 1", "data.a.auth.b = 1",
    'data.kwargs = {"pin": 1}', "data.kwargs.url = postgres://u:p@h/d",
])  # fmt: skip
def test_nobody_searches_for_what_is_hidden(test: str) -> None:
    with pytest.raises(InvalidOption, match="are hidden: no filter can search"):
        from_query(f"payload={test.replace('=', '%3D')}")


def test_nobody_searches_for_arguments_that_are_hidden(settings: Any) -> None:
    path = samples.sign_in.module_path
    for place in ("args.0", "args.-1"):
        with pytest.raises(InvalidOption, match="are hidden"):
            from_query(f"task={path}&payload=data.{place}%3Dx")
    assert from_query(f"task={path}&payload=data.args.1%3D3").payload
    anywhere = from_query("payload=data.args.0%3Dx")
    assert (anywhere.hidden(path), anywhere.hidden(samples.add.module_path)) == (True, False)
    assert from_query("payload=tags.token%3Dx").payload
    settings.LEASEQUEUE = {"ADMIN": {"REDACT": "tests.unit.test_secrets.hide_customers"}}
    assert hides("data", ("customer",), 7)
    assert not hides("data", ("password",), 7), "the host's hook decides"


def hide_customers(value: Any, **_: Any) -> Any:
    return {name: "***" if name == "customer" else inner for name, inner in value.items()}
