"""The queues that task backends declare in ``TASKS``."""

from __future__ import annotations

from .. import routing
from ..engine.definition import Declaration
from .api import task_backends
from .backend import LeaseQueueBackend


def of_backends() -> list[Declaration]:
    """Return the queues of every backend of ours, with the options that it gives them."""
    made = []
    for backend in task_backends.all():
        if not isinstance(backend, LeaseQueueBackend):
            continue
        config = backend.config
        for name in sorted(config.listed | set(config.queues)):
            preset, options = config.declaration(name)
            named = "preset" in config.queues.get(name, ())
            made.append(Declaration(_database(config, name), config.project, name, preset, options, named))
        if not config.listed:
            made.append(Declaration(_database(config, ""), config.project, "", config.own_preset))
    return made
