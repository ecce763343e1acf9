"""The options of a worker (``LEASEQUEUE["WORKER"]`` and, over it, the command line) and its exit codes."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import replace
from enum import IntEnum
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from ..conf.options import WorkerOptions
from ..engine.limits import MAX_NODE_BYTES
from ..engine.queues import routing


def load_options(**given: Any) -> WorkerOptions:
    """Return the options as ``load_each``; without ``database`` those for the first database that holds queues."""
    return load_each(**given)[0]


def load_each(**given: Any) -> list[WorkerOptions]:
    """Return the given options (``None``: not given) over the settings', once for each database that they cover.

    Raises:
        ImproperlyConfigured: a name is unknown, or a value is not allowed.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    checked = conf.read(WorkerOptions, {name.upper(): value for name, value in chosen.items()}, "runworker")
    options = replace(conf.settings.WORKER, **{name: getattr(checked, name) for name in chosen})
    if len(options.node.encode()) > MAX_NODE_BYTES - 16:
        raise ImproperlyConfigured(f"node of a worker must be at most {MAX_NODE_BYTES - 16} bytes long.")
    aliases = [options.database] if options.database else routing.aliases()
    for alias in aliases:
        if alias not in django_settings.DATABASES or connections[alias].vendor != "postgresql":
            raise ImproperlyConfigured(f"{alias!r} is not a PostgreSQL database of DATABASES.")
    return [replace(options, database=alias) for alias in aliases]


def node_name() -> str:
    """Return a new name for a worker: host, process id and a random part, so that no two workers share one."""
    host = socket.gethostname().encode()[:64].decode(errors="ignore")
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"


class ExitCode(IntEnum):
    """The reason for which a worker ended."""

    #: Asked to stop, or nothing left to do; every job that had started has ended.
    OK = 0
    #: It could not start: wrong options or settings (Django's CommandError).
    USAGE = 1
    #: Stopped before every running job had ended: those were told, and given back.
    GIVEN_BACK = 3
    #: A part of the worker broke: a bug. What it held was given back, or comes back when the leases expire.
    BROKEN = 70
    #: It asks for a new process: a job outlived its hard timeout, or (with processes) it ran its ``max_jobs``.
    RECYCLE = 75
