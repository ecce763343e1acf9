"""Events that tasks wait for: ``emit`` says that one has happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .. import conf, engine
from ..engine.jobs import events
from .context import running


def emit(
    name: str,
    payload: Any = None,
    *,
    retention: timedelta | float = events.RETENTION,
    project: str = "",
    using: str | None = None,
) -> bool:
    """Say that an event has happened: tasks that wait for it go on (``current().wait_for``), later ones find it.

    It is part of the caller's transaction: it has happened when that commits.

    Args:
        name: 1 to 512 bytes, not beginning with ``$``. The first event of a name stays as long as it is kept.
        payload: JSON, as large as a job's payload may be.
        retention: seconds or a timedelta for which it is kept, at most 100 years.
        project: the tenant whose tasks wait for it.
        using: alias of the jobs' database; by default that of the running task, or ``LEASEQUEUE["DATABASE"]``.

    Returns:
        Whether it is the first of its name: else nothing has changed.

    Raises:
        InvalidOption, PayloadTooLarge: an argument is not allowed.
    """
    return engine.run(events.emit(name, payload, project=project, retention=retention), _database(using))


async def aemit(
    name: str,
    payload: Any = None,
    *,
    retention: timedelta | float = events.RETENTION,
    project: str = "",
    using: str | None = None,
) -> bool:
    """See ``emit``. It runs on an async connection of its own, not in a transaction of the caller."""
    return await engine.arun(events.emit(name, payload, project=project, retention=retention), _database(using))


def _database(using: str | None) -> str:
    control = running.get()
    return using or (control.using if control is not None else None) or conf.settings.DATABASE
