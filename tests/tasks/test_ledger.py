"""Exactly once, counted: workers killed, hung past their lease, PostgreSQL crashed; ``LEDGER_KILLS=200`` for more.

And no event lost, whenever it is emitted; ``LEDGER_EVENTS=10000`` for more.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from django.db import OperationalError, connections, transaction
from pytest_django import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine.jobs.steps import emit
from django_leasequeue.exceptions import LeaseQueueError
from tests.support.environment import child_environment
from tests.support.faults import alias, faulty
from tests.support.temporary_server import TemporaryServer
from tests.worker.processes import TASKS, Start, WorkerProcess, starting

KILLS, CRASHES, STOPS = (int(os.environ.get(f"LEDGER_{name}", "3")) for name in ("KILLS", "CRASHES", "STOPS"))
#: Milliseconds: who hangs for longer has lost it.
LEASE = 1_500
ORDERS = 40
#: Of each other kind: those that are cancelled, that do not wait for long, that may not be tried again.
OTHERS = 8
#: Some commits take their time, a few of them longer than a lease.
SLOW_COMMITS = """
CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN
        PERFORM pg_sleep(CASE WHEN random() < 0.01 THEN 2 WHEN random() < 0.2 THEN random() * 0.3 ELSE 0 END);
        RETURN NULL;
    END';
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow_commit()
"""
PAID = "SELECT number, count(*) FROM ledger WHERE kind LIKE 'pay %' GROUP BY number"
EVENTS = int(os.environ.get("LEDGER_EVENTS", "300"))
#: When an event is emitted, in seconds after its task was enqueued: before the wait, while it goes to wait, after.
MOMENTS = ((-1.0, -0.05), (-0.03, 0.06), (0.06, 1.5))


class Crew:
    """Two worker processes; one that has died is replaced."""

    def __init__(self, start: Start) -> None:
        self._start, self._workers = start, list[WorkerProcess]()
        self.fill()

    def fill(self) -> None:
        self._workers = [worker for worker in self._workers if worker.running]
        while len(self._workers) < 2:
            self._workers.append(self._start(*TASKS, "--queues", "default", "--concurrency", "4", reaper=True))

    def send(self, number: signal.Signals) -> WorkerProcess:
        worker = random.choice(self._workers)
        os.killpg(worker.pid, number)
        return worker


@pytest.fixture
def crew(jobs: TemporaryServer) -> Iterator[Crew]:
    with starting({**child_environment(jobs.url()), "PYTHONWARNINGS": "ignore"}) as start:
        yield Crew(start)


@pytest.fixture
def jobs(migrated_server: TemporaryServer, django_db_blocker: DjangoDbBlocker) -> Iterator[TemporaryServer]:
    with faulty(migrated_server) as server, alias(server, "jobs", direct=True), django_db_blocker.unblock():
        server.execute("CREATE TABLE ledger (kind text, number int)")
        engine.run(engine.create("default", preset="django", lease_ms=LEASE, max_deliveries=10_000), "jobs")
        yield migrated_server


def enqueue(name: str, *numbers: int) -> list[int]:
    new = [engine.NewJob(data={"args": [number]}, name=f"tests.tasks.durable_tasks.{name}") for number in numbers]
    return [job.seq for job in engine.run(engine.enqueue("default", new), "jobs")]


class Cancels:
    """Cancels jobs that run, in the middle of their commits too, and counts at once what each has paid."""

    def __init__(self, server: TemporaryServer) -> None:
        self._server = server
        #: What had been paid when the cancel was answered, by number.
        self.paid: dict[int, int] = {}

    def cancel(self, jobs: dict[int, int]) -> None:
        """Cancel each once it has paid something; what a fault of the server breaks off says nothing."""
        end = time.monotonic() + 20
        while jobs and time.monotonic() < end:
            time.sleep(random.uniform(0, 0.05))
            with suppress(psycopg.Error, LeaseQueueError, OperationalError):
                for number in self._paid().keys() & jobs.keys():
                    seq = jobs.pop(number)
                    if engine.run(engine.cancel("default", seqs=[seq], running=True), "jobs"):
                        self.paid[number] = self._paid()[number]
        connections["jobs"].close()

    def _paid(self) -> Counter[int]:
        with psycopg.connect(self._server.conninfo()) as connection:
            return Counter(dict(connection.execute(PAID).fetchall()))

    def late(self, times: dict[str, Counter[int]]) -> dict[int, tuple[int, int]]:
        """Return those of which something was committed after the answer: what was paid then, and in the end."""
        in_the_end = sum((times[f"pay {place}"] for place in range(20) if f"pay {place}" in times), Counter[int]())
        return {number: (then, in_the_end[number]) for number, then in self.paid.items() if in_the_end[number] != then}


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(3_600)
def test_what_is_atomic_is_there_once(jobs: TemporaryServer, crew: Crew) -> None:
    faults = ["kill"] * KILLS + ["crash"] * CRASHES + ["stop"] * STOPS
    random.shuffle(faults)
    with psycopg.connect(jobs.conninfo()) as connection:
        connection.execute(SLOW_COMMITS)
    cancels, threads = Cancels(jobs), ThreadPoolExecutor(2)
    ordered = 0
    for fault in faults:
        others = range(ordered, ordered + OTHERS)
        threads.submit(cancels.cancel, dict(zip(others, enqueue("cancelled", *others), strict=True)))
        enqueue("impatient", *others)
        enqueue("risky", *others)
        enqueue("ordered", *range(ordered, ordered + ORDERS))
        time.sleep(random.uniform(0.1, 0.8))
        for number in range(ordered, ordered + ORDERS):
            engine.run(emit(f"go:{number}", number), "jobs")
        ordered += ORDERS
        if fault == "kill":
            crew.send(signal.SIGKILL).wait()
        elif fault == "stop":
            hung = crew.send(signal.SIGSTOP)
            time.sleep(2 * LEASE / 1_000)
            os.killpg(hung.pid, signal.SIGCONT)
        else:
            jobs.stop("immediate")
            jobs.start()
            connections["jobs"].close()
        crew.fill()
    threads.shutdown()
    _wait_for_the_end(jobs, 2 * ordered)
    with psycopg.connect(jobs.conninfo()) as connection:
        rows = connection.execute("SELECT kind, number, count(*) FROM ledger GROUP BY kind, number").fetchall()
    times = {name: Counter({number: n for kind, number, n in rows if kind == name}) for name, *_ in rows}
    for kind in ("task", "atomic", "last"):
        assert times[kind] == Counter(range(ordered)), kind
    assert set(times["plain"]) == set(range(ordered))
    decided = Counter(start + number for start in range(0, ordered, ORDERS) for number in range(OTHERS))
    assert times["told"] == times.get("shipped", Counter()) + times.get("refunded", Counter()) == decided
    assert cancels.late(times) == {}
    for kind, counts in times.items():
        assert kind.split()[0] not in ("pay", "charge", "undone") or max(counts.values()) == 1, kind
    charges = sum((times[f"charge {place}"] for place in range(5)), Counter[int]())
    undone = {number: int(kind.split()[1]) for kind in times if kind.startswith("undone ") for number in times[kind]}
    assert {number: (seen, charges[number]) for number, seen in undone.items() if seen != charges[number]} == {}
    assert set(charges) | set(undone) == set(decided)
    print(f"{ordered} orders, {dict(Counter(faults))}: plain steps done again: {times['plain'].total() - ordered}")
    print(f"refunded {len(times.get('refunded', ()))}, undone {len(undone)}, cancelled {sorted(cancels.paid.values())}")


def emit_somehow(number: int) -> None:
    """Emit an event: alone, in a transaction that takes its time, or after one that was rolled back."""
    undone = random.random() < 0.2
    with transaction.atomic(using="jobs"):
        engine.run(emit(f"random:{number}", number), "jobs")
        time.sleep(random.choice((0, 0, random.uniform(0, 0.1))))
        transaction.set_rollback(undone, using="jobs")
    if undone:
        engine.run(emit(f"random:{number}", number), "jobs")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_no_event_is_lost(jobs: TemporaryServer, crew: Crew) -> None:
    deeds: list[tuple[float, int, int]] = []
    for number in range(EVENTS):
        enqueued = random.uniform(0, EVENTS / 200)
        deeds += [(enqueued, 0, number), (enqueued + random.uniform(*random.choice(MOMENTS)), 1, number)]
    began = time.monotonic() + 1

    def do(part: list[tuple[float, int, int]]) -> None:
        for at, emits, number in part:
            time.sleep(max(0.0, began + at - time.monotonic()))
            if emits:
                emit_somehow(number)
            else:
                enqueue("awaiting", number)
        connections["jobs"].close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(do, [sorted(deeds)[thread::8] for thread in range(8)]))
    _wait_for_the_end(jobs, EVENTS)
    with psycopg.connect(jobs.conninfo()) as connection:
        heard = connection.execute("SELECT number FROM ledger WHERE kind = 'heard' ORDER BY number").fetchall()
    assert heard == [(number,) for number in range(EVENTS)]
    print(f"{EVENTS} events, each heard once")


def _wait_for_the_end(server: TemporaryServer, jobs: int) -> None:
    unfinished = (
        "SELECT count(*) FROM leasequeue_job WHERE seq NOT IN (SELECT seq FROM leasequeue_jobresult)"
        " AND seq NOT IN (SELECT seq FROM leasequeue_deadletter)"
    )
    left, changed = -1, time.monotonic()
    # A busy machine may take long: what counts is that some go on ending.
    while left and time.monotonic() < changed + 120:
        time.sleep(0.5)
        before = left
        with psycopg.connect(server.conninfo()) as connection:
            ((left,),) = connection.execute(unfinished).fetchall()
        if left != before:
            changed = time.monotonic()
    assert left == 0, f"{left} of {jobs} jobs have not ended"
