"""The queues that a worker claims from, and the statements that read them every few seconds.

A worker of tasks without the option ``queues`` takes the queues that hold tasks: other queues have their own consumers.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from ..engine import arrays
from ..engine.leases.claim import MAX_QUEUES as MAX_CLAIM_QUEUES
from ..engine.operation import Statements, operation
from ..engine.queues import routing
from ..engine.queues.presets import of_backends
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from .link import DatabaseLink
from .state import WorkerState

#: Seconds between readings of the list of queues.
REREAD = 5.0
#: Queues of a worker that takes all queues, and queues that one reading searches for tasks.
MAX_QUEUES, MAX_SEARCHED = 10_000, 1_000


class QueueNames:
    """The queues of the options, or all fitting queues of the project in rotation."""

    def __init__(self, state: WorkerState, link: DatabaseLink) -> None:
        self._state = state
        self._link = link
        self.read_at = -math.inf
        #: Whether notifications of new queues arrived when the list was read.
        self._notified = False
        self._rotation = 0
        #: The queues that the settings declare for tasks; ``None``: the worker takes any queue.
        self._declared: set[str] | None = None
        if state.runs_tasks and state.options.all_queues:
            self._declared = {item.name for item in of_backends() if item.project == state.options.project}
        self.names: list[str] = []
        self.ids: list[int] = []

    def refresh(self) -> bool:
        """Read the list again if it is some seconds old or may miss a queue made without a notification.

        Return whether it was read.
        """
        now = time.monotonic()
        if now - self.read_at < REREAD and not self.unheard:
            return False
        # Before the list is read: a notification meanwhile lets the next call read again.
        self.read_at, self._notified = now, self._state.notifications_arrive()
        options = self._state.options
        wanted = None if options.all_queues else list(dict.fromkeys(options.queues))
        found = self._link.run(read_queues(options.project, wanted, self._declared))
        # A worker of several databases has the same names for each: make only this database's queues.
        missing = [
            name
            for name in wanted or ()
            if name not in found and routing.alias_of(options.project, name) == options.database
        ]
        if missing:
            self._link.run(make_queues(options.project, missing, options.database))
            found = self._link.run(read_queues(options.project, wanted, self._declared))
        self.names = [name for name in (wanted or found) if name in found]
        self.ids = [found[name] for name in self.names]
        self._state.queues = self.names
        return True

    @property
    def unheard(self) -> bool:
        """Whether the list is older than the notifications: it misses queues made in between."""
        return not self._notified and self._state.notifications_arrive()

    def chunks(self) -> list[list[str]]:
        """Return the names for each claim, at most 100; all queues of a project take turns at being first."""
        names = self.names
        if self._state.options.all_queues and len(names) > 1:
            self._rotation = (self._rotation + 1) % len(names)
            names = names[self._rotation :] + names[: self._rotation]
        return [names[at : at + MAX_CLAIM_QUEUES] for at in range(0, len(names), MAX_CLAIM_QUEUES)]


@operation
def read_queues(
    project: str, names: Sequence[str] | None, declared: Collection[str] | None = None
) -> Statements[dict[str, int]]:
    """Read the ids of queues by name; ``names=None``: all of the project. Unknown names are left out.

    ``declared``: only queues that hold tasks; these empty ones count as well, the settings declare them for tasks.
    """
    wanted = None if names is None else arrays.texts(names)
    rows = yield "worker_queues", {"project": project, "names": wanted, "size": MAX_QUEUES}
    if declared is None:
        return {name: queue_id for queue_id, name, _ in rows}
    made_for_tasks = [queue_id for queue_id, name, holds in rows if not holds and name in declared]
    others = [queue_id for queue_id, name, holds in rows if not holds and name not in declared]
    searched = made_for_tasks + random.sample(others, min(len(others), MAX_SEARCHED))
    hold: set[int] = set()
    if searched:
        given = {"queues": arrays.integers(searched), "declared": arrays.integers(made_for_tasks)}
        hold = {queue_id for (queue_id,) in (yield "worker_tasks", given)}
    return {name: queue_id for queue_id, name, holds in rows if holds or queue_id in hold}


@operation
def make_queues(project: str, names: Sequence[str], using: str | None = None) -> Statements[None]:
    """Make missing queues, as their first job would; without ``AUTO_CREATE`` only the declared ones."""
    for name in names:
        with suppress(QueueNotFound):
            yield from make_declared(project, name, using=using)
