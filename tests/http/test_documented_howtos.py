"""What the how-to pages of the HTTP doors say, done: authentication, deployment behind nginx, idempotent consumers."""

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
from tests.http.servers import EventSource, Server, committed_key
from tests.support.documents import Block, blocks
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


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
