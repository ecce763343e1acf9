"""The queues that the host's settings declare, in ``LEASEQUEUE["QUEUES"]`` and in ``TASKS``: made at ``migrate``."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from django.db import ProgrammingError, connections, transaction

from ... import conf, engine
from ...models import Queue
from . import routing
from .definition import Declaration, of_doors, of_settings

logger = logging.getLogger("django_leasequeue")


def declarations() -> list[Declaration]:
    """Return what the settings declare, each queue once: what ``LEASEQUEUE["QUEUES"]`` says of a queue comes first."""
    found: dict[tuple[str, str, str], Declaration] = {}
    for item in [*_of_settings(), *(declared for declared in of_doors() if declared.name)]:
        found.setdefault((item.database, item.project, item.name), _complete(item))
    return list(found.values())


def _complete(item: Declaration) -> Declaration:
    first = of_settings(item.project, item.name)
    if first is None:
        return item
    named = "preset" in conf.settings.QUEUES[item.name]
    return replace(item, preset=first.preset, options=first.options, named=named)


def _of_settings() -> list[Declaration]:
    return [Declaration(routing.alias_of("", name), "", name, None) for name in conf.settings.QUEUES]


def make_queues(using: str) -> list[str]:
    """Make the declared queues of one database that are missing; what is there stays as it is.

    Args:
        using: alias of the database.

    Returns:
        The names of the new ones.

    Raises:
        InvalidOption: a declaration is not right; ``manage.py check`` says which.
    """
    return [
        declared.name
        for declared in declarations()
        if declared.database == using
        and engine.run(
            engine.create(declared.name, project=declared.project, preset=declared.preset, **declared.options), using
        )
    ]


def on_migrate(using: str, **_: Any) -> None:
    """Receiver of ``post_migrate``. Where the tables are not, or are of another time, nothing is made."""
    if Queue._meta.db_table not in connections[using].introspection.table_names():
        return
    try:
        with transaction.atomic(using=using):
            make_queues(using)
    except ProgrammingError:
        logger.warning("The declared queues are not made: the tables are not those of this version.", exc_info=True)
