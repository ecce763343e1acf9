"""The handle of a queue, and the database, serializer and status that its operations share."""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NoReturn, TypeVar

import psycopg
from django.db import Error as DjangoError

from .. import conf, engine
from ..conf import process
from ..engine.jobs.results import Status, status
from ..engine.limits import MAX_NODE_BYTES, check_node
from ..engine.operation import Statements, Work, operation
from ..engine.outage import away
from ..engine.queues import presets, routing
from ..engine.queues.presets import Definition, define
from ..engine.queues.queues import find, make_declared
from ..exceptions import InvalidOption, StorageError
from ..twins import Repeatable
from . import serializers
from .outcomes import ClaimedJob
from .serializers import Dumper, Serializer

T = TypeVar("T")
H = TypeVar("H", bound="Handle")


_DATABASE_ERRORS = (DjangoError, psycopg.Error)


def _raise_storage_error(error: BaseException) -> NoReturn:
    if away(error):
        raise StorageError(f"The database could not do it: {error}", error) from error
    raise error


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise ``StorageError`` if the database's connection or server fails; its cause is the error that came."""
    try:
        yield
    except _DATABASE_ERRORS as error:
        _raise_storage_error(error)


def run(work: Work[T], using: str) -> T:
    """Run an operation on Django's connection, in the caller's transaction if there is one."""
    try:
        return engine.DjangoExecutor(using).run(work)
    except _DATABASE_ERRORS as error:
        _raise_storage_error(error)


async def arun(work: Work[T], using: str) -> T:
    """See ``run``. It runs on an async connection of its own, not in a transaction of the caller."""
    try:
        return await engine.arun(work, using)
    except _DATABASE_ERRORS as error:
        _raise_storage_error(error)


class OnDatabase(ABC):
    """Base of classes each of whose methods is one operation."""

    @property
    @abstractmethod
    def using(self) -> str:
        """Alias of the database."""

    def _home(self, _body: Repeatable[Any]) -> str:
        return self.using

    def _run(self, body: Repeatable[T], /) -> T:
        try:
            return engine.DjangoExecutor(self._home(body)).run(body)
        except _DATABASE_ERRORS as error:
            _raise_storage_error(error)

    async def _arun(self, body: Repeatable[T], /) -> T:
        return await arun(body, self._home(body))


#: A name of a job: its key, its number, or what a call returned for it (anything with ``seq``).
Ref = Any
#: Seconds for which a process remembers the serializer that the database names for a queue.
REMEMBER = 30.0

_serializers: process.Memory[tuple[str, str, str], tuple[float, Serializer]] = process.Memory()


@cache
def process_node() -> str:
    """Return this process's name as a lease holder; a forked child makes its own."""
    host = socket.gethostname().encode()[: MAX_NODE_BYTES - 32].decode(errors="ignore")
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"


process.in_forked_child(process_node.cache_clear)


def ref(job: Ref) -> tuple[str | None, int | None]:
    """Return (key, None) or (None, number) for a reference to a job."""
    if isinstance(job, str):
        return job, None
    number = getattr(job, "seq", job)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidOption(f"a job is named by its key (text), its number, or a ClaimedJob; it is {job!r}.")
    return None, number


def named(job: Ref) -> dict[str, Any]:
    """Return the arguments ``keys`` and ``seqs`` that name one job to the engine."""
    key, seq = ref(job)
    return {"keys": [] if key is None else [key], "seqs": [] if seq is None else [seq]}


def leased(job: Any) -> ClaimedJob:
    """Return ``job`` if it is one that a claim gave: only the holder of a lease can end or keep it."""
    if not isinstance(job, ClaimedJob):
        raise InvalidOption(f"this takes the ClaimedJob that claim returned, with its lease; it is {job!r:.100}.")
    return job


