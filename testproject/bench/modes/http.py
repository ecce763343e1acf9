"""The HTTP door: the same claims and acks over HTTP as on the engine directly."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import mean, median, pstdev, quantiles
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings

from django_leasequeue.http.access import create_key
from django_leasequeue.models import ApiKey

from ..bench import Bench
from ..children import Child, ChildFailed
from ..figures import Figure, Sample, Target
from ..http_load import BATCH, connect_http
from ..options import PROJECT

SUMMARY = "the HTTP door: 50 connections, 2 servers, beside the same loop on the engine"
#: Needs the extra `serve` and some seconds to start servers: runs when it is asked for.
ON_REQUEST = True

SERVERS = 2
LOADS = 2
CONNECTIONS = 50
#: Records of one write.
WRITE = 500
#: Jobs of the claim on an idle server.
IDLE_BATCH = 16
#: Large bodies that are posted at once, and bytes of each.
LARGE_BODIES, LARGE = 13, 24_000_000
#: Seconds that the processes of a measurement have to connect.
_PREPARE = 4.0


def run(bench: Bench) -> None:
    """Add the figures."""
    bench.start_reaper()
    with _key(bench.options.using) as token, _servers(bench.options.using) as ports:
        _produce(bench, ports, token)
        _drain(bench, ports, token)
        _idle(bench, ports[0], token)
        _pause(bench, ports[0], token)


@contextmanager
def _key(using: str) -> Iterator[str]:
    key, token = create_key(
        "leasequeue_bench", ["read", "write", "delete", "admin", "payloads"], project=PROJECT, using=using
    )
    try:
        yield token
    finally:
        ApiKey.objects.using(using).filter(pk=key.pk).delete()


def _settings() -> str:
    module = getattr(django_settings, "SETTINGS_MODULE", None) or os.environ.get(ENVIRONMENT_VARIABLE)
    if not module:
        raise ChildFailed("Servers are processes of their own: they need DJANGO_SETTINGS_MODULE to name the settings.")
    return str(module)


@contextmanager
def _servers(using: str) -> Iterator[list[int]]:
    """Run the servers; yields their ports."""
    environment = {
        ENVIRONMENT_VARIABLE: "testproject.bench.http_settings",
        "LEASEQUEUE_BENCH_SETTINGS": _settings(),
        "LEASEQUEUE_BENCH_DATABASE": using,
    }
    ports = [_free_port() for _ in range(SERVERS)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                Child(
                    [
                        *("-m", "uvicorn", "testproject.bench.http_app:application"),
                        *("--port", str(port), "--no-access-log", "--log-level", "warning"),
                    ],
                    environment,
                )
            )
            for port in ports
        ]
        for port, server in zip(ports, servers, strict=True):
            _wait_for(port, server)
        yield ports


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(port: int, server: Child) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        server.check()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise ChildFailed("A server did not start within a minute.")


def _produce(bench: Bench, ports: list[int], token: str) -> None:
    """Writes of 500 records, one after the other, beside the engine's."""
    queue = bench.queue("topics", durability="disk")

    def over_http(jobs: int) -> Sample:
        async def write() -> None:
            connection = await connect_http(ports[0])
            for part in _parts(jobs):
                body = {"records": [{"data": {"n": number}} for number in part]}
                await connection.post(f"/v0/topics/{queue}?return_seqs=false", body, token)
            connection.close()

        with bench.meter.measure(jobs) as sample:
            asyncio.run(write())
        bench.vacuum()
        return sample

    def on_the_engine(jobs: int) -> Sample:
        from django_leasequeue.engine import NewJob

        with bench.meter.measure(jobs) as sample:
            for part in _parts(jobs):
                bench.enqueue(queue, [NewJob(data={"n": number}) for number in part])
        bench.vacuum()
        return sample

    bench.compare(
        f"write, {WRITE} records a request",
        over_http,
        on_the_engine,
        bench.options.size,
        label="the engine, one caller",
    )


def _parts(count: int) -> Iterator[range]:
    for start in range(0, count, WRITE):
        yield range(start, min(start + WRITE, count))


def _load(bench: Bench, queue: str, arguments: list[str]) -> list[dict[str, Any]]:
    """Let the workers drain a queue; return what each process says."""
    each = CONNECTIONS // LOADS
    at = time.time() + _PREPARE
    environment: dict[str, str] = {ENVIRONMENT_VARIABLE: _settings()}
    with ExitStack() as stack:
        loads = [
            stack.enter_context(
                Child(
                    [
                        *("-m", "testproject.bench.http_load", "--queue", queue, "--project", PROJECT),
                        *("--database", bench.options.using, "--connections", str(each)),
                        *("--first", str(number * each), "--at", str(at), *arguments),
                    ],
                    environment,
                )
            )
            for number in range(LOADS)
        ]
        return [json.loads(load.wait(bench.patience(bench.options.size))) for load in loads]


