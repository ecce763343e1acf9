"""What pages about HTTP say, done: the reference's examples in order; authentication, nginx, idempotent consumers."""

import json
import re
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_leasequeue.http.access import Access
from tests.http.contract import TOPICS, Reader, document, operations, template_of, unnamed
from tests.http.servers import EventSource, Server, committed_key, serving
from tests.support.documents import DOCS, Block, blocks
from tests.support.environment import child_environment
from tests.support.ports import free_port
from tests.support.waiting import eventually

PAGE = "reference/http-topics.md"

pytestmark = pytest.mark.django_db


@pytest.mark.slow
@pytest.mark.usefixtures("emptied")
def test_the_examples(test_database_url: str) -> None:
    # For this page alone: what it lists is what the page made.
    for (server,) in serving(child_environment(test_database_url)):
        follow(server)


def follow(server: Server) -> None:
    reader = Reader()
    found = [block for block in blocks(PAGE) if block.language in ("http", "json", "sse")]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    heads = [request.text.split("\n", 1)[0].split(" ") for request, _ in pairs]
    shown = {(method, template_of(path)) for method, path in heads}
    assert shown == set(operations())
    for request, answer in pairs:
        assert request.language == "http", request.line
        head, _, rest = request.text.partition("\n")
        method, path = head.split(" ")
        path = reader.address(path).removeprefix("/v0/")
        place = f"line {answer.line}"
        if answer.language == "sse":
            assert rest == "Accept: text/event-stream\n"
            stream(server, reader, path, answer)
            continue
        body = reader.translate(json.loads(rest)) if rest else None
        status, content = server.call(method, path, body)
        assert status == int(answer.word), (place, content)
        reader.compare(json.loads(answer.text), content, place)


def stream(server: Server, reader: Reader, path: str, block: Block) -> None:
    events = [text for text in block.text.strip().split("\n\n") if "event: " in text]
    with EventSource(server, path) as source:
        assert source.status == 200
        for text in events:
            lines = dict(line.split(": ", 1) for line in text.split("\n"))
            event = source.event()
            assert event.name == lines["event"]
            assert event.id is not None
            reader.compare(json.loads(lines["data"]), dict(event), f"line {block.line}")
        assert (source.retry, source.comments[0]) == (2000, "hb")


def test_every_endpoint_field_and_code_is_named() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    missing = unnamed(TOPICS, text)
    for operation in operations().values():
        missing += [
            code
            for status, answer in operation["responses"].items()
            for code in re.findall(r"`[a-z_]+`", answer["description"].split(". ")[0])
            if status >= "400" and code not in text
        ]
    for name, shape in document()["components"]["schemas"].items():
        missing += [
            f"{name}.{field}"
            for field in shape.get("properties", {})
            if not re.search(rf"[`.\"]{re.escape(field)}[`\"]", text)
        ]
    assert missing == []


def runnable(page: str) -> dict[str, Any]:
    (block,) = [block for block in blocks(page) if block.word == "run"]
    names: dict[str, Any] = {}
    exec(compile(block.text, page, "exec"), names)
    return names


def test_rules_of_ones_own() -> None:
    grants = runnable("how-to/http-auth.md")["grants"]
    access: Access = grants(SimpleNamespace(user=SimpleNamespace(username="acme")))
    assert access.missing({"read", "write"}) == []
    assert access.missing({"admin"}) == ["admin"]
    assert access.sees("acme.mail")
    assert not access.sees("other.mail")
    assert (access.project, access.rate) == ("acme", 50)


def test_a_consumer_that_runs_twice_does_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runnable("how-to/idempotent-consumers.md")
    database, handle = names["database"], names["handle"]
    job = SimpleNamespace(seq=7, data={"account": "a", "cents": 200})
    with pytest.raises(sqlite3.ProgrammingError):
        handle(SimpleNamespace(seq=7, data={"account": "a"}))  # fails after the row in `done`, which goes with it
    handle(job)
    handle(job)
    handle(SimpleNamespace(seq=8, data={"account": "a", "cents": 5}))
    assert database.execute("SELECT cents FROM balance").fetchall() == [(205,)]
    database.close()


def test_asgi() -> None:
    both = [block for block in blocks("how-to/deploy-http.md") if "beside(" in block.text]
    assert len(both) == 2
    for block in both:
        names: dict[str, Any] = {}
        exec(compile(block.text, "asgi.py", "exec"), names)
        assert callable(names["application"])


@pytest.fixture
def nginx(server: Server, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """nginx with the page's configuration before a server, on a port of its own."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    (block,) = [block for block in blocks("how-to/deploy-http.md") if block.language == "nginx"]
    folders = "".join(
        f"{word}_temp_path {tmp_path}/{word};" for word in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    http = f"http {{ {folders}\n{_local(block, port, server, tmp_path)} }}"
    configuration.write_text(f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}} {http}", encoding="utf-8")
    process = subprocess.Popen(["nginx", "-e", "stderr", "-c", str(configuration)])
    try:
        eventually(lambda: _answers(port))
        yield SimpleNamespace(port=port, log=tmp_path / "access.log")
    finally:
        process.terminate()
        process.wait(60)


def _local(block: Block, port: int, server: Server, folder: Path) -> str:
    """The page's configuration for this machine: another address to listen on, no certificate, the test's server."""
    text = re.sub(r"listen 443 ssl;\n *http2 on;[^\n]*", f"listen 127.0.0.1:{port};", block.text)
    text = text.replace("server unix:/run/queue-api/api.sock;", f"server 127.0.0.1:{server.port};")
    return text.replace("/var/log/nginx/queue-api.log", str(folder / "access.log"))


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("emptied")
def test_behind_nginx(server: Server, nginx: SimpleNamespace, topic: str) -> None:
    server.put(f"topics/{topic}", {"type": "queue"})
    token = committed_key("read", "write")
    with EventSource(nginx, f"topics/{topic}/work?node=w1&token={token}") as stream:  # type: ignore[arg-type]  # has a port
        assert stream.status == 200
        assert stream.block() == ["retry: 2000"]  # at once, although nothing follows
        assert stream.block() == [": hb"]
        (seq,) = server.write(topic, {"n": 1})
        assert stream.event()["$seq"] == seq
        assert server.state(topic)["queue"]["in_flight"] == 1
    eventually(lambda: server.state(topic)["queue"]["ready"] == 1)
    eventually(lambda: "/work" in nginx.log.read_text())
    assert token not in nginx.log.read_text()
    assert token not in server.read_log()
