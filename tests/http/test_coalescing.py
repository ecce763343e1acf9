"""Claims that are served together, across server processes."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from django_leasequeue.models import ClaimWaiter, JobEvent, LiveJob
from tests.http.servers import EventSource, Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]

#: Milliseconds: long enough for a busy machine to send its requests within it.
WINDOW = 3_000


@pytest.fixture(scope="module", autouse=True)
def warm(servers: list[Server], emptied: None) -> None:
    """Let the servers open their connections before a window is open."""
    servers[0].put("topics/warm", {"type": "queue"})
    for _ in range(2):
        together(servers, "warm", [1] * 20)


def together(servers: list[Server], topic: str, sizes: list[int]) -> list[list[dict[str, Any]]]:
    def claim(number: int) -> list[dict[str, Any]]:
        body = {"node": f"w{number}", "max": sizes[number]}
        jobs: list[dict[str, Any]] = servers[number % len(servers)].post(f"topics/{topic}/claim", body)["claimed"]
        return jobs

    with ThreadPoolExecutor(len(sizes)) as pool:
        return list(pool.map(claim, range(len(sizes))))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "sizes", "shares"), [
    (50, [10] * 10, [5] * 10), (20, [10] * 4, [5] * 4), (9, [2, 100], [2, 7]), (3, [5] * 5, [0, 0, 1, 1, 1]),
    (0, [5, 5], [0, 0]),
])  # fmt: skip
def test_a_cohort_shares_evenly(servers: list[Server], topic: str, count: int, sizes: Any, shares: Any) -> None:
    servers[0].put(f"topics/{topic}", {"type": "queue", "claim_jitter_ms": WINDOW})
    seqs = servers[0].write(topic, *range(count)) if count else []
    hands = together(servers, topic, sizes)
    assert sorted(len(hand) for hand in hands) == sorted(shares)
    assert sorted(job["$seq"] for hand in hands for job in hand) == seqs
    assert all(hand == sorted(hand, key=lambda job: job["$seq"]) for hand in hands)
    assert not ClaimWaiter.objects.exists()


@pytest.mark.slow
def test_streams_share_with_claims_of_the_cohort(servers: list[Server], topic: str) -> None:
    servers[0].put(f"topics/{topic}", {"type": "queue", "claim_jitter_ms": WINDOW})
    with ExitStack() as stack:
        streams = [
            stack.enter_context(EventSource(one, f"topics/{topic}/work?node=s{n}&max=100"))
            for n, one in enumerate(servers)
        ]
        for stream in streams:
            stream.block()
        servers[0].write(topic, *range(40))
        hands = together(servers, topic, [100, 100])
        pushed = [stream.events(10) for stream in streams]
        assert [len(hand) for hand in hands] == [10, 10]
        found = [job["$seq"] for hand in hands for job in hand] + [job["$seq"] for jobs in pushed for job in jobs]
        assert len(set(found)) == 40


@pytest.mark.slow
def test_a_caller_who_leaves_within_the_window_gets_no_jobs(servers: list[Server], topic: str) -> None:
    servers[0].put(f"topics/{topic}", {"type": "queue", "claim_jitter_ms": WINDOW})
    seqs = servers[0].write(topic, *range(6))
    gone = socket.create_connection(("127.0.0.1", servers[1].port))
    body = json.dumps({"node": "gone", "max": 6}).encode()
    head = f"POST /v0/topics/{topic}/claim HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    gone.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    eventually(lambda: ClaimWaiter.objects.filter(node="gone").exists())
    gone.close()
    (mine,) = together(servers[:1], topic, [6])
    assert sorted(job["$seq"] for job in mine) == seqs
    assert not LiveJob.objects.filter(node="gone").exists()
    assert not JobEvent.objects.filter(seq__in=seqs, node="gone").exists()


@pytest.mark.slow
def test_the_window_of_a_cohort_follows_the_configuration(servers: list[Server], topic: str) -> None:
    servers[0].put(f"topics/{topic}", {"type": "queue"})
    servers[1].post(f"topics/{topic}/claim", {"node": "w"})
    servers[0].put(f"topics/{topic}", {"type": "queue", "claim_jitter_ms": WINDOW})
    servers[0].write(topic, *range(20))
    assert [len(hand) for hand in together(servers, topic, [10] * 4)] == [5] * 4
