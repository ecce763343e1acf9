"""The queues that a worker claims from, read anew every few seconds."""

from __future__ import annotations

import math
import time

from ..engine.leases.claim import MAX_QUEUES as MAX_CLAIM_QUEUES
from ..engine.queues import routing
from .link import DatabaseLink, make_queues, read_queues
from .state import WorkerState

#: Seconds between readings of the list of queues.
REREAD = 5.0


class QueueNames:
    """The queues that are claimed from: as the options name them, or all of the project in turn."""

    def __init__(self, state: WorkerState, link: DatabaseLink) -> None:
        self._state = state
        self._link = link
        self.read_at = -math.inf
        #: Whether new queues were announced to us when the list was read.
        self._heard = False
        self._turn = 0
        self.names: list[str] = []
        self.ids: list[int] = []

    def refresh(self) -> None:
        """Read the list anew, if the last reading is some seconds old or a queue may have been made unheard since."""
        now = time.monotonic()
        if now - self.read_at < REREAD and not self.unheard:
            return
        # Before the list is read: what is announced meanwhile lets the next call read again.
        self.read_at, self._heard = now, self._state.hears()
        options = self._state.options
        wanted = None if options.all_queues else list(dict.fromkeys(options.queues))
        found = self._link.run(read_queues(options.project, wanted))
        # A worker of several databases has the same names for each: queues are made where they belong.
        missing = [
            name
            for name in wanted or ()
            if name not in found and routing.alias_of(options.project, name) == options.database
        ]
        if missing:
            self._link.run(make_queues(options.project, missing, options.database))
            found = self._link.run(read_queues(options.project, wanted))
        self.names = [name for name in (wanted or found) if name in found]
        self.ids = [found[name] for name in self.names]
        self._state.queues = self.names

    @property
    def unheard(self) -> bool:
        """Whether the list was read before announcements came: those of queues made in between never will."""
        return not self._heard and self._state.hears()

    def chunks(self) -> list[list[str]]:
        """Return the names for claims, at most 100 each; all queues of a project take turns at being first."""
        names = self.names
        if self._state.options.all_queues and len(names) > 1:
            self._turn = (self._turn + 1) % len(names)
            names = names[self._turn :] + names[: self._turn]
        return [names[at : at + MAX_CLAIM_QUEUES] for at in range(0, len(names), MAX_CLAIM_QUEUES)]
