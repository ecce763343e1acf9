"""The benchmark's workers: ``python -m testproject.bench.http_load``, many connections that claim and ack.

Over HTTP, or on the engine directly; the loop is the same. Prints what each connection did as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from .child import watch

#: Jobs of one claim.
BATCH = 8

#: Claims so many jobs for a node and returns their numbers; acks them.
Claim = Callable[[str, int], Awaitable[list[int]]]
Ack = Callable[[str, list[int]], Awaitable[None]]


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection that makes one request at a time: as little as a client can be."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(body) < length or self._answer is None:
            return
        answer, self._answer, self._buffer = self._answer, None, b""
        if head.split(b" ", 2)[1] not in (b"200", b"201"):
            answer.set_exception(RuntimeError(body.decode()))
        else:
            answer.set_result(body)

    async def post(self, path: str, body: Any, token: str) -> Any:
        """Make a request and return the JSON of its answer."""
        content = json.dumps(body).encode()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()
            + content
        )
        return json.loads(await self._answer)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def connect_http(port: int) -> HttpConnection:
    """Open a connection to a server on this machine."""
    _, connection = await asyncio.get_running_loop().create_connection(HttpConnection, "127.0.0.1", port)
    return connection


async def _over_http(options: argparse.Namespace, number: int) -> tuple[Claim, Ack]:
    ports = options.ports
    connection = await connect_http(ports[number % len(ports)])
    path = f"/v0/topics/{options.queue}"

    async def claim(node: str, size: int) -> list[int]:
        answer = await connection.post(f"{path}/claim", {"node": node, "max": size}, options.token)
        return [job["$seq"] for job in answer["claimed"]]

    async def ack(node: str, seqs: list[int]) -> None:
        answer = await connection.post(f"{path}/ack", {"node": node, "seqs": seqs}, options.token)
        if answer["acked"] != len(seqs):
            raise RuntimeError(f"The measurement is of nothing: {answer}")

    return claim, ack


async def _on_the_engine(options: argparse.Namespace) -> tuple[Claim, Ack]:
    import psycopg

    from django_leasequeue import engine
    from django_leasequeue.engine import AsyncConnectionExecutor, pool

    connection = await psycopg.AsyncConnection.connect(
        **pool.connection_parameters(options.database), autocommit=True, prepare_threshold=2
    )
    await connection.execute(pool.STEADY_PLANS)
    executor = AsyncConnectionExecutor(connection)

    async def claim(node: str, size: int) -> list[int]:
        jobs = await executor.run(engine.claim(options.queue, node, size, project=options.project, strict=False))
        return [job.seq for job in jobs]

    async def ack(node: str, seqs: list[int]) -> None:
        settled = await executor.run(engine.ack(seqs, node, project=options.project))
        if len(settled.ok) != len(seqs):
            raise RuntimeError(f"The measurement is of nothing: {settled}")

    return claim, ack


async def _work(claim: Claim, ack: Ack, node: str, times: list[float]) -> int:
    """Claim and ack until the queue is empty; return how many jobs that were."""
    done = 0
    while True:
        began = time.perf_counter()
        seqs = await claim(node, BATCH)
        times.append(time.perf_counter() - began)
        if not seqs:
            return done
        await ack(node, seqs)
        done += len(seqs)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Connect, wait for the start, work until the queue is empty."""
    numbers = range(options.first, options.first + options.connections)
    calls = [await (_over_http(options, number) if options.ports else _on_the_engine(options)) for number in numbers]
    times: list[float] = []
    await asyncio.sleep(max(0.0, options.at - time.time()))
    began = time.time()
    done = await asyncio.gather(
        *(_work(claim, ack, f"w{number}", times) for number, (claim, ack) in zip(numbers, calls, strict=True))
    )
    return {"began": began, "ended": time.time(), "done": done, "claim_seconds": times, "late": began - options.at}


def main() -> None:
    """Read the arguments, work, print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queue", required=True)
    parser.add_argument("--project", default="")
    parser.add_argument("--database", default="default")
    parser.add_argument("--ports", type=int, nargs="*", default=[])
    parser.add_argument("--token", default="")
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--at", type=float, required=True)
    options = parser.parse_args()
    threading.Thread(target=watch, daemon=True).start()
    if not options.ports:
        import django

        django.setup()
    print(json.dumps(asyncio.run(run(options))))


if __name__ == "__main__":
    main()
