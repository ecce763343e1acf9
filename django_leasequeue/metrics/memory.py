"""The last look of this process at each database: for some seconds it answers, and the next look goes on from it."""

from __future__ import annotations

import time

from .. import conf, engine
from ..conf.process import Shared, when_forgetting
from .figures import DatabaseLook, LogCounts, look


class LastLook:
    """The last look at one database. Used from any thread and event loop."""

    def __init__(self) -> None:
        self._look: DatabaseLook | None = None
        self._at = float("-inf")

    @property
    def log(self) -> LogCounts | None:
        """The counts of the lease log to go on from."""
        return None if self._look is None else self._look.log

    def recall(self) -> DatabaseLook | None:
        """Return the last look, unless it is older than ``LEASEQUEUE["METRICS"]["CACHE_SECONDS"]``."""
        fresh = time.monotonic() - self._at < conf.settings.METRICS.CACHE_SECONDS
        return self._look if fresh else None

    def keep(self, found: DatabaseLook) -> DatabaseLook:
        """Keep a look, and return it.

        Of two that were taken at once the one that counted less of an hour keeps the other's counts: a counter never
        goes down within an hour.
        """
        last = self.log
        if (
            last is not None
            and last.since == found.log.since
            and sum(last.events.values()) > sum(found.log.events.values())
        ):
            found = found._replace(log=last)
        self._look, self._at = found, time.monotonic()
        return found


_looks: Shared[str, LastLook] = Shared()
when_forgetting(_looks.clear)


def last_look(using: str) -> LastLook:
    """Return what this process knows of a database."""
    return _looks.get(using, lambda _: LastLook())


def look_at(using: str) -> DatabaseLook:
    """Return a look at a database that is no older than ``CACHE_SECONDS``, on Django's connection of this thread."""
    memory = last_look(using)
    return memory.recall() or memory.keep(engine.run(look(memory.log, conf.settings.METRICS.MAX_QUEUES), using=using))
