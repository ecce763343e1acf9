"""What ``beside`` serves itself: the doors' own views, for the hosts that the site allows, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.test import override_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from django_leasequeue.engine.queues import routing
from django_leasequeue.http import payload
from django_leasequeue.http.asgi import Application, Message, _Client, beside
from tests.http.client import Api
from tests.http.servers import Server
from tests.support.databases import database_alias


async def host_application(scope: Any, receive: Any, send: Any) -> None:
    """Stand for the host: what comes here goes through its middleware."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"the host"})


async def get(
    application: Application, path: str, host: str = "testserver", root: str = "", body: Iterable[bytes] = (b"",),
    method: str = "", **headers: str,
) -> tuple[int, bytes]:  # fmt: skip
    """Return status and body of a GET, or of a POST with a body in some messages, each sent when it is asked for."""
    messages: list[Message] = []
    pieces = list(body)
    sent = {"host": host, "content-type": "application/json", **headers}

    async def receive() -> Message:
        if not pieces:
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {
        "type": "http", "method": method or ("POST" if any(pieces) else "GET"), "path": path, "root_path": root,
        "query_string": b"", "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }  # fmt: skip
    await application(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])


@pytest.fixture(autouse=True)
def _host(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver", ".example.com"]
    settings.DEBUG = False
    settings.ROOT_URLCONF = "tests.http.host_urls"


@pytest.mark.parametrize("path", ["/v0/topics", "/v1/queues"])
async def test_a_host_that_is_not_allowed(path: str) -> None:
    application = beside(host_application, "/v0/", "/v1/")
    for host in ("evil.example", "testserver.evil", "127.0.0.1", "bad host", ""):
        assert (await get(application, path, host))[0] == 400, host
    for host in ("testserver", "testserver:8000", "api.example.com"):
        # Nobody vouches for the request: the view answers.
        assert (await get(application, path, host))[0] == 401, host


async def test_what_the_host_has_below_the_prefix_is_the_hosts() -> None:
    application = beside(host_application, "/v0/", "/v1/")
    for path in ("/v0/report", "/v0/topics/special", "/v0x", "/elsewhere"):
        assert await get(application, path) == (299, b"the host"), path
    assert (await get(application, "/v0/topics/usual"))[0] == 401
    for path in ("/v0", "/v0/", "/v0/nothing", "/v0/topics/a/b/c"):
        status, body = await get(application, path)
        assert status == 404, path
        assert b'"not_found"' in body


async def test_without_a_host_there_are_the_doors_only() -> None:
    application = beside(None, "/v0/", "/v1/")
    for path in ("/v0/report", "/v0/topics/special", "/v0/nothing", "/", "/elsewhere", "/v0/../report"):
        status, body = await get(application, path)
        assert status == 404, path
        assert b'"not_found"' in body
    assert (await get(application, "/v0/topics/usual"))[0] == 401
    with pytest.raises(ValueError, match="websocket"):
        await application({"type": "websocket"}, None, None)  # type: ignore[arg-type]  # never called
    application = beside(None, "/queues/v0/")  # below a path of its own
    assert (await get(application, "/queues/v0/topics", root="/queues"))[0] == 401
    assert (await get(application, "/queues/v0/report", root="/queues"))[0] == 404


async def test_links_begin_with_the_prefix_that_a_proxy_strips(settings: Any) -> None:
    settings.FORCE_SCRIPT_NAME = "/sub"
    for application in (beside(None, "/v1/"), get_asgi_application()):
        status, body = await get(application, "/v1/", accept="application/json-home")
        assert (status, b'"/sub/v1/queues' in body) == (200, True)


async def test_a_body_is_read_when_the_client_is_admitted_as_far_as_needed(settings: Any, monkeypatch: Any) -> None:
    class Spool(io.BytesIO):
        def __init__(self, max_size: int) -> None:
            spools.append(self)
            super().__init__()

        def close(self) -> None:
            self.held = self.tell()

    spools: list[Spool] = []
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Spool)
    application = beside(None, "/v0/")
    pieces = [b" " * 500_000] * 10
    assert (await get(application, "/v0/topics/jobs", body=pieces))[0] == 401
    assert spools == []
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}}
    assert (await get(application, "/v0/topics/jobs", body=pieces))[0] == 400
    assert (await get(application, "/v0/topics/jobs/claim", body=pieces))[0] == 413
    assert [spool.held for spool in spools] == [5_000_000, 1_500_000]


