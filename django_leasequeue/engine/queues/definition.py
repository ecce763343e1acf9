"""The definition of a queue that is missing: one order of precedence for all doors.

1. ``LEASEQUEUE["QUEUES"][name]`` (of the empty project);
2. a task backend of ``TASKS`` that lists the queue, in its ``QUEUES`` or in ``OPTIONS["queues"]``: the first that does;
3. the preset and options of the caller: a ``Queue(name, preset=...)``, the backend that enqueues, an HTTP request;
4. the preset of a task backend that takes any name (``QUEUES: []``), else ``LEASEQUEUE["DEFAULT_PRESET"]``.

The first that says anything of the queue says all of it: options of two of them are never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.module_loading import import_string

from ... import conf

#: Doors that declare queues, as functions that return declarations: loaded when asked, since doors import what is here.
SOURCES = ["django_leasequeue.tasks.options.of_backends"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A queue that is to be there."""

    database: str
    project: str
    name: str
    preset: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """Preset and options of a queue that is to be made. ``declared``: the settings say so, not who asks for it."""

    preset: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    declared: bool = False


def of_settings(project: str, name: str) -> Definition | None:
    """Return what ``LEASEQUEUE["QUEUES"]`` says of a queue."""
    given = conf.settings.QUEUES.get(name) if not project else None
    if given is None:
        return None
    options = dict(given)
    return Definition(options.pop("preset", conf.settings.DEFAULT_PRESET), options, True)


def of_doors() -> list[Declaration]:
    """Return what the doors declare, in their order."""
    return [declared for source in SOURCES for declared in import_string(source)()]


def define(project: str, name: str, asked: Definition | None = None, using: str | None = None) -> Definition:
    """Return what a missing queue is to be."""
    found = of_settings(project, name)
    if found is not None:
        return found
    doors = [item for item in of_doors() if item.project == project and (using is None or item.database in ("", using))]
    for item in doors:
        if item.name == name:
            return Definition(item.preset, item.options, True)
    if asked is not None:
        return asked
    return Definition(next((item.preset for item in doors if not item.name), conf.settings.DEFAULT_PRESET))
