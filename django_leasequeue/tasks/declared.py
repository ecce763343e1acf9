"""The queues that task backends declare in ``TASKS``."""

from __future__ import annotations

from ..engine.queues import routing
from ..engine.queues.definition import Declaration
from .api import task_backends
from .backend import LeaseQueueBackend


def of_backends() -> list[Declaration]:
    """Return the queues of every backend of ours, with the options that it gives them; one without a name for any."""
    made = []
    for backend in task_backends.all():
        if not isinstance(backend, LeaseQueueBackend):
            continue
        config = backend.config
        for name in sorted(config.listed | set(config.queues)):
            preset, options = config.declaration(name)
            named = "preset" in config.queues.get(name, ())
            database = config.database or routing.alias_of(config.project, name, adding=True)
            made.append(Declaration(database, config.project, name, preset, options, named))
        if not config.listed:
            made.append(Declaration(config.database or "", config.project, "", config.preset))
    return made
