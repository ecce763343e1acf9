"""``Queue``: the Python door to one queue."""

from __future__ import annotations

from . import engine
from .calls import call, twin
from .engine.operation import Steps, operation
from .engine.queues import QueueInfo, find, make
from .leasing import Leasing
from .looking import Looking
from .requesting import Requesting


class Queue(Requesting, Leasing, Looking):
    """A cheap handle of one queue: ``emails = Queue("emails", preset="jobqueue")``.

    It may be made at import time, kept for ever, and shared by threads and event loops. Each method has a twin whose
    name begins with ``a`` for async code; both do the same. Sync methods use Django's connection and are part of the
    caller's transaction; async ones use connections of their own.
    """

    @call
    @operation
    def create(self) -> Steps[bool]:
        """Make the queue unless it is there: as the settings declare it, else as this handle says.

        Returns:
            Whether it is new.
        """
        preset, options, _ = self.definition()
        return (yield from make(self.project, self.name, preset, options))

    acreate = twin(create)

    @call
    @operation
    def info(self) -> Steps[QueueInfo | None]:
        """Return the queue as it is in the database, ``None`` if it is not there."""
        return (yield from find(self.project, self.name))

    ainfo = twin(info)

    @call
    @operation
    def pause(self, paused: bool = True) -> Steps[None]:
        """Pause the queue (claims get nothing; all else goes on), or resume it with ``pause(False)``.

        Raises:
            QueueNotFound: there is no such queue.
        """
        yield from engine.pause(self.name, project=self.project, paused=paused).steps()

    apause = twin(pause)

    @call
    @operation
    def purge(self, *states: str) -> Steps[int]:
        """Remove all jobs of these states (ready and delayed ones by default), 1,000 with each statement.

        Returns:
            How many went.

        Raises:
            QueueNotFound, InvalidOption: there is no such queue or state.
        """
        gone = 0
        while True:
            some = yield from engine.purge(
                self.name, states=states or ("ready", "delayed"), project=self.project
            ).steps()
            gone += some
            if not some:
                return gone

    apurge = twin(purge)
