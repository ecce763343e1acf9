"""Clients of event streams that do not read: they cost little, harm nobody, and are cut off. Real sockets."""

import json
import resource
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from django_leasequeue.models import LiveJob
from tests.http.servers import EventSource, Server
from tests.metrics.scraping import samples, value
from tests.support.environment import child_environment
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]

MIB = 1 << 20
#: Streams that are open, and those that were cut off.
OPENED = ("streams", "streams_cut_off_total")


def memory(server: Server, what: str = "VmRSS") -> int:
    """Bytes of a server process: now, or at most so far (``VmHWM``)."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{what}:")]
    return int(line.split()[1]) * 1_024


def figure(server: Server, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        return value(samples(answer.read().decode()), f"leasequeue_{name}") or 0.0


@contextmanager
def unread(server: Server, path: str, count: int = 1) -> Iterator[list[socket.socket]]:
    """Connections that have asked for an event stream and read no byte of it."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            found.append(client)
        yield found


@contextmanager
def serving(url: str, **api: object) -> Iterator[Server]:
    with Server(child_environment(url), api={"RECHECK_SECONDS": 3_600, **api}, tight=True) as server:
        server.call("GET", "topics")
        yield server


def fill(server: Server, topic: str, count: int, size: int, kind: str = "log") -> None:
    server.put(f"topics/{topic}", {"type": kind})
    for _ in range(count):
        server.write(topic, "x" * size)


def watch(server: Server, topic: str) -> str:
    address: str = server.post("watch", {"topics": {topic: 0}})["stream_url"]
    return address


@pytest.mark.slow  # waits until clients count as slow
def test_who_does_not_read_is_cut_off_and_who_does_goes_on(test_database_url: str, topic: str) -> None:
    with serving(test_database_url, SLOW_STREAM_SECONDS=1.5) as server:
        fill(server, topic, 40, 400_000)
        address = watch(server, topic)
        with unread(server, address, 3) as clients, EventSource(server, address) as reader:
            assert [event.name for event in reader.events(41)] == ["record"] * 40 + ["caught-up"]
            eventually(lambda: figure(server, "streams_cut_off_total") == 3, "they are cut off")
            for client in clients:
                client.settimeout(60)
                with pytest.raises(ConnectionResetError):
                    while client.recv(1 << 20):
                        pass
            server.write(topic, "more")
            assert reader.event()["data"] == "more"
            assert (figure(server, "streams"), figure(server, "stream_waiting_bytes")) == (1, 0)
        assert "Traceback" not in server.read_log()


@pytest.mark.slow  # waits until a client counts as slow
def test_a_worker_that_does_not_read_gives_its_jobs_back(test_database_url: str, topic: str) -> None:
    with serving(test_database_url, SLOW_STREAM_SECONDS=1.5) as server:
        fill(server, topic, 30, 400_000, "queue")
        with unread(server, f"/v0/topics/{topic}/work?node=stuck&max=1000&lease_ms=600000"):
            held = LiveJob.objects.filter(node="stuck", queue__name=topic)
            eventually(held.exists, "it has jobs")
            assert held.count() < 25, "no more than it could take"
            with EventSource(server, f"/v0/topics/{topic}/work?node=w&max=1000") as worker:
                assert len({event["$seq"] for event in worker.events(30)}) == 30
            assert (held.exists(), figure(server, "streams_cut_off_total")) == (False, 1)


@pytest.mark.slow
@pytest.mark.release  # a thousand connections
def test_a_process_with_a_thousand_slow_readers_stays_below_200_mib(
    test_database_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither small records nor large ones, and a client that reads gets all of them meanwhile."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")  # as docs/how-to/deploy-http.md has it
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8_192, hard), hard))
    try:
        with serving(test_database_url, SLOW_STREAM_SECONDS=20) as server:
            small, large = f"{topic}-small", f"{topic}-large"
            server.put(f"topics/{small}", {"type": "log"})
            for _ in range(20):
                server.write(small, *(["x" * 1_000] * 500))
            fill(server, large, 20, 1_000_000)
            addresses = [watch(server, name) for name in (small, large)]
            before = memory(server)
            with ExitStack() as stack:
                for address in addresses:
                    stack.enter_context(unread(server, address, 500))
                eventually(lambda: sum(figure(server, name) for name in OPENED) == 1_000, "all were opened", 300)
                with EventSource(server, addresses[1]) as reader:
                    assert sum(event.name == "record" for event in reader.events(21, 120)) == 20
                assert figure(server, "stream_waiting_bytes") <= 64 * MIB
                eventually(lambda: figure(server, "streams_cut_off_total") >= 900, "they are cut off", 300)
            found = {"before": before, "most": memory(server, "VmHWM"), "after": memory(server)}
            print(json.dumps({name: round(size / MIB) for name, size in found.items()}))
            assert found["most"] < 200 * MIB, found
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_refusal_does_not_wait_for_a_body_that_trickles_in(test_database_url: str) -> None:
    with serving(test_database_url, ACCESS="keys") as server, socket.socket() as client:
        client.connect(("127.0.0.1", server.port))
        client.settimeout(60)
        head = "POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"
        client.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:  # a byte now and then, for as long as it takes
            client.sendall(b"x")
            client.settimeout(0.05)
            try:
                answer += client.recv(65_536)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer.lower()
