"""Declared queues and the database: where they differ, and making them equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import engine
from ...exceptions import InvalidOption, QueueNotFound
from . import presets
from .declarations import declarations
from .definition import Declaration


@dataclass(frozen=True, slots=True)
class Drift:
    """A declared queue that the database has otherwise, or not at all.

    ``options`` holds (database, settings) for each option that differs; it is empty for a queue that is missing.
    ``blocked`` says why the difference cannot be removed, if so.
    """

    declaration: Declaration
    missing: bool
    options: dict[str, tuple[Any, Any]]
    blocked: str | None = None

    def __str__(self) -> str:
        where = f"{self.declaration.project}/" if self.declaration.project else ""
        if self.missing:
            return f"{where}{self.declaration.name}: missing"
        changes = ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in self.options.items())
        return f"{where}{self.declaration.name}: {changes}" + (f" ({self.blocked})" if self.blocked else "")


def named_options(declaration: Declaration) -> dict[str, Any]:
    """Return the options that the settings name for a queue: its own, over those of a preset that is named for it.

    What the settings do not name is the database's business, and never differs.

    Raises:
        InvalidOption: an option or the preset is not allowed.
    """
    preset = declaration.preset if declaration.named else None
    if preset is not None and preset not in presets.PRESETS:
        raise InvalidOption(f"{preset!r} is not a preset; the presets are {', '.join(presets.PRESETS)}.")
    named = {**presets.PRESETS[preset]} if preset is not None else {}
    return {**named, **presets.check_options(declaration.options)}


def drift(using: str) -> list[Drift]:
    """Return the declared queues of one database that are missing there or have other options.

    Args:
        using: alias of the database.

    Raises:
        InvalidOption: a declaration is not right; ``manage.py check`` says which.
    """
    found = []
    for declaration in declarations():
        if declaration.database != using:
            continue
        named = named_options(declaration)
        info = engine.run(engine.get(declaration.name, project=declaration.project), using)
        if info is None:
            found.append(Drift(declaration, True, {}))
            continue
        changed = {name: (info.config[name], value) for name, value in named.items() if info.config[name] != value}
        if changed:
            blocked = "the type of a topic cannot change: delete it and make it anew" if "type" in changed else None
            found.append(Drift(declaration, False, changed, blocked))
    return found


def apply(using: str) -> list[Drift]:
    """Make missing queues, and give the others the options that the settings name; what they do not name stays.

    Args:
        using: alias of the database.

    Returns:
        What was different. Those that are ``blocked`` still are.
    """
    found = drift(using)
    for item in found:
        declared = item.declaration
        if item.missing:
            make = engine.create(declared.name, project=declared.project, preset=declared.preset, **declared.options)
            engine.run(make, using)
        elif item.blocked is None:
            change(declared.name, {name: new for name, (_, new) in item.options.items()}, declared.project, using)
    return found


def change(name: str, options: dict[str, Any], project: str, using: str) -> engine.QueueInfo:
    """Change some options of a queue; the others stay.

    Raises:
        QueueNotFound: there is no such queue.
        QueueConflict: the type would change.
        InvalidOption: an option is not allowed.
    """
    checked = presets.check_options(options)
    info = engine.run(engine.get(name, project=project), using)
    if info is None:
        raise QueueNotFound(name, project)
    return engine.run(engine.configure(name, project=project, **{**info.config, **checked}), using)
