"""Tasks whose jobs are in another database than the caller's data: they wait for the commit of that data."""

from __future__ import annotations

from uuid import uuid4

from django.conf import settings as django_settings
from django.db import connections

from .. import conf, engine


def awaited(database: str) -> str | None:
    """Return the alias whose open transaction must commit before jobs are stored; ``None``: store them now.

    A transaction that the caller has opened on the jobs' own alias decides alone. The transactions that ``TestCase``
    puts around a test do not count, as they never commit.

    Args:
        database: alias of the jobs' database.
    """
    data = conf.settings.ENQUEUE_AFTER_COMMIT_OF
    if data is None or data == database or data not in django_settings.DATABASES:
        return None
    return data if _opened(data) and not _opened(database) else None


def _opened(alias: str) -> bool:
    """Return whether the code under test, or in production any code, is inside ``atomic()`` on an alias."""
    return any(not getattr(block, "_from_testcase", False) for block in connections[alias].atomic_blocks)


def with_known_id(job: engine.NewJob) -> engine.NewJob:
    """Return the job with an id that is known before it is stored, in place of one that begins with its number."""
    return job._replace(id_end=None, key=str(uuid4()))
