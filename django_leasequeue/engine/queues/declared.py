"""The queues that the settings declare: made at ``migrate``, compared with the database, changed to what they say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import ProgrammingError, connections, transaction

from ... import conf, engine
from ...models import Queue
from . import presets, routing
from .presets import Declaration, of_backends, of_settings
from .queues import require


@dataclass(frozen=True, slots=True)
class Drift:
    """A declared queue that the database has otherwise, or not at all.

    ``options`` holds (database, settings) for each option that differs; ``blocked`` says why that has to stay, if so.
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


def drift(using: str) -> list[Drift]:
    """Return the declared queues of one database that are missing there or have other options."""
    found = []
    for declaration in declarations():
        if declaration.database != using:
            continue
        # What the settings do not name is the database's business, and never differs.
        preset = presets.options_of(declaration.preset if declaration.named else None)
        named = {**preset, **presets.check_options(declaration.options)}
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
    """Make missing queues, and give the others the options that the settings name; what they do not name stays."""
    found = drift(using)
    for item in found:
        declared = item.declaration
        if item.missing:
            _make(declared, using)
        elif item.blocked is None:
            change(declared.name, {name: new for name, (_, new) in item.options.items()}, declared.project, using)
    return found


def change(name: str, options: dict[str, Any], project: str, using: str) -> engine.QueueInfo:
    """Change some options of a queue; the others stay."""
    checked = presets.check_options(options)
    info = engine.run(require(project, name, leases=False), using)
    return engine.run(engine.configure(name, project=project, **{**info.config, **checked}), using)


logger = logging.getLogger("django_leasequeue")


def declarations() -> list[Declaration]:
    """Return what the settings declare, each queue once: what ``LEASEQUEUE["QUEUES"]`` says of a queue comes first."""
    found: dict[tuple[str, str, str], Declaration] = {}
    given = conf.settings.QUEUES
    listed = [Declaration(routing.alias_of("", name, adding=True), "", name, None) for name in given]
    for item in [*listed, *(declared for declared in of_backends() if declared.name)]:
        first = of_settings(item.project, item.name)
        if first is not None:
            named = "preset" in given[item.name]
            item = replace(item, preset=first.preset, options=first.options, named=named)  # noqa: PLW2901
        found.setdefault((item.database, item.project, item.name), item)
    return list(found.values())


def make_queues(using: str) -> list[str]:
    """Make the declared queues of one database that are missing; what is there stays as it is."""
    return [item.name for item in declarations() if item.database == using and _make(item, using)]


def _make(item: Declaration, using: str) -> bool:
    return engine.run(engine.create(item.name, project=item.project, preset=item.preset, **item.options), using)


def goes_back(plan: Sequence[tuple[Any, bool]]) -> bool:
    """Whether a plan of ``migrate`` takes migrations of ours back: the tables are then not those of this version."""
    return any(back and migration.app_label == Queue._meta.app_label for migration, back in plan)


def on_migrate(using: str, *, plan: Sequence[tuple[Any, bool]] = (), **_: Any) -> None:
    """Receiver of ``post_migrate``. Where the tables are not, or are of another time, nothing is made."""
    if goes_back(plan) or Queue._meta.db_table not in connections[using].introspection.table_names():
        return
    try:
        with transaction.atomic(using=using):
            make_queues(using)
    except ProgrammingError:
        logger.warning("The declared queues are not made: the tables are not those of this version. Run migrate.")