async def test_a_large_body_is_parsed_beside_other_requests(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}}
    application = beside(None, "/v0/", "/v1/")
    answered = threading.Event()
    parse = payload.loads

    def loads(body: bytes) -> Any:
        assert answered.wait(60)
        assert not gc.isenabled()
        return parse(body)

    monkeypatch.setattr(payload, "loads", loads)
    async with asyncio.TaskGroup() as group:
        large = group.create_task(get(application, "/v0/topics/jobs", body=[b'{"records": ["', b"x" * 100_000, b'"]}']))
        assert (await get(application, "/v0/nothing"))[0] == 404
        answered.set()
    assert large.result()[0] == 400
    assert gc.isenabled()
    monkeypatch.setattr(payload, "loads", None)
    status, body = await get(application, "/v0/topics/jobs", body=[b'{"records": [', b"[]," * 500_001, b"1]}"])
    assert (status, b"1,000,000 values" in body) == (413, True)


@pytest.mark.django_db
@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_large_bodies_are_written_in_a_thread(server: Server, topic: str, durability: str) -> None:
    server.put(f"topics/{topic}", {"type": "queue", "durability": durability})
    records = [{"data": {"n": n, "text": "x" * 300_000}} for n in range(5)]
    body = {"records": records, "idempotency_key": "once"}
    seqs = server.post(f"topics/{topic}", body)["seqs"]
    assert server.post(f"topics/{topic}", body)["seqs"] == seqs
    claimed = server.post(f"topics/{topic}/claim", {"node": "w", "max": 9})["claimed"]
    assert [job["data"] for job in claimed] == [record["data"] for record in records]
    results = ["y" * 300_000] * 5
    wrong = server.post(f"topics/{topic}/ack", {"node": "w", "seqs": seqs[:1], "results": [["z" * 999] * 17_000]}, 400)
    assert wrong["error"]["code"] == "record_too_large"
    assert server.post(f"topics/{topic}/ack", {"node": "w", "seqs": seqs, "results": results})["acked"] == 5
    wrong = server.post(f"topics/{topic}", {"records": [{"data": 1}, {"data": ["z"] * 600_000}]}, 400)
    assert wrong["error"]["code"] == "record_too_large"
    assert server.state(topic)["count"] == 0


class Signed(BaseAuthentication):
    """A host's class that knows its clients by their bodies."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        if request.META.get("HTTP_X_SIGNED") is None:
            return None
        read = request._request.body if request.META["HTTP_X_SIGNED"] == "body" else request._request.read()
        assert json.loads(read)["type"] == "queue"
        return User(username="signed", is_superuser=True), None


@pytest.mark.django_db(transaction=True)
async def test_a_hosts_class_may_read_the_body_and_so_may_the_view(settings: Any, monkeypatch: Any) -> None:
    read: list[int] = []
    original = _Client.read

    async def noting(self: _Client, limit: int) -> bytes | None:
        read.append(limit)
        return await original(self, limit)

    async def put(name: str, body: Any, **headers: str) -> tuple[int, bytes]:
        raw = json.dumps(body).encode()
        sent = {"body": (raw[:5], raw[5:]), "content-length": str(len(raw)), **headers}
        return await get(beside(None, "/v0/"), f"/v0/topics/{name}", method="PUT", **sent)

    monkeypatch.setattr(_Client, "read", noting)
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": [f"{__name__}.Signed"]}}
    assert ((await put("signed", {"type": "queue"}))[0], read) == (401, [])  # a stranger's body is thrown away
    for number, way in enumerate(("body", "read"), 1):
        status, answer = await put(f"signed-{way}", {"type": "queue", "lease_ms": 70_000}, **{"x-signed": way})
        assert (status, json.loads(answer)["config"]["lease_ms"]) == (201, 70_000)
        assert len(read) == 2 * number  # by the class and by the view
    settings.LEASEQUEUE = {"API": {"AUTHENTICATION_CLASSES": [f"{__name__}.Signed"], "MAX_BODY_BYTES": 1_024}}
    assert (await put("signed", {"type": "queue", "more": "x" * 2_000}, **{"x-signed": "body"}))[0] == 413


@pytest.mark.parametrize(("text", "answer"), [("urlpatterns = []", "complete"), ("import nowhere", "failed")])
async def test_views_are_imported_at_the_start(text: str, answer: str, tmp_path: Path, monkeypatch: Any) -> None:
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
        answer = api.get("topics?prefix=here", status=200).json
        assert [topic["topic"] for topic in answer["topics"]] == ["here"]
        assert answer["warnings"] == ["Topics are missing: 1 of the databases that hold them cannot be reached."]
        assert api.client.get("/v1/queues").status_code == 503
    routing.routes().forget()