class Handle(OnDatabase):
    """The name of a queue, and how to speak of it. Nothing is read or made before the first call.

    Args:
        name: of the queue, 1 to 255 letters, digits, '.', '_', ':' or '-'.
        project: the tenant.
        preset: bundle of options for the case that the first job makes the queue; ``LEASEQUEUE["QUEUES"]`` wins.
        node: the name under which this handle holds leases; by default this process's.
        serializer: how payloads and results are written: a name, or an object with ``dumps`` and ``loads``; by default
            what the database says of the queue.
        using: alias of the database; by default what ``LEASEQUEUE["ROUTER"]`` or ``["DATABASE"]`` says.
        options: queue options over the preset's, for the same case.

    Raises:
        InvalidOption: a name or an option is not allowed.
    """

    def __init__(
        self,
        name: str,
        *,
        project: str = "",
        preset: str | None = None,
        node: str | None = None,
        serializer: str | Dumper | None = None,
        using: str | None = None,
        **options: Any,
    ) -> None:
        self.name: str = presets.check_name(name)
        self.project: str = presets.check_project(project)
        self.preset = preset
        self.options: dict[str, Any] = dict(options)
        if serializer is not None:
            given = serializer if isinstance(serializer, str) else serializers.of(serializer).name[:64]
            self.options.setdefault("serializer", given)
        if preset is not None or options:
            presets.complete(preset, name, **self.options)
        self._node = None if node is None else check_node(node)
        self._given = serializer
        self._using = using

    @property
    def node(self) -> str:
        """The name under which this handle holds leases: by default host, process id and a random part."""
        return self._node or process_node()

    @property
    def using(self) -> str:
        """Alias of the database that holds the queue."""
        return self._using or routing.alias_of(self.project, self.name)

    @property
    def adding(self) -> str:
        """Alias of the database that takes new jobs: another one while the queue moves."""
        return self._using or routing.alias_of(self.project, self.name, adding=True)

    def _home(self, body: Repeatable[Any]) -> str:
        adding = body.func.__name__ in ("enqueue", "_add_many")
        return self._using or routing.alias_of(self.project, self.name, adding=adding)

    def __repr__(self) -> str:
        project = f", project={self.project!r}" if self.project else ""
        return f"{type(self).__name__}({self.name!r}{project})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return (self.name, self.project, self.using) == (other.name, other.project, other.using)

    def __hash__(self) -> int:
        return hash((self.name, self.project))


def pinned(queue: H) -> H:
    """Return a handle for the database that takes new jobs now, whatever happens to the queue."""
    other = copy.copy(queue)
    other._using = queue.adding
    return other


def asked(queue: Handle) -> Definition | None:
    """Return the definition that a handle asks for if the queue has to be made; ``None`` if it asks for nothing."""
    if queue.preset is None and not queue.options:
        return None
    return Definition(queue.preset or conf.settings.DEFAULT_PRESET, queue.options)


def definition(queue: Handle) -> Definition:
    """Return what a queue becomes if it has to be made: as the settings declare it, else as its handle asks."""
    return define(queue.project, queue.name, asked(queue), queue.using)


def make(queue: Handle) -> Statements[None]:
    """Make the queue that a first call needs: as the settings declare it, else as its handle asks."""
    yield from make_declared(queue.project, queue.name, asked(queue), queue.using)


def known_serializer(queue: Handle) -> Serializer | None:
    """Return the serializer of a queue's payloads and results, if it is known without asking the database."""
    if queue._given is not None:
        return serializers.of(queue._given)
    until, found = _serializers.get((queue.using, queue.project, queue.name), (0.0, None))
    return found if time.monotonic() < until else None


def serializer_of(queue: Handle) -> Statements[Serializer]:
    """Find the serializer of a queue's payloads and results: the handle's, else the one that the database names."""
    known = known_serializer(queue)
    if known is not None:
        return known
    info = yield from find(queue.project, queue.name)
    found = serializers.find(
        str((definition(queue).options if info is None else info.config).get("serializer", "json"))
    )
    if info is not None:
        _serializers[queue.using, queue.project, queue.name] = (time.monotonic() + REMEMBER, found)
    return found


find_serializer = operation(serializer_of)


def status_of(queue: Handle, job: Ref, inline: int | None = None) -> Statements[Status | None]:
    """Read the status of one job, or ``None``."""
    found = yield from status(queue.name, project=queue.project, inline=inline, **named(job))
    return found[0] if found else None


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
