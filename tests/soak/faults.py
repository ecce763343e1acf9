"""The faults: what each name of the plan does; and the healer, an operator who has dead letters tried again."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

import psycopg
from django.db import Error, connection

from django_leasequeue import Queue, engine
from django_leasequeue.devdb import Server
from django_leasequeue.engine import ConnectionExecutor
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.tasks import chord
from tests.support.proxy import Proxy

from . import tasks
from .clock import Clock
from .crew import Crew
from .evidence import SECOND, Witness
from .plan import WORKERS, Step
from .runs import DURABLE
from .server import CLIENTS, SoakServer

logger = logging.getLogger("tests.soak.healer")

#: Tables that are locked: enqueueing, claiming and settling each need some of them.
TABLES = ("leasequeue_job", "leasequeue_ready", "leasequeue_claim", "leasequeue_leaseevent", "leasequeue_queue")
#: Milliseconds of ``statement_timeout``: nothing passes, little, nearly everything.
TIMEOUTS = (1, 5, 50)
#: Faults beside which others may go on: the server stays.
BESIDE = ("statements cancelled", "queue paused", "second server away")
#: The queue that is paused; its jobs have limits, rates and workflows.
PAUSED = "sure"
#: Seconds of the shortest step of the server's clock, longer than a lease, and of the longest.
STEP = (14.0, 30.0)
#: How many jobs of a harmful kind come at once: the first does harm at each of its attempts, the others at their first.
HARMFUL, ATTEMPTS = 3, 3
#: How often it is tried to bring them, every half a second.
TRIES = 40
#: How many long jobs come before a fault of a worker, and how many seconds they take: longer than a lease.
LONG_JOBS, LONG = 10, 7.0
#: How many short ones come right before a worker is stopped, so that it holds some that it has not started; seconds.
SHORT_JOBS, SHORT = 60, 0.05
#: How many jobs of several steps come before that: some are within a step, and another worker is within the same
#: one when the stopped one goes on; their steps, seconds of each.
STEPPING, STEPS, STEP_TAKES = 8, 3, 2.0
#: How many jobs of a workflow each kill their process, and at most how many seconds after they began.
STRIKES, STRIKE = 6, 0.04
#: Numbers of the jobs that faults bring; and how many of them come right before the server is killed.
NUMBERS, LAST_JOBS = 99 * 10**9, 3


@dataclass
class Faults:
    server: SoakServer
    far: Server
    clock: Clock
    crew: Crew
    proxies: dict[str, Proxy]
    witness: Witness
    tell: Callable[[str], None]
    #: Set when the run is over before its time.
    over: threading.Event = field(default_factory=threading.Event)
    #: What could not be done, or did not do what it has to.
    trouble: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(NUMBERS))

    def run(self, steps: Iterable[Step], begin: float) -> None:
        """Make the faults of a track at their times, seconds after ``begin`` (monotonic), one after the other."""
        for step in steps:
            if self.over.wait(max(0.0, begin + step.at - time.monotonic())):
                return
            of_server = not step.role and not step.fault.startswith("task") and step.fault not in BESIDE
            with self.server.busy if of_server else nullcontext():
                self._make(step)
                if of_server:
                    self.server.wait()
                    self.witness.say("back", step.fault, "")

    def _make(self, step: Step) -> None:
        self.tell(f"fault  {step}")
        self.witness.say("fault", step.number, step.fault, "begin", [step.role] if step.role else [])
        try:
            self._do(step)
        except (psycopg.Error, Error, OSError) as error:
            # Another fault was in the way: the server was away, or had no connection for this one.
            self.tell(f"       {step.fault}: {' '.join(str(error).split())[:100]}")
        self.witness.say("fault", step.number, step.fault, "end", [])

    def _do(self, step: Step) -> None:
        if step.fault.startswith("task: "):
            self._through_others(step, step.fault.removeprefix("task: "))
        else:
            name = step.fault.removeprefix("web ").partition(" ")[2] if step.role else step.fault
            getattr(self, f"_{name.replace(' ', '_')}")(step)

    def _rest(self, step: Step) -> None:
        self.over.wait(step.seconds)

    # Of the server

    def _postmaster_killed(self, step: Step) -> None:
        # What is answered in the last moment has only itself to be on disk by: no later commit has flushed it.
        numbers = self._tried(LAST_JOBS, "sure", "plain")
        connection.close()
        connection.ensure_connection()
        bound = tasks.work.using(queue_name="sure")
        answered: list[int] = []
        with suppress(Error, LeaseQueueError), self.server.last_moment(connection.connection.info.backend_pid):
            for number in numbers:
                bound.enqueue(number, 0.002)
                answered.append(number)
        self.witness.say("committed", answered)
        self.witness.say("crash")
        self._rest(step)
        self.server.primary.start()

    def _backend_killed(self, step: Step) -> None:
        # The postmaster ends all others, and recovers.
        if rows := self.server.ask(f"SELECT pid FROM {CLIENTS} ORDER BY pid"):
            os.kill(rows[int(step.chance * len(rows))][0], signal.SIGKILL)
        self.witness.say("crash")
        time.sleep(0.2)  # the postmaster has to notice before the server is asked whether it is back

    def _stopped_immediately(self, step: Step) -> None:
        self.server.primary.stop("immediate")
        self.witness.say("crash")
        self._rest(step)
        self.server.primary.start()

    def _restarted(self, step: Step) -> None:
        self.server.restart()

    def _disk_full(self, step: Step) -> None:
        end = time.monotonic() + step.seconds
        try:
            while time.monotonic() < end and not self.over.is_set():
                self.server.disk.fill()  # again: PostgreSQL gives room back as well
                if step.chance < 0.5:  # another file of the WAL: where there is no room for one PostgreSQL ends itself
                    self.server.ask("SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'soak', '')")
                time.sleep(0.1)
        finally:
            self.server.disk.clear()
            # Where there was no room for the WAL, PostgreSQL has crashed meanwhile.
            self.witness.say("crash")

    def _connections_exhausted(self, step: Step) -> None:
        taken: list[psycopg.Connection[Any]] = []
        end = time.monotonic() + step.seconds
        while time.monotonic() < end and not self.over.is_set():
            try:
                taken.append(self.server.connect("postgres", seconds=2))
            except psycopg.Error:
                # All are taken. Some of the sessions that work end, so that they have to come back.
                for one in taken[:1]:
                    with suppress(psycopg.Error):
                        one.execute(f"SELECT pg_terminate_backend(pid) FROM {CLIENTS} ORDER BY random() LIMIT 2")
                time.sleep(0.05)
        for one in taken:
            one.close()

    def _statement_timeout(self, step: Step) -> None:
        value = TIMEOUTS[int(step.chance * len(TIMEOUTS))]
        self.tell(f"       statement_timeout = {value} ms")
        with self.server.setting("statement_timeout", str(value)):
            self._rest(step)

    def _backends_terminated(self, step: Step) -> None:
        for _ in range(3):
            self.server.terminate_backends()
            self.over.wait(0.3)

    def _tables_locked(self, step: Step) -> None:
        table = TABLES[int(step.chance * len(TABLES))]
        self.tell(f"       LOCK TABLE {table}")
        with self.server.holding("SET lock_timeout = '5s'", f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"):
            self._rest(step)

    def _snapshot_held(self, step: Step) -> None:
        with self.server.holding("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"):
            self._rest(step)

    def _transaction_held_open(self, step: Step) -> None:
        with self.server.holding("SELECT pg_current_xact_id()"):
            self._rest(step)

    def _read_only(self, step: Step) -> None:
        with self.server.setting("default_transaction_read_only", "on"):
            self._rest(step)

    # Of the world

    def _clean_failover(self, step: Step) -> None:
        with self.server.standby() as node:
            self.server.hand_over(node)

    def _lossy_failover(self, step: Step) -> None:
        with self.server.standby() as node:
            known = self.server.cut_off(node)
            self._rest(step)
            self.server.primary.stop("immediate")
            self.witness.say("failover", known, time.monotonic_ns())
            self.server.take_over(node)

    def _step_clock(self, direction: int, step: Step) -> None:
        seconds = direction * (STEP[0] + step.chance * (STEP[1] - STEP[0]))
        self.tell(f"       by {seconds:.1f} s")
        self.witness.say("stepped", round(seconds * SECOND))
        self.clock.step(seconds)

    _clock_forward = partialmethod(_step_clock, 1)
    _clock_back = partialmethod(_step_clock, -1)

    def _statements_cancelled(self, step: Step) -> None:
        end, count = time.monotonic() + step.seconds, 0
        running = f"{CLIENTS} AND state = 'active' ORDER BY random() LIMIT 1"
        while time.monotonic() < end and not self.over.wait(0.05):
            count += len(self.server.ask(f"SELECT pg_cancel_backend(pid) FROM {running}"))
        self.witness.say("cancelled", count)

    def _queue_paused(self, step: Step) -> None:
        if not self._pause(paused=True):
            return
        self.witness.say("paused", PAUSED)
        self._rest(step)
        self.witness.say("resumed", PAUSED)
        if not self._pause(paused=False):
            self.trouble.append(f"the queue {PAUSED} could not be resumed")

    def _second_server_away(self, step: Step) -> None:
        self.far.stop("immediate")
        self._rest(step)
        self.far.start()

    def _pause(self, *, paused: bool) -> bool:
        """Pause the queue, or resume it, however long a fault of the server is in the way."""
        for _ in range(2 * TRIES):
            try:
                Queue(PAUSED).pause(paused)
                return True
            except (Error, LeaseQueueError):
                connection.close()
                time.sleep(0.5)
        return False

    # Of the crew

    def _victim(self, step: Step) -> int | None:
        pids = self.crew.pids(step.role)
        return pids[int(step.chance * len(pids))] if pids else None

    def _burden(self, step: Step) -> None:
        """Give the workers jobs that outlive their leases before one of them is met by a fault."""
        if step.role not in WORKERS:
            return
        queue = _queue(step)
        long: tuple[Any, ...] = (1, "plain", tasks.work, LONG, True)
        burdens = [(LONG / 10, LONG_JOBS, long)]
        if step.fault == "worker stopped":
            # The others have room for what it loses, and do it while it goes on.
            burdens = [(STEP_TAKES / 4, STEPPING, (1, DURABLE, tasks.durable, [("plain", STEP_TAKES)] * STEPS))]
            burdens += [(0.0, 1, (SHORT_JOBS, "plain", tasks.work, SHORT))]
        for seconds, times, jobs in burdens:
            connection.close()  # it may be one that another fault has ended
            with suppress(Error):
                # One after the other: of what comes at once, the first worker that hears of it would take all.
                for _ in range(times):
                    self._enqueue(queue, *jobs)
            self.over.wait(seconds)

    def _back(self, step: Step) -> None:
        self.crew.wait_running(step.role)
        self.witness.say("back", step.fault, step.role)

    def _killed(self, step: Step) -> None:
        self._burden(step)
        if (pid := self._victim(step)) is not None:
            self.crew.members[step.role].due = time.monotonic() + step.seconds
            self.crew.kill(step.role, pid, step.fault)
        self._rest(step)
        self._back(step)

    def _stopped(self, step: Step) -> None:
        self._burden(step)
        if (pid := self._victim(step)) is None:
            return
        self.witness.say("stop", pid, step.fault)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self._rest(step)
        # Said before: its threads may take their next step before this one does.
        self.witness.say("cont", pid, step.fault)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._back(step)

    def _through(self, cut_off: Callable[[Proxy], None], step: Step) -> None:
        self._burden(step)
        cut_off(self.proxies[step.role])
        self._rest(step)
        self.proxies[step.role].heal()
        self._back(step)

    _hung = partialmethod(_through, Proxy.hang)
    _refused = partialmethod(_through, Proxy.refuse)

    def _cut(self, step: Step) -> None:
        self.proxies[step.role].cut()
        self._back(step)

    def _asked_to_end(self, step: Step) -> None:
        member = self.crew.members[step.role]
        starts = member.starts
        member.process.terminate()
        if not self.crew.wait_ended(step.role, starts):
            self.trouble.append(f"{step.role} was asked to end and did not ({step})")
            for pid in self.crew.pids(step.role):
                self.crew.kill(step.role, pid, step.fault)
        self._back(step)

    # Of tasks

    def _through_others(self, step: Step, cause: str) -> None:
        """Bring the jobs that do it, however long a fault of the server is in the way."""
        bring = self._strike if cause == "strike" else self._harm
        for tries in range(TRIES, -1, -1):
            connection.close()  # it may be one that another fault has ended
            try:
                bring(step, cause)
                return
            except (Error, LeaseQueueError) as error:
                if not tries or self.over.wait(0.5):
                    raise psycopg.Error(f"{error}") from error

    def _harm(self, step: Step, cause: str) -> None:
        queue = _queue(step)
        self._enqueue(queue, 1, "poison", tasks.harms, cause, ATTEMPTS, max_attempts=ATTEMPTS)
        self._enqueue(queue, HARMFUL - 1, "plain", tasks.harms, cause, 1)
        if step.role:
            self.over.wait(1.0)
            self._asked_to_end(step)
        else:
            self._rest(step)

    def _strike(self, step: Step, cause: str) -> None:
        """Have processes killed by the jobs of a workflow: before, while and after their end is written down."""
        queue, dice = _queue(step), random.Random(step.chance)
        *members, last = numbers = self._tried(STRIKES + 1, queue, "node")
        self.witness.say("after", [[last, members, False]])
        strikes, joins = tasks.strikes.using(queue_name=queue), tasks.joins.using(queue_name=queue)
        group = [strikes.si(number, dice.uniform(0, STRIKE)) for number in members]
        chord(group, joins.s(last, members)).enqueue()
        self.witness.say("committed", numbers)
        self.witness.say("workflow", numbers)
        self._rest(step)

    def _tried(self, count: int, queue: str, mode: str) -> list[int]:
        numbers = list(itertools.islice(self._numbers, count))
        self.witness.say("try", [[number, queue, mode] for number in numbers])
        return numbers

    def _enqueue(self, queue: str, count: int, mode: str, task: Any, *args: Any, **options: Any) -> None:
        numbers = self._tried(count, queue, mode)
        task.using(queue_name=queue, **options).enqueue_many([(number, *args) for number in numbers])
        self.witness.say("committed", numbers)


def _queue(step: Step) -> str:
    return "sure" if step.chance < 0.5 else "swift"


#: Seconds between two looks, and the part of what is found that is healed each time: the rest stays dead for a while.
HEALING, PART = 1.0, 0.3

DOOMED = """
SELECT q.name, d.seq, (j.data::jsonb #>> '{args,0}')::bigint FROM leasequeue_deadletter d
JOIN leasequeue_job j USING (seq) JOIN leasequeue_queue q ON q.id = d.queue_id WHERE d.in_place AND j.name = %s
"""


class Healer(threading.Thread):
    """Finds dead letters of ``doomed``, mends what was wrong, and brings them back; those of other tasks stay dead."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], witness: Witness, seed: int) -> None:
        super().__init__(name="healer", daemon=True)
        self._connect, self._witness = connect, witness
        self._dice = random.Random(f"{seed}/healer")
        self.over = threading.Event()

    def run(self) -> None:
        tasks.healed(0).parent.mkdir()
        while not self.over.wait(HEALING):
            try:
                with self._connect() as connection:
                    self._heal(connection)
            except (psycopg.Error, LeaseQueueError) as error:
                logger.info("%s", " ".join(str(error).split())[:200])

    def _heal(self, connection: psycopg.Connection[Any]) -> None:
        for queue, seq, number in connection.execute(DOOMED, [tasks.doomed.module_path]).fetchall():
            if self._dice.random() < PART:
                tasks.healed(number).touch()
                if ConnectionExecutor(connection).run(engine.redrive(queue, [seq]))[0].state == "ready":
                    self._witness.say("healed", [number])
