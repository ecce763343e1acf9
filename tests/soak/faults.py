"""The faults: what each name of the plan does."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any

import psycopg
from django.db import Error, connection

from django_leasequeue import Queue
from django_leasequeue.devdb import Server
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.tasks import chord
from tests.support.proxy import Proxy

from . import flow_tasks, tasks
from .clock import Clock
from .crew import Crew
from .durable_tasks import durable
from .evidence import SECOND, Witness
from .plan import WORKERS, Step
from .runs import DURABLE
from .server import SoakServer

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
#: How many jobs of a harmful kind come at once; the first does harm for ever, the others at their first delivery.
HARMFUL = 3
#: How often a poisonous one is tried.
ATTEMPTS = 3
#: How often it is tried to bring them, every half a second.
TRIES = 40
#: How many long jobs come before a fault of a worker, and how many seconds they take: longer than a lease.
LONG_JOBS, LONG = 10, 7.0
#: How many short ones come right before a worker is stopped, so that it holds some that it has not started; seconds.
SHORT_JOBS, SHORT = 60, 0.05
#: How many jobs of several steps come before that, so that some are within a step; seconds of each step.
STEPPING, STEP_TAKES = 8, 0.6
#: How many jobs of a workflow each kill their process, and at most how many seconds after they began.
STRIKES, STRIKE = 6, 0.04
#: Numbers of the jobs that faults bring.
NUMBERS = 99 * 10**9

#: How many are enqueued right before the server is killed.
LAST_JOBS = 3

Tell = Callable[[str], None]


class Faults:
    """Makes faults, one track after its plan."""

    def __init__(
        self,
        server: SoakServer,
        far: Server,
        clock: Clock,
        crew: Crew,
        proxies: dict[str, Proxy],
        witness: Witness,
        tell: Tell,
    ) -> None:
        self._server = server
        self._far = far
        self._clock = clock
        self._crew = crew
        self._proxies = proxies
        self._witness = witness
        self._tell = tell
        self._numbers = itertools.count(NUMBERS)
        #: Set when the run is over before its time.
        self.over = threading.Event()
        #: What could not be done, or did not do what it has to.
        self.trouble: list[str] = []

    def run(self, steps: Iterable[Step], begin: float) -> None:
        """Make the faults of a track at their times, seconds after ``begin`` (monotonic), one after the other."""
        for step in steps:
            if self.over.wait(max(0.0, begin + step.at - time.monotonic())):
                return
            of_server = not step.role and not step.fault.startswith("task") and step.fault not in BESIDE
            with self._server.busy if of_server else nullcontext():
                self._make(step)
                if of_server:
                    self._server.wait()
                    self._witness.say("back", step.fault, "")

    def _make(self, step: Step) -> None:
        self._tell(f"fault  {step}")
        self._witness.say("fault", step.number, step.fault, "begin", [step.role] if step.role else [])
        try:
            self._do(step)
        except (psycopg.Error, Error, OSError) as error:
            # Another fault was in the way: the server was away, or had no connection for this one.
            self._tell(f"       {step.fault}: {' '.join(str(error).split())[:100]}")
        self._witness.say("fault", step.number, step.fault, "end", [])

    def _do(self, step: Step) -> None:
        what = step.fault.partition(" ")[2]
        if step.fault.startswith("task: "):
            self._through_others(step, what)
        elif step.role:
            name = step.fault.removeprefix("web ").partition(" ")[2].replace(" ", "_")
            getattr(self, f"_{name}")(step)
        else:
            getattr(self, f"_{step.fault.replace(' ', '_')}")(step)

    def _rest(self, step: Step) -> None:
        self.over.wait(step.seconds)

    # Of the server

    def _postmaster_killed(self, step: Step) -> None:
        # What is answered in the last moment has only itself to be on disk by: no later commit has flushed it.
        numbers = [next(self._numbers) for _ in range(LAST_JOBS)]
        self._witness.say("try", [[number, "sure", "plain"] for number in numbers])
        connection.close()
        connection.ensure_connection()
        bound = tasks.work.using(queue_name="sure")
        answered: list[int] = []
        with suppress(Error, LeaseQueueError), self._server.last_moment(connection.connection.info.backend_pid):
            for number in numbers:
                bound.enqueue(number, 0.002)
                answered.append(number)
        self._witness.say("committed", answered)
        self._witness.say("crash")
        self._rest(step)
        self._server.start()

    def _backend_killed(self, step: Step) -> None:
        self._server.kill_backend(step.chance)
        self._witness.say("crash")
        time.sleep(0.2)  # the postmaster has to notice before the server is asked whether it is back

    def _stopped_immediately(self, step: Step) -> None:
        self._server.stop()
        self._witness.say("crash")
        self._rest(step)
        self._server.start()

    def _restarted(self, step: Step) -> None:
        self._server.restart()

    def _disk_full(self, step: Step) -> None:
        end = time.monotonic() + step.seconds
        try:
            while time.monotonic() < end and not self.over.is_set():
                self._server.disk.fill()  # again: PostgreSQL gives room back as well
                if step.chance < 0.5:
                    self._server.spend_wal()
                time.sleep(0.1)
        finally:
            self._server.disk.clear()
            # Where there was no room for the WAL, PostgreSQL has crashed meanwhile.
            self._witness.say("crash")

    def _connections_exhausted(self, step: Step) -> None:
        self._server.use_up_connections(self.over, step.seconds)

    def _statement_timeout(self, step: Step) -> None:
        value = TIMEOUTS[int(step.chance * len(TIMEOUTS))]
        self._tell(f"       statement_timeout = {value} ms")
        with self._server.setting("statement_timeout", str(value)):
            self._rest(step)

    def _backends_terminated(self, step: Step) -> None:
        for _ in range(3):
            self._server.terminate_backends()
            self.over.wait(0.3)

    def _tables_locked(self, step: Step) -> None:
        table = TABLES[int(step.chance * len(TABLES))]
        self._tell(f"       LOCK TABLE {table}")
        with self._server.holding("SET lock_timeout = '5s'", f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"):
            self._rest(step)

    def _snapshot_held(self, step: Step) -> None:
        with self._server.holding("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"):
            self._rest(step)

    def _transaction_held_open(self, step: Step) -> None:
        with self._server.holding("SELECT pg_current_xact_id()"):
            self._rest(step)

    def _read_only(self, step: Step) -> None:
        with self._server.setting("default_transaction_read_only", "on"):
            self._rest(step)

    # Of the world

    def _clean_failover(self, step: Step) -> None:
        with self._server.standby() as node:
            self._server.hand_over(node)

    def _lossy_failover(self, step: Step) -> None:
        with self._server.standby() as node:
            known = self._server.cut_off(node)
            self._rest(step)
            self._server.stop()
            self._witness.say("failover", known, time.monotonic_ns())
            self._server.take_over(node)

    def _clock_forward(self, step: Step) -> None:
        self._step_clock(STEP[0] + step.chance * (STEP[1] - STEP[0]))

    def _clock_back(self, step: Step) -> None:
        self._step_clock(-STEP[0] - step.chance * (STEP[1] - STEP[0]))

    def _step_clock(self, seconds: float) -> None:
        self._tell(f"       by {seconds:.1f} s")
        self._witness.say("stepped", round(seconds * SECOND))
        self._clock.step(seconds)

    def _statements_cancelled(self, step: Step) -> None:
        self._witness.say("cancelled", self._server.cancel_statements(self.over, step.seconds))

    def _queue_paused(self, step: Step) -> None:
        if not self._pause(paused=True):
            return
        self._witness.say("paused", PAUSED)
        self._rest(step)
        self._witness.say("resumed", PAUSED)
        if not self._pause(paused=False):
            self.trouble.append(f"the queue {PAUSED} could not be resumed")

    def _second_server_away(self, step: Step) -> None:
        self._far.stop("immediate")
        self._rest(step)
        self._far.start()

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
        pids = self._crew.pids(step.role)
        return pids[int(step.chance * len(pids))] if pids else None

    def _burden(self, step: Step) -> None:
        """Give the workers long jobs before one of them is met by a fault: these outlive their leases, and go on."""
        if step.role not in WORKERS:
            return
        connection.close()  # it may be one that another fault has ended
        queue = "sure" if step.chance < 0.5 else "swift"
        self._bring(queue, LONG_JOBS, "plain", tasks.work, LONG, True)
        self.over.wait(LONG / 10)
        if step.fault == "worker stopped":
            self._bring(queue, STEPPING, DURABLE, durable, [("plain", STEP_TAKES)] * 6)
            self.over.wait(STEP_TAKES)
            self._bring(queue, SHORT_JOBS, "plain", tasks.work, SHORT)

    def _bring(self, queue: str, count: int, mode: str, task: Any, *args: Any) -> None:
        numbers = [next(self._numbers) for _ in range(count)]
        self._witness.say("try", [[number, queue, mode] for number in numbers])
        with suppress(Error):
            task.using(queue_name=queue).enqueue_many([(number, *args) for number in numbers])
            self._witness.say("committed", numbers)
            return
        connection.close()

    def _back(self, step: Step) -> None:
        self._crew.wait_running(step.role)
        self._witness.say("back", step.fault, step.role)

    def _killed(self, step: Step) -> None:
        self._burden(step)
        pid = self._victim(step)
        if pid is not None:
            self._crew.delay(step.role, step.seconds)
            self._crew.kill(step.role, pid, step.fault)
        self._rest(step)
        self._back(step)

    def _stopped(self, step: Step) -> None:
        self._burden(step)
        pid = self._victim(step)
        if pid is None:
            return
        self._witness.say("stop", pid, step.fault)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self._rest(step)
        # Said before: its threads may take their next step before this one does.
        self._witness.say("cont", pid, step.fault)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._back(step)

    def _hung(self, step: Step) -> None:
        self._through(step, self._proxies[step.role].hang)

    def _refused(self, step: Step) -> None:
        self._through(step, self._proxies[step.role].refuse)

    def _through(self, step: Step, cut_off: Callable[[], None]) -> None:
        self._burden(step)
        cut_off()
        self._rest(step)
        self._proxies[step.role].heal()
        self._back(step)

    def _cut(self, step: Step) -> None:
        self._proxies[step.role].cut()
        self._back(step)

    def _asked_to_end(self, step: Step) -> None:
        starts = self._crew.members[step.role].starts
        self._crew.ask_to_end(step.role)
        if not self._crew.wait_ended(step.role, starts):
            self.trouble.append(f"{step.role} was asked to end and did not ({step})")
            for pid in self._crew.pids(step.role):
                self._crew.kill(step.role, pid, step.fault)
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
        queue = "sure" if step.chance < 0.5 else "swift"
        poison = next(self._numbers)
        attempts: Any = {"max_attempts": ATTEMPTS}
        self._enqueue([[poison, queue, "poison"]], cause, ATTEMPTS, **attempts)
        innocent = [next(self._numbers) for _ in range(HARMFUL - 1)]
        self._enqueue([[number, queue, "plain"] for number in innocent], cause, 1)
        if step.role:
            self.over.wait(1.0)
            self._asked_to_end(step)
        else:
            self._rest(step)

    def _strike(self, step: Step, cause: str) -> None:
        """Have processes killed by the jobs of a workflow: before, while and after their end is written down."""
        queue, dice = "sure" if step.chance < 0.5 else "swift", random.Random(step.chance)
        *members, last = numbers = [next(self._numbers) for _ in range(STRIKES + 1)]
        self._witness.say("try", [[number, queue, "node"] for number in numbers])
        self._witness.say("after", [[last, members, False]])
        strikes, joins = flow_tasks.strikes.using(queue_name=queue), flow_tasks.joins.using(queue_name=queue)
        group = [strikes.si(number, dice.uniform(0, STRIKE)) for number in members]
        chord(group, joins.s(last, members)).enqueue()
        self._witness.say("committed", numbers)
        self._witness.say("workflow", numbers)
        self._rest(step)

    def _enqueue(self, named: list[list[Any]], cause: str, times: int, **options: Any) -> None:
        task = tasks.harms.using(queue_name=named[0][1], **options)
        self._witness.say("try", named)
        task.enqueue_many([(number, cause, times) for number, *_ in named])
        self._witness.say("committed", [number for number, *_ in named])
