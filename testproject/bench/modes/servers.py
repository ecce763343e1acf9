"""Queues on three servers of the benchmark's own under one worker, beside the same on one; and one of three stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from django_leasequeue import engine
from django_leasequeue.devdb import Server
from django_leasequeue.engine import ConnectionExecutor, pool

from .. import children, processes
from ..bench import Bench, jobs_of
from ..figures import Figure, Target
from ..options import PROJECT

SUMMARY = "one worker on three embedded servers beside one: CPU of PostgreSQL a job; queues go on while one is stopped"
#: It makes servers of its own, with the embedded PostgreSQL.
ON_REQUEST = True

#: The servers, and the queue that ``testproject.settings_servers`` routes to each.
QUEUES = {"default": "near", "second": "second.jobs", "third": "third.jobs"}
_ONE = ["default"]
_BATCH = 1_000
#: Seconds for which jobs are timed while a server is stopped.
_STOPPED = 3.0


class _Place:
    """A server with its queue."""

    def __init__(self, server: Server, queue: str, connection: psycopg.Connection[object]) -> None:
        self.server, self.queue = server, queue
        self.executor = ConnectionExecutor(connection)
        self.executor.run(engine.create(queue, project=PROJECT, durability="fsync"))

    def fill(self, jobs: int) -> None:
        for start in range(0, jobs, _BATCH):
            batch = jobs_of(min(_BATCH, jobs - start))
            self.executor.run(engine.enqueue(self.queue, batch, project=PROJECT, create=False))

    def cpu(self) -> float:
        return processes.family_cpu(self.server.pid or 0) or 0.0

    def done(self) -> bool:
        counts = self.executor.run(engine.counts(self.queue, project=PROJECT))
        return counts.ready + counts.delayed + counts.in_flight == 0

    def time_one(self, worker: children.Child) -> float:
        """Return the milliseconds from the enqueueing of one job to its end."""
        began = time.monotonic()
        self.fill(1)
        while not self.done():
            worker.check()
            time.sleep(0.002)
        return (time.monotonic() - began) * 1e3


def run(bench: Bench) -> None:
    """Add the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lqbench-", ignore_cleanup_errors=True)))
        places: dict[str, _Place] = {}
        for alias, queue in QUEUES.items():
            bench.progress.step(f"{bench.mode}: making the server {alias}")
            server = Server(folder / alias / "data")
            stack.callback(server.stop, "immediate")
            server.data_dir.parent.mkdir()
            server.start()
            environment = {**os.environ, "DATABASE_URL": server.url(), "DJANGO_SETTINGS_MODULE": "testproject.settings"}
            migrate = [sys.executable, "-m", "django", "migrate", "--verbosity", "0"]
            subprocess.run(migrate, env=environment, check=True)  # nosec B603  # our own command line
            connection = stack.enter_context(psycopg.connect(server.conninfo(), autocommit=True))
            connection.execute(pool.STEADY_PLANS.encode())
            places[alias] = _Place(server, queue, connection)
        _drain(bench, places)  # new servers have everything to read for the first time
        three: list[float] = []
        one: list[float] = []
        for round_ in range(1, bench.options.rounds + 1):
            for kept, aliases in ((one, _ONE), (three, list(QUEUES))):
                bench.progress.step(f"{bench.mode}: {len(aliases)} servers, round {round_} of {bench.options.rounds}")
                kept.append(_drain(bench, {alias: places[alias] for alias in aliases}))
        name = "CPU of PostgreSQL for a job, one worker on 3 servers"
        bench.add(Figure(bench.mode, name, "us", three, one, "on 1 server", Target("ratio", at_most=1.1)))
        strays = [_strays(place, alias) for alias, place in places.items()]
        name = "queues in another server than theirs"
        bench.add(Figure(bench.mode, name, "queues", [float(sum(strays))], target=Target("value", at_most=0)))
        before, stopped = _stop(bench, places)
        name = "longest time to the end of a job, 1 of 3 servers stopped"
        bench.add(Figure(bench.mode, name, "ms", [stopped], [before], "all run", Target("value", at_most=1_000)))


def _worker(places: dict[str, _Place], *arguments: str) -> children.Child:
    return children.worker_of_all({alias: place.server.url() for alias, place in places.items()}, *arguments)


def _drain(bench: Bench, places: dict[str, _Place]) -> float:
    """Return the CPU microseconds of the servers for one job."""
    jobs = bench.options.size
    for place in places.values():
        place.fill(jobs)
    before = sum(place.cpu() for place in places.values())
    with _worker(places, "--burst") as worker:
        worker.wait(bench.patience(jobs * len(places)))
    used = sum(place.cpu() for place in places.values()) - before
    if not all(place.done() for place in places.values()):
        raise children.ChildFailed("The worker ended before all jobs were done.")
    return used / (jobs * len(places)) * 1e6


def _strays(place: _Place, alias: str) -> int:
    lines = place.executor.run(engine.list_queues(project=PROJECT))
    return sum(line.name != QUEUES[alias] for line in lines)


def _stop(bench: Bench, places: dict[str, _Place]) -> tuple[float, float]:
    """Return the longest time of a job of two servers, while the third runs and from its stop on."""
    bench.progress.step(f"{bench.mode}: one of three servers is stopped")
    with _worker(places) as worker:
        for place in places.values():
            place.time_one(worker)
        *others, stopped = places.values()
        longest = []
        for stop in (False, True):
            if stop:
                stopped.server.stop("immediate")
            ends = time.monotonic() + _STOPPED
            times = [0.0]
            while time.monotonic() < ends:
                times += [place.time_one(worker) for place in others]
            longest.append(max(times))
    return longest[0], longest[1]
