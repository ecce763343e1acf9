"""State that the parts of a worker share, and the figures that they count."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connections

from ..conf.options import WorkerOptions
from ..engine import LeasedJob
from ..engine.limits import MAX_BATCH
from ..engine.outage import Outage, advice
from ..notify.alarms import Alarm
from .buffer import JobBuffer
from .control import Handler, JobControl
from .journal import Journal
from .leases import Leases
from .link import LinkClosed
from .run import STOPPED, UNSTARTED, Entry, Slot, Timekeeper

logger = logging.getLogger("django_leasequeue.worker")

#: (whether a worker is well, figures)
Report = tuple[bool, dict[str, Any]]


class WorkerState:
    """The worker's identity, what it holds, and what is to become of it. Made once, passed to every part."""

    def __init__(self, options: WorkerOptions, node: str, handler: Handler) -> None:
        self.options = options
        self.node = node
        self.handler = handler
        self.figures = WorkerFigures()
        self.started_at = time.monotonic()
        #: What the worker's connections say together.
        self.outage = Outage(
            logger, "The database is not reached, trying again", "The database is reached again", node=node
        )
        #: Every job whose lease is ours, from the claim to the moment its end is sent. Who takes a job out answers for
        #: it: what comes later (a result after the lease was lost or given back) finds it gone and leaves it alone.
        self.held: dict[int, LeasedJob] = {}
        self.leases = Leases(self.held)
        self.buffer = JobBuffer()
        #: Ends of runs that the database does not know yet, and what wakes the thread that settles them.
        self.ended: deque[Entry] = deque()
        self.acknowledger = Alarm()
        #: What runs: in threads, and in coroutines with the time of the start (monotonic; changed by their loop only).
        self.slots: list[Slot] = []
        self.coroutines: dict[asyncio.Task[None], tuple[JobControl, float]] = {}
        #: While a suspect is about to run, or runs: nothing may start but ``alone``.
        self.isolating = False
        self.alone: LeasedJob | None = None
        places = options.concurrency + options.coroutines
        self.journal = Journal(node, options, places, 2 * (2 * options.prefetch + places + MAX_BATCH))
        #: How many ends are on their way to the database.
        self.settling = 0
        self._lock = threading.Lock()
        #: Queues that gave jobs of late, and when (monotonic): the keeper raises their floors.
        self.drained: dict[int, float] = {}
        #: The shortest lease seen, in seconds; ringing the keeper makes it keep pace.
        self.shortest_lease = math.inf
        self.keeper = Alarm()
        #: A retry was given a time: a thread that sleeps until something is due has to look again.
        self.due_changed = False
        #: How often the listener heard that leases of a queue were taken from their workers, by queue id.
        self.taken: Counter[int] = Counter()
        self.hears: Callable[[], bool] = bool
        self.main = Alarm()
        self.timekeeper = Timekeeper(self.main, self.ask_recycle)
        self.draining = threading.Event()
        #: Burst or ``max_jobs``: all is done.
        self.finished = False
        #: Why to stop, from signals and operators; "" while there is no reason.
        self.stop_asked = ""
        #: The second signal: do not wait for running jobs.
        self.hurry = False
        #: The process has to go: a job does not end, or a part of the worker broke.
        self.recycle = ""
        self.broken: BaseException | None = None
        self.status = "running"  # or draining: for its row
        self.queues: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing is held and the database knows of every end."""
        return not (self.held or self.settling)

    def settle(self, change: int) -> None:
        """Note that so many ends are on their way to the database, or (negative) have arrived."""
        with self._lock:
            self.settling += change

    def running(self) -> list[tuple[JobControl, float]]:
        shown = [(slot.control, slot.since) for slot in self.slots]
        in_threads = [(control, since) for control, since in shown if control is not None]
        return in_threads + list(self.coroutines.copy().values())

    def admits(self, job: LeasedJob) -> bool:
        """Return whether a job may start now, after it was shown among the running ones."""
        return not self.isolating or self.alone is job

    def give_back(self, jobs: Sequence[LeasedJob], *, unstarted: bool, delay_ms: int = 0) -> None:
        """Release jobs that are held, without a failure; the delivery of those that never ran does not count."""
        kind = UNSTARTED if unstarted else STOPPED
        self.ended.extend([(kind, job, None, None, delay_ms) for job in jobs])
        self.acknowledger.wake()

    def finish(self) -> None:
        self.finished = True
        self.main.wake()

    def ask_stop(self, why: str) -> None:
        """Ask for a graceful stop. Safe in a signal handler."""
        self.stop_asked = self.stop_asked or why
        self.main.wake()

    def ask_hurry(self, why: str) -> None:
        """Ask for a stop that does not wait for running jobs. Safe in a signal handler."""
        self.hurry = True
        self.ask_stop(why)

    def ask_recycle(self, why: str) -> None:
        self.recycle = self.recycle or why
        self.main.wake()

    def start_thread(self, part: str, body: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self.attend, args=(part, body), name=f"leasequeue-{part}", daemon=True)
        thread.start()
        return thread

    def attend(self, part: str, body: Callable[[], None]) -> None:
        """Run the body of a thread; the worker hears of the error by which it ends."""
        try:
            body()
        except LinkClosed:
            pass
        except BaseException as error:  # whatever it is, the worker must know
            if (told := advice(error)) is not None:
                logger.critical(told)
            else:
                logger.critical("Part of the worker broke", exc_info=error, extra={"part": part, "node": self.node})
            # The worker stops and gives its leases back.
            self.broken = self.broken or error
            self.main.wake()
        finally:
            connections.close_all()  # those that jobs and receivers of signals opened in this thread


_lock = threading.Lock()


@dataclass(slots=True)
class WorkerFigures:
    """Counts of jobs since the start: what became of them, as the database has accepted it.

    Failed for good or dead; retried: failed, to be tried again; returned: not started, or stopped with the worker;
    suspended: sleeping, or waiting for an event; lost: the lease was gone before the job was settled.
    """

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    suspended: int = 0
    lost: int = 0

    def add(self, **counts: int) -> None:
        with _lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
