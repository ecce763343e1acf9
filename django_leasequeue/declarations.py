"""The queues that the host's settings declare, in ``LEASEQUEUE["QUEUES"]`` and in ``TASKS``: made at ``migrate``."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from django.db import ProgrammingError, connections, transaction
from django.utils.module_loading import import_string

from . import conf, engine, routing
from .models import Queue

logger = logging.getLogger("django_leasequeue")


#: Doors that declare queues, as functions that return declarations: loaded when asked, since doors import what is here.
SOURCES = ["django_leasequeue.tasks.declared.of_backends"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A queue that is to be there.

    Args:
        database: the alias of its database.
        project: its tenant.
        name: its name.
        preset: the bundle of options that it begins with.
        options: its own, over the preset's.
    """

    database: str
    project: str
    name: str
    preset: str | None
    options: dict[str, Any] = field(default_factory=dict)


def declarations() -> list[Declaration]:
    """Return what the settings declare, each queue once: what a task backend says of a queue comes first."""
    found: dict[tuple[str, str, str], Declaration] = {}
    for declared in [*(made for source in SOURCES for made in import_string(source)()), *_of_settings()]:
        found.setdefault((declared.database, declared.project, declared.name), declared)
    return list(found.values())


def on_database(using: str, project: str) -> dict[str, Declaration]:
    """Return what is declared for a database and a tenant, by name."""
    return {item.name: item for item in declarations() if (item.database, item.project) == (using, project)}


def _of_settings() -> list[Declaration]:
    made = []
    for name, given in conf.settings.QUEUES.items():
        options = dict(given)
        preset = options.pop("preset", conf.settings.DEFAULT_PRESET)
        made.append(Declaration(routing.alias_of("", name), "", name, preset, options))
    return made


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
