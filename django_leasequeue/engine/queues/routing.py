"""Which database holds a queue: where it was moved to, ``LEASEQUEUE["ROUTER"]``, or one database for all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import psycopg
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections
from django.utils.module_loading import import_string

from ... import conf
from ...conf import process
from ...enums import DEAD_LETTER_SELF
from ...exceptions import InvalidOption
from ..outage import Outage

#: Seconds for which a process knows the moved queues, and after which it asks again while they cannot be read.
KNOWN, RETRY = 2.0, 10.0
#: Seconds from a move until every process knows of it.
SETTLED = 5 * KNOWN
#: Parameters of the statement that reads the moves.
ROUTES = {"size": 1_000, "after": SETTLED}


class Route(NamedTuple):
    """A moved queue: the database that takes its new jobs, the one that it left, whether jobs wait there still."""

    alias: str
    source: str
    draining: bool


class Routes:
    """A process's copy of the moved queues; read again from ``LEASEQUEUE["DATABASE"]`` when older than ``KNOWN``."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Route] = {}
        self._again_at = float("-inf")
        self._lock = threading.Lock()
        self._outage = Outage(
            logging.getLogger("django_leasequeue.engine"),
            "The moved queues cannot be read: those known before stay in force",
            "The moved queues are read again",
        )

    def of(self, project: str, queue: str) -> Route | None:
        """Return where a queue was moved to. While one thread reads the others go on with what is known."""
        if time.monotonic() >= self._again_at and self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()
        return self._known.get((project, queue))

    def _read(self) -> None:
        from ..pool import connect
        from ..runner import ConnectionExecutor

        try:
            with connect(conf.settings.DATABASE, patience=KNOWN, timeout=2) as connection:
                rows = ConnectionExecutor(connection).fetch("routes", ROUTES)
        except (Error, psycopg.Error) as error:
            self._again_at = time.monotonic() + RETRY
            self._outage.begins(self, error)
            return
        self._known = {(project, name): Route(*route[:3]) for project, name, *route in rows}
        self._again_at = time.monotonic() + KNOWN
        self._outage.ends(self)

    def forget(self) -> None:
        """Read them anew at the next question."""
        self._again_at = float("-inf")


_shared: process.Shared[str, Routes] = process.Shared()


def routes() -> Routes:
    """Return what this process knows of moved queues."""
    return _shared.get("routes", lambda _: Routes())


def check_alias(alias: str) -> None:
    """Raise ``ImproperlyConfigured`` unless an alias of ``DATABASES`` is PostgreSQL."""
    if alias not in django_settings.DATABASES or connections[alias].vendor != "postgresql":
        raise ImproperlyConfigured(f"database must be a PostgreSQL alias of DATABASES; it is {alias!r}.")


def alias_of(project: str, queue: str, *, adding: bool = False) -> str:
    """Return the alias of the database that holds a queue.

    A queue that moves has two: new jobs (``adding``) go to the one, all else concerns the other until no job is left
    there, so that an ack reaches the lease that it ends.
    """
    if not (conf.settings.ROUTER or conf.settings.DATABASES):  # as ``spread`` asks: every call comes here
        return conf.settings.DATABASE
    route = routes().of(project, queue)
    if route is None:
        return _routed(project, queue)
    return route.source if route.draining and not adding else route.alias


def homes(project: str, queue: str) -> list[str]:
    """Return the aliases of all databases in which a queue's jobs and results may be, the one for new ones first."""
    route = routes().of(project, queue) if spread() else None
    return [_routed(project, queue)] if route is None else [route.alias, route.source]


def spread() -> bool:
    """Whether queues may be in several databases."""
    return bool(conf.settings.ROUTER or conf.settings.DATABASES)


def _routed(project: str, queue: str) -> str:
    path = conf.settings.ROUTER
    if not path:
        return conf.settings.DATABASE
    try:
        route: Callable[[str, str], str] = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"LEASEQUEUE['ROUTER'] = {path!r} cannot be imported: {error}") from error
    alias = route(project, queue)
    if alias not in (conf.settings.DATABASES or django_settings.DATABASES):
        where = "LEASEQUEUE['DATABASES']" if conf.settings.DATABASES else "DATABASES"
        raise ImproperlyConfigured(
            f"LEASEQUEUE['ROUTER'] sends queue {queue!r} to the database {alias!r}, which is not in {where}."
        )
    return alias


def check_dead_letter(project: str, queue: str, dead_letter: str | None) -> None:
    """Check that a queue and its dead-letter topic are in one database: a job is moved by one statement there."""
    if dead_letter in (None, DEAD_LETTER_SELF) or not spread():
        return
    home, other = homes(project, queue)[0], homes(project, str(dead_letter))[0]
    if home != other:
        raise InvalidOption(
            f"dead_letter {dead_letter!r} of {queue!r} cannot be in another database than its queue:"
            f" LEASEQUEUE['ROUTER'] sends it to {other!r}, the queue to {home!r}. Name a topic that goes there too."
        )


def check_redrive(project: str, to: str | None, using: str) -> None:
    """Check that dead letters of a database are redriven into a queue there: a job is moved by one statement."""
    if to is None or len(aliases()) == 1 or using in (found := homes(project, to)):
        return
    raise InvalidOption(
        f"Dead letters of the database {using!r} cannot be redriven into {to!r}, which is in {found[0]!r}: they move"
        " within one database. Redrive them into a queue there, or enqueue them anew."
    )


def aliases() -> list[str]:
    """Return every alias that may hold queues, the default one first.

    Those are ``LEASEQUEUE["DATABASES"]``; without it all PostgreSQL ones where a router decides.
    """
    first, named = conf.settings.DATABASE, conf.settings.DATABASES
    if not named and conf.settings.ROUTER:
        named = tuple(alias for alias in connections if connections[alias].vendor == "postgresql")
    return list(dict.fromkeys((first, *named)))
