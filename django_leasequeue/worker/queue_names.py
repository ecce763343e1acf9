"""The queues that a worker claims from, and the statements that read them every few seconds.

By a pattern a worker of tasks takes the queues that hold tasks: other queues have their own consumers.
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
from .patterns import QueueChoice, like
from .state import WorkerState

#: Seconds between readings of the list of queues.
REREAD = 5.0
#: Queues of a worker that takes all queues, and queues that one reading searches for tasks.
MAX_QUEUES, MAX_SEARCHED = 10_000, 1_000


class QueueNames:
    """The queues of the options in their order; those of one pattern take turns."""

    def __init__(self, state: WorkerState, link: DatabaseLink) -> None:
        self._state = state
        self._link = link
        self.read_at = -math.inf
        #: Whether notifications of new queues arrived when the list was read.
        self._notified = False
        self._rotation = 0
        self._choice = QueueChoice.of(state.options.queues)
        #: The queues of each entry of the options, if there are patterns.
        self._groups: list[list[str]] = []
        #: The queues that the settings declare for tasks; ``None``: patterns take any queue.
        self._declared: set[str] | None = None
        if state.runs_tasks and self._choice.patterns:
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
        options, choice = self._state.options, self._choice
        found = self._link.run(read_queues(options.project, choice, self._declared))
        # A worker of several databases has the same names for each: make only this database's queues.
        missing = [
            name
            for name in choice.names
            if name not in found and routing.alias_of(options.project, name) == options.database
        ]
        if missing:
            self._link.run(make_queues(options.project, missing, options.database))
            found = self._link.run(read_queues(options.project, choice, self._declared))
        groups = choice.grouped(found)
        self._groups = groups if choice.patterns else []
        self.names = [name for group in groups for name in group]
        self.ids = [found[name] for name in self.names]
        self._state.queues = self.names
        return True

    @property
    def unheard(self) -> bool:
        """Whether the list is older than the notifications: it misses queues made in between."""
        return not self._notified and self._state.notifications_arrive()

    def chunks(self) -> list[list[str]]:
        """Return the names for each claim, at most 100; the queues of one pattern take turns at being its first."""
        names = self.names
        if self._groups and len(names) > 1:
            self._rotation += 1
            names = []
            for group in self._groups:
                at = self._rotation % len(group)
                names += group[at:] + group[:at]
        return [names[at : at + MAX_CLAIM_QUEUES] for at in range(0, len(names), MAX_CLAIM_QUEUES)]


@operation
def read_queues(
    project: str, choice: QueueChoice, declared: Collection[str] | None = None
) -> Statements[dict[str, int]]:
    """Read the ids of the chosen queues by name. Unknown names are left out.

    ``declared``: of patterns only queues that hold tasks; these empty ones too, the settings declare them for tasks.
    """
    wanted = {
        "names": arrays.texts(choice.names),
        "patterns": arrays.texts(map(like, choice.patterns)) if choice.patterns else None,
        "excluded": arrays.texts(map(like, choice.excluded)),
    }
    rows = yield "worker_queues", {"project": project, **wanted, "size": MAX_QUEUES}
    if declared is None:
        return {name: queue_id for queue_id, name, _ in rows}
    named = set(choice.names)
    rows = [(queue_id, name, holds or name in named) for queue_id, name, holds in rows]
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
