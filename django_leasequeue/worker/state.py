"""State that the parts of a worker share."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable

from ..conf.options import WorkerOptions
from ..engine import LeasedJob
from ..engine.advice import advice
from ..engine.outage import Outage
from .figures import WorkerFigures
from .handler import Handler
from .leases import Leases
from .wakeup import WakeUp

logger = logging.getLogger("django_leasequeue.worker")


class WorkerState:
    """The worker's identity, what it holds, and what is to become of it. Made once, passed to every part.

    Args:
        options: the worker's options.
        node: its name.
        handler: what runs the jobs.
    """

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
        #: it: whoever comes later (a result after the lease was lost or given back) finds it gone and leaves it alone.
        self.held: dict[int, LeasedJob] = {}
        self.leases = Leases(self.held)
        #: How many ends are being told to the database now.
        self._settling = 0
        self._lock = threading.Lock()
        #: Queues that gave jobs of late, and when (monotonic): the keeper raises their floors.
        self.drained: dict[int, float] = {}
        #: The shortest lease seen, in seconds; ringing the keeper makes it keep pace.
        self.shortest_lease = math.inf
        self.keeper = WakeUp()
        #: A retry was given a time: whoever sleeps until something is due has to look again.
        self.due_changed = False
        #: How often the listener heard that leases of a queue were taken from their workers, by queue id.
        self.taken: Counter[int] = Counter()
        #: Whether the listener hears at all.
        self.hears: Callable[[], bool] = bool
        #: Wakes the main thread.
        self.main = WakeUp()
        #: No more claims.
        self.draining = threading.Event()
        #: Burst or ``max_jobs``: all is done.
        self.finished = False
        #: Why to stop, from signals and operators; "" while nobody asked.
        self.stop_asked = ""
        #: The second signal: do not wait for running jobs.
        self.hurry = False
        #: The process has to go: a job does not end, or a part of the worker broke.
        self.recycle = ""
        self.broken: BaseException | None = None
        #: What the worker does, for its row: running, draining.
        self.word = "running"
        #: Names of the queues taken now.
        self.queues: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing is held and the database knows of every end."""
        return not self.held and not self._settling

    @property
    def told(self) -> bool:
        """Whether no end is being told just now."""
        return not self._settling

    def settling(self, change: int) -> None:
        """Note that so many ends are being told, or (negative) have been."""
        with self._lock:
            self._settling += change

    def finish(self) -> None:
        """Say that there is nothing left to do."""
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
        """Say that the process has to be replaced."""
        self.recycle = self.recycle or why
        self.main.wake()

    def start_thread(self, part: str, target: threading.Thread) -> None:
        """Start a thread of the worker."""
        target.daemon = True
        target.name = f"leasequeue-{part}"
        target.start()

    def broke(self, part: str, error: BaseException) -> None:
        """Note that a part of the worker ended by an error of its own: the worker stops and gives its leases back."""
        if (told := advice(error)) is not None:
            logger.critical(told)
        else:
            logger.critical("Part of the worker broke", exc_info=error, extra={"part": part, "node": self.node})
        self.broken = self.broken or error
        self.main.wake()
