"""The doors beside Django: whose body is read, what is there before the first request; and lists without a server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import override_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from django_leasequeue.engine.queues import routing
from django_leasequeue.http.asgi import Message, beside
from tests.http.client import Api
from tests.support.databases import database_alias


class Signed(BaseAuthentication):
    """A host's class that knows its clients by their bodies."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        if request.META.get("HTTP_X_SIGNED") is None:
            return None
        read = request._request.body if request.META["HTTP_X_SIGNED"] == "body" else request._request.read()
        assert json.loads(read)["type"] == "queue"
        return User(username="signed", is_superuser=True), None


class Call:
    """A request whose body comes in two messages, the second one only when it is asked for."""

    def __init__(self, method: str, path: str, body: Any, **headers: str) -> None:
        raw = json.dumps(body).encode()
        sent = {"host": "localhost", "content-type": "application/json", "content-length": str(len(raw)), **headers}
        self.scope = {
            "type": "http", "method": method, "path": path, "query_string": b"", "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }  # fmt: skip
        self.left = [raw[:5], raw[5:]]
        self.answers: list[Message] = []
        self.left_at_answer = 0

    async def receive(self) -> Message:
        if not self.left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": self.left.pop(0), "more_body": bool(self.left)}

    async def send(self, message: Message) -> None:
        self.answers.append(message)

    async def status(self) -> int:
        await beside(None, "/v0/")(dict(self.scope), self.receive, self.send)
        return int(self.answers[0]["status"])


@pytest.mark.django_db(transaction=True)
async def test_a_hosts_class_may_read_the_body_and_so_may_the_view(settings: Any, monkeypatch: Any) -> None:
    read: list[int] = []
    monkeypatch.setattr("django_leasequeue.http.asgi._Client.read", _noting(read))
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": [f"{__name__}.Signed"]}}
    assert await Call("PUT", "/v0/topics/signed", {"type": "queue"}).status() == 401
    assert read == []  # a stranger's body is thrown away
    for number, way in enumerate(("body", "read"), 1):
        call = Call("PUT", f"/v0/topics/signed-{way}", {"type": "queue", "lease_ms": 70_000}, **{"x-signed": way})
        assert await call.status() == 201
        assert json.loads(call.answers[1]["body"])["config"]["lease_ms"] == 70_000
        assert len(read) == 2 * number  # by the class and by the view
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": [f"{__name__}.Signed"], "MAX_BODY_BYTES": 1_024}}
    large = {"type": "queue", "more": "x" * 2_000}
    assert await Call("PUT", "/v0/topics/signed", large, **{"x-signed": "body"}).status() == 413


def _noting(read: list[int]) -> Any:
    from django_leasequeue.http.asgi import _Client

    original = _Client.read

    async def noting(self: _Client, limit: int) -> bytes | None:
        read.append(limit)
        return await original(self, limit)

    return noting


@pytest.mark.parametrize(("text", "answer"), [("urlpatterns = []", "complete"), ("import nowhere", "failed")])
async def test_the_views_are_imported_when_the_server_starts(
    text: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"urls_{answer}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    sent: asyncio.Queue[Message] = asyncio.Queue()
    asked: asyncio.Queue[Message] = asyncio.Queue()
    asked.put_nowait({"type": "lifespan.startup"})
    with override_settings(ROOT_URLCONF=name):
        task = asyncio.ensure_future(beside(None, "/v0/")({"type": "lifespan"}, asked.get, sent.put))
        assert (await sent.get())["type"] == f"lifespan.startup.{answer}"
    assert (name in sys.modules) is (answer == "complete")
    task.cancel()


def test_a_list_shows_what_can_be_reached_and_says_that_a_part_is_missing(api: Api, django_db_blocker: Any) -> None:
    api.put("topics/here", {})
    gone = {**django_settings.DATABASES["default"], "HOST": "127.0.0.1", "PORT": "1"}
    spread = {"DATABASES": ["default", "gone"], "API": {"ACCESS": "open"}}
    with database_alias("gone", gone), django_db_blocker.unblock(), override_settings(LEASEQUEUE=spread):
        routing.routes().forget()
        answer = api.get("topics", status=200).json
        assert [topic["topic"] for topic in answer["topics"]] == ["here"]
        assert answer["warnings"] == ["Topics are missing: 1 of the databases that hold them cannot be reached."]
        assert api.client.get("/v1/queues").status_code == 503
    routing.routes().forget()
