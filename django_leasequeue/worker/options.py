"""The options of a worker: ``LEASEQUEUE["WORKER"]`` and, over it, the command line."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, fields, replace
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from ..engine.limits import MAX_BATCH, MAX_NODE_BYTES
from ..engine.queues import routing


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker does; times in seconds unless the name says ms.

    In the settings the names are in capitals: ``LEASEQUEUE = {"WORKER": {"CONCURRENCY": 4}}``.
    """

    #: Names of queues in order of preference; none or "*" for all of the project.
    queues: tuple[str, ...] = ()
    project: str = ""
    #: Alias of the database; "" for the one that holds the queues.
    database: str = ""
    #: Threads for sync functions.
    concurrency: int = 8
    #: Coroutines at once; 0 for as many as threads.
    async_concurrency: int = 0
    #: Processes, each with threads and an event loop of its own.
    processes: int = 1
    #: Jobs claimed ahead at most, while jobs are short; 0 claims only what can start at once.
    prefetch: int = 1_000
    #: Results written with one statement at most; 1 switches the collecting off.
    ack_batch: int = 500
    #: How long a result waits for others while the worker is busy.
    ack_ms: float = 5.0
    #: Stop when no job is ready.
    burst: bool = False
    #: Stop after so many jobs; 0 for no end.
    max_jobs: int = 0
    #: A look without being told, as a backstop.
    poll: float = 5.0
    #: How long a job may go on after its timeout (the soft one) before its process is replaced; 0 for ever.
    timeout_grace: float = 10.0
    #: How long a stop waits for running jobs.
    drain_timeout: float = 25.0
    #: The worker's name; "" for one from host, process and chance.
    node: str = ""
    #: Whether this worker also does the reaper's duties, if no other leads.
    reaper: bool = True
    #: Dotted path of the ``Handler`` that runs jobs.
    handler: str = "django_leasequeue.tasks.handler.TaskHandler"
    #: Address of the health page; 0 for none.
    health_host: str = "127.0.0.1"
    health_port: int = 0
    #: A file that is written anew every few seconds while the worker is healthy; "" for none.
    health_file: str = ""
    json_logs: bool = False

    @property
    def coroutines(self) -> int:
        """How many async jobs run at once."""
        return self.async_concurrency or self.concurrency

    @property
    def all_queues(self) -> bool:
        """Whether the worker takes all queues of its project."""
        return not self.queues or "*" in self.queues


_RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1, 1_000),
    "async_concurrency": (0, 100_000),
    "processes": (1, 256),
    "prefetch": (0, 10_000),
    "ack_batch": (1, MAX_BATCH),
    "ack_ms": (0, 1_000),
    "max_jobs": (0, 2**62),
    "poll": (0.01, 3_600),
    "timeout_grace": (0, 86_400),
    "drain_timeout": (0, 86_400),
    "health_port": (0, 65_535),
}


def load_options(**given: Any) -> WorkerOptions:
    """Return the options: the given ones (``None``: not given) over the settings over the defaults.

    Raises:
        ImproperlyConfigured: a name is unknown, or a value is not allowed.
    """
    known = {item.name for item in fields(WorkerOptions)}
    values: dict[str, Any] = {}
    for key, value in conf.settings.WORKER.items():
        if key.lower() not in known or key != key.upper():
            raise ImproperlyConfigured(
                f"LEASEQUEUE['WORKER'] has no option {key!r}; there are {', '.join(sorted(known)).upper()}."
            )
        values[key.lower()] = value
    values.update({key: value for key, value in given.items() if value is not None})
    return _checked(WorkerOptions(**values))


def _checked(options: WorkerOptions) -> WorkerOptions:
    if isinstance(options.queues, str):
        raise ImproperlyConfigured("LEASEQUEUE['WORKER']['QUEUES'] must be a list of names.")
    options = replace(options, queues=tuple(options.queues))
    for name, (low, high) in _RANGES.items():
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ImproperlyConfigured(
                f"{name} of a worker must be a number from {low:g} to {high:g}; it is {value!r}."
            )
        if isinstance(WorkerOptions.__dataclass_fields__[name].default, int) and value != int(value):
            raise ImproperlyConfigured(f"{name} of a worker must be a whole number; it is {value!r}.")
    if len(options.node.encode()) > MAX_NODE_BYTES - 16:
        raise ImproperlyConfigured(f"node of a worker must be at most {MAX_NODE_BYTES - 16} bytes long.")
    alias = options.database or _database(options)
    if alias not in django_settings.DATABASES or connections[alias].vendor != "postgresql":
        raise ImproperlyConfigured(f"{alias!r} is not a PostgreSQL database of DATABASES.")
    return replace(options, database=alias)


def _database(options: WorkerOptions) -> str:
    if options.all_queues:
        return str(conf.settings.DATABASE)
    aliases = {routing.alias_of(options.project, name) for name in options.queues}
    if len(aliases) > 1:
        raise ImproperlyConfigured(
            f"These queues are in several databases ({', '.join(sorted(aliases))}): run one worker for each."
        )
    return aliases.pop()


def node_name() -> str:
    """Return a new name for a worker: host, process, and chance, so that no two ever share one."""
    host = socket.gethostname().encode()[:64].decode(errors="ignore")
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"