def _drain(bench: Bench, ports: list[int], token: str) -> None:
    """Fifty connections claim eight and ack them until the queue is empty."""
    seconds: list[list[float]] = []
    fairness: list[float] = []

    def drain(jobs: int, arguments: list[str]) -> tuple[Sample, list[dict[str, Any]]]:
        queue = bench.queue("topics", durability="disk")
        bench.fill(queue, jobs)
        reports = _load(bench, queue, arguments)
        bench.vacuum()
        done = sum(sum(report["done"]) for report in reports)
        if done != jobs:
            raise ChildFailed(f"{jobs:,} jobs were to be done, and {done:,} were.")
        began, ended = min(report["began"] for report in reports), max(report["ended"] for report in reports)
        return Sample(jobs, ended - began), reports

    def over_http(jobs: int) -> Sample:
        sample, reports = drain(jobs, ["--ports", *map(str, ports), "--token", token])
        if jobs == bench.options.size:
            seconds.append([one for report in reports for one in report["claim_seconds"]])
            done = [count for report in reports for count in report["done"]]
            fairness.append(pstdev(done) / mean(done))
        return sample

    bench.compare(
        f"claim({BATCH}) and ack, {CONNECTIONS} connections, {SERVERS} servers",
        over_http,
        lambda jobs: drain(jobs, [])[0],
        bench.options.size,
        label="the same loop on the engine",
        target=Target("ratio", at_least=0.65),
    )
    hundredths = [quantiles(times, n=100) for times in seconds]
    for name, place in (("half of them", 50), ("99 of 100", 99)):
        values = [found[place - 1] * 1000 for found in hundredths]
        bench.add(Figure(bench.mode, f"claim({BATCH}) under that load, {name} within", "ms", values))
    bench.add(Figure(bench.mode, "fairness: spread of jobs over workers (cv)", "", fairness))


def _idle(bench: Bench, port: int, token: str) -> None:
    """Claims of sixteen on a server that does nothing else, and what it says that they took."""
    queue = bench.queue("topics", durability="disk")
    tries = bench.options.singles

    async def claims() -> tuple[list[float], list[float]]:
        connection = await connect_http(port)
        path = f"/v0/topics/{queue}"
        seen: list[float] = []
        said: list[float] = []
        for number in range(tries + 20):
            records = [{"data": {"n": n}} for n in range(IDLE_BATCH)]
            await connection.post(path, {"records": records}, token)
            began = time.perf_counter()
            answer = await connection.post(f"{path}/claim", {"node": "w", "max": IDLE_BATCH}, token)
            took = (time.perf_counter() - began) * 1000
            if answer["count"] != IDLE_BATCH:
                raise RuntimeError(f"The measurement is of nothing: {answer}")
            if number >= 20:
                seen.append(took)
                said.append(answer["performance"]["server_total_ms"])
            await connection.post(f"{path}/ack", {"node": "w", "seqs": [j["$seq"] for j in answer["claimed"]]}, token)
        connection.close()
        return seen, said

    bench.progress.step(f"{bench.mode}: claims on an idle server")
    seen, said = asyncio.run(claims())
    bench.add(
        Figure(
            bench.mode,
            f"claim({IDLE_BATCH}) on an idle server, half of them within",
            "ms",
            [median(seen)],
            target=Target("value", at_most=5.0),
            details={"tries": tries, "p99_ms": round(quantiles(seen, n=100)[98], 3)},
        )
    )
    bench.add(
        Figure(
            bench.mode,
            "server_total_ms of these claims, beside what the client measured",
            "ms",
            [median(said)],
            [median(seen)],
            "the client's clock",
            Target("ratio", at_least=0.8),
        )
    )


def _pause(bench: Bench, port: int, token: str) -> None:
    """The longest that a server lets others wait while large bodies are read: brackets, texts and records."""
    queue = bench.queue("topics", durability="disk")
    record = b'{"data": "%s"},' % (b"x" * (LARGE // 9_000))
    bodies = [
        b'{"records": [%s1]}' % (b"[]," * (LARGE // 3)),
        b'{"records": [{"data": [%s1]}]}' % (b'"xxxxxxxxxxxxxxxxxxxxxxxx",' * (LARGE // 27)),
        b'{"records": [%s]}' % (record * (LARGE // len(record)))[:-1],
    ]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", f"/v0/topics/{queue}?return_seqs=false", body, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    bench.progress.step(f"{bench.mode}: health beside large bodies")
    took: list[float] = []
    health = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    with ThreadPoolExecutor(LARGE_BODIES) as pool:
        posts = [pool.submit(post, bodies[number % len(bodies)]) for number in range(LARGE_BODIES)]
        while not all(posted.done() for posted in posts):
            began = time.perf_counter()
            health.request("GET", "/v1/health")
            answer = health.getresponse()
            answer.read()
            took.append((time.perf_counter() - began) * 1000)
            if answer.status != 204:
                raise RuntimeError(f"The server is not well: it answers {answer.status}.")
            time.sleep(0.002)
        statuses = [posted.result() for posted in posts]
    health.close()
    if max(statuses) >= 500:
        raise RuntimeError(f"The measurement is of nothing: large bodies were answered {statuses}")
    bench.add(
        Figure(
            bench.mode,
            f"longest answer of /v1/health while {LARGE_BODIES} bodies of {LARGE // 1_000_000} MB are posted",
            "ms",
            [max(took)],
            target=Target("value", at_most=100.0),
            details={"answers": len(took), "p50_ms": round(median(took), 3), "statuses": sorted(statuses)},
        )
    )
