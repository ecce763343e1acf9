"""Which database holds a queue: ``LEASEQUEUE["ROUTER"]``, or one database for all."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from ... import conf
from ...enums import DEAD_LETTER_SELF
from ...exceptions import InvalidOption


def alias_of(project: str, queue: str) -> str:
    """Return the alias of the database that holds a queue."""
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
    if dead_letter in (None, DEAD_LETTER_SELF) or not conf.settings.ROUTER:
        return
    home, other = alias_of(project, queue), alias_of(project, str(dead_letter))
    if home != other:
        raise InvalidOption(
            f"dead_letter {dead_letter!r} of {queue!r} cannot be in another database than its queue:"
            f" LEASEQUEUE['ROUTER'] sends it to {other!r}, the queue to {home!r}. Name a topic that goes there too."
        )


def aliases() -> list[str]:
    """Return every alias that may hold queues, the default one first.

    Those are ``LEASEQUEUE["DATABASES"]``; without it all PostgreSQL ones where a router decides.
    """
    first, named = conf.settings.DATABASE, conf.settings.DATABASES
    if not named and conf.settings.ROUTER:
        named = tuple(alias for alias in connections if connections[alias].vendor == "postgresql")
    return list(dict.fromkeys((first, *named)))
