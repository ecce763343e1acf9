"""Real servers on real sockets: uvicorn processes on loopback, and clients that can be cut off."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from django_leasequeue.engine.pool import connect
from django_leasequeue.http.access import make_token
from tests.http import contract
from tests.support.ports import free_port
from tests.support.proxy import Proxy

START_SECONDS = 300.0


class Server:
    """A server process: of uvicorn, or of the standard library where it speaks WSGI; ``api`` are its settings."""

    def __init__(
        self, environment: Mapping[str, str], *,
        api: Mapping[str, Any] | None = None, application: str = "testproject.asgi:application", wsgi: bool = False,
        tight: bool = False,
    ) -> None:  # fmt: skip
        self.port = free_port()
        self.log = Path(tempfile.mkstemp(prefix="leasequeue-server-", suffix=".log")[1])
        command = (
            [sys.executable, "-m", f"tests.http.{'wsgi' if wsgi else 'tight'}_server", str(self.port)]
            if wsgi or tight
            else [*(sys.executable, "-m", "uvicorn", application), *("--port", str(self.port), "--no-use-colors")]
        )
        self._stream = self.log.open("wb")
        self.process = subprocess.Popen(
            command,
            env={
                **environment, "DJANGO_SETTINGS_MODULE": "tests.http.server_settings",
                "LEASEQUEUE_TEST_API": json.dumps({"ACCESS": "open", **(api or {})}),
            },
            stdout=self._stream, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> Self:
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                return self
            time.sleep(0.02)
        raise RuntimeError(f"The server did not start:\n{self.read_log()}")

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._stream.close()
        self.log.unlink(missing_ok=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v0"

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self, timeout: float = 60.0) -> int:
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def call(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"content-type": "application/json", **(headers or {})}
        with contextlib.closing(connection):
            connection.request(method, f"/v0/{path}", None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            answer = json.loads(response.read())
            contract.check(method, f"/v0/{path}", response.status, answer)
            return response.status, answer

    def refusal(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, answer = self.call(method, path, body)
        return status, answer["error"]["code"]

    def ask(self, method: str, path: str, body: Any, *statuses: int) -> dict[str, Any]:
        """Return an answer that has one of these statuses."""
        found, answer = self.call(method, path, body)
        assert found in statuses, answer
        return dict(answer)

    def post(self, path: str, body: Any, status: int = 200) -> dict[str, Any]:
        return self.ask("POST", path, body, status)

    def put(self, path: str, body: Any) -> dict[str, Any]:
        return self.ask("PUT", path, body, 200, 201)

    def write(self, topic: str, *data: Any) -> list[int]:
        records = [{"data": item} for item in data]
        return list(self.ask("POST", f"topics/{topic}", {"records": records}, 200, 201)["seqs"])

    def state(self, topic: str) -> dict[str, Any]:
        return self.ask("GET", f"topics/{topic}", None, 200)


class Event(dict[str, Any]):
    """One server-sent event: its data as a dict, its name and id beside it."""

    def __init__(self, name: str, event_id: str | None, data: Any) -> None:
        super().__init__(data)
        self.name = name
        self.id = event_id


class EventSource:
    def __init__(
        self, server: Server, path: str, *,
        headers: Mapping[str, str] | None = None, accept: str | None = "text/event-stream",
    ) -> None:  # fmt: skip
        self._socket = socket.create_connection(("127.0.0.1", server.port), 60)
        lines = [f"GET {path if path.startswith('/') else '/v0/' + path} HTTP/1.1", "host: localhost"]
        more = {**({} if accept is None else {"accept": accept}), **(headers or {})}
        lines += [f"{name}: {value}" for name, value in more.items()]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._buffer = b""
        self._body = b""
        self.ended = False
        head = self._read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in head[1:] if line}
        self.comments: list[str] = []
        self.retry: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self._socket.close()

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data

    def _read_until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._receive()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def json(self) -> Any:
        length = int(self.headers["content-length"])
        while len(self._buffer) < length:
            self._receive()
        return json.loads(self._buffer[:length])

    @property
    def refusal(self) -> tuple[int, str]:
        return self.status, self.json()["error"]["code"]

    def _chunk(self) -> None:
        size = int(self._read_until(b"\r\n"), 16)
        while len(self._buffer) < size + 2:
            self._receive()
        self._body += self._buffer[:size]
        self._buffer = self._buffer[size + 2 :]
        if not size:
            self.ended = True
            raise EOFError

    def block(self, timeout: float = 60.0) -> list[str]:
        """The lines of the next block; ``TimeoutError`` where nothing comes, ``EOFError`` where the stream ended."""
        self._socket.settimeout(timeout)
        while b"\n\n" not in self._body:
            self._chunk()
        block, _, self._body = self._body.partition(b"\n\n")
        return block.decode().split("\n")

    def event(self, timeout: float = 60.0) -> Event:
        """The next event; comments and ``retry`` are noted on the way."""
        ends = time.monotonic() + timeout
        while True:
            fields: dict[str, str] = {}
            for line in self.block(max(0.01, ends - time.monotonic())):
                name, _, value = line.partition(":")
                if not name:
                    self.comments.append(value.strip())
                else:
                    fields[name] = value.removeprefix(" ")
            if "retry" in fields:
                self.retry = int(fields["retry"])
            if "data" in fields:
                return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))

    def events(self, count: int, timeout: float = 60.0) -> list[Event]:
        return [self.event(timeout) for _ in range(count)]

    def silence(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            try:
                event = self.event(left)
            except TimeoutError:
                return
            raise AssertionError(f"there came {event.name} {dict(event)}")

    def end(self, timeout: float = 60.0) -> None:
        try:
            event = self.event(timeout)
        except EOFError:
            assert self.ended
            return
        raise AssertionError(f"there came {event.name} {dict(event)}")


def serving(environment: Mapping[str, str], count: int = 1, **options: Any) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        servers = [Server(environment, **options) for _ in range(count)]
        for server in servers:
            stack.push(server.__exit__)
        for server in servers:
            server.__enter__()
        yield servers


def committed_key(*scopes: str, topics: Sequence[str] = ()) -> str:
    """Make an API key that servers see: beside the test's own transaction. Return its token."""
    with connect("default") as connection:
        return insert_key(connection, *scopes, topics=topics)


def insert_key(connection: Any, *scopes: str, topics: Sequence[str] = ()) -> str:
    token, prefix, digest = make_token()
    connection.execute(
        "INSERT INTO leasequeue_apikey (name, prefix, digest, scopes, topics, project, created_at)"
        " VALUES ('test', %s, %s, %s, %s, '', now())",
        [prefix, digest, list(scopes), list(topics)],
    )
    return token


class Relay(Proxy):
    def __init__(self, target: int) -> None:
        super().__init__("127.0.0.1", target)
        #: What clients sent, all of it.
        self.sent = b""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v0"

    def lead_to(self, target: int) -> None:
        self._target = ("127.0.0.1", target)

    def count(self, words: str) -> int:
        return self.sent.count(words.encode())

    def _pass(self, source: socket.socket, target: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if gate is self._forth:
                    with self._lock:
                        self.sent += data
                gate.wait()
                target.sendall(data)
        gate.wait()
        self._close(source, target)
