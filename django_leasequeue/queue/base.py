"""What every method of a queue's handle stands on: which queue, whose name, which serializer, which database."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import Any

from .. import conf, process
from ..engine.jobs.results import Status, status
from ..engine.limits import MAX_NODE_BYTES, check_node
from ..engine.operation import Operation, Steps
from ..engine.queues import presets, routing
from ..engine.queues.definition import Definition, define
from ..engine.queues.queues import find, make_declared
from ..exceptions import InvalidOption
from . import serializers
from .job import Job
from .serializers import Dumper, Serializer

#: What names a job: its key, its number, or what a call returned for it (anything with ``seq``).
Ref = Any

#: Seconds for which a process remembers the serializer that the database names for a queue.
REMEMBER = 30.0

_names: process.Shared[str, str] = process.Shared()
_serializers: process.Memory[tuple[str, str, str], tuple[float, Serializer]] = process.Memory()


def process_node() -> str:
    """Return this process's name as a holder of leases: host, process and chance. A forked child gets its own."""
    return _names.get("node", _new_node)


def _new_node(_: str) -> str:
    host = socket.gethostname().encode()[: MAX_NODE_BYTES - 32].decode(errors="ignore")
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"


def ref(job: Ref) -> tuple[str | None, int | None]:
    """Return (key, None) or (None, number) of what names a job.

    Raises:
        InvalidOption: it is not the name of a job.
    """
    if isinstance(job, str):
        return job, None
    number = getattr(job, "seq", job)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidOption(f"a job is named by its key (text), its number, or a Job; it is {job!r}.")
    return None, number


def named(job: Ref) -> dict[str, Any]:
    """Return the arguments ``keys`` and ``seqs`` that name one job to the engine."""
    key, seq = ref(job)
    return {"keys": [] if key is None else [key], "seqs": [] if seq is None else [seq]}


def leased(job: Any) -> Job:
    """Return ``job`` if it is one that a claim gave.

    Raises:
        InvalidOption: it is something else: only the holder of a lease can end or keep it.
    """
    if not isinstance(job, Job):
        raise InvalidOption(f"this takes the Job that claim returned, with its lease; it is {job!r:.100}.")
    return job


class Handle:
    """Names a queue. Nothing is read or made before the first call.

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
        self.name = presets.check_name(name)
        self.project = presets.check_project(project)
        self.preset = preset
        self.options = dict(options)
        if serializer is not None and not isinstance(serializer, str):
            self.options.setdefault("serializer", serializers.of(serializer).name[:64])
        elif serializer is not None:
            self.options.setdefault("serializer", serializer)
        if preset is not None or options:
            presets.complete(preset, name, **self.options)
        self._node = None if node is None else check_node(node)
        self._given = serializer
        self._using = using

    @property
    def node(self) -> str:
        """The name under which this handle holds leases."""
        return self._node or process_node()

    @property
    def given_node(self) -> str:
        """The name that was given to this handle, "" if none."""
        return self._node or ""

    @property
    def using(self) -> str:
        """Alias of the database that holds the queue."""
        return self._using or routing.alias_of(self.project, self.name)

    def __repr__(self) -> str:
        project = f", project={self.project!r}" if self.project else ""
        return f"{type(self).__name__}({self.name!r}{project})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return (self.name, self.project, self.using) == (other.name, other.project, other.using)

    def __hash__(self) -> int:
        return hash((self.name, self.project))

    # Steps that the operations of the methods are made of

    def definition(self) -> Definition:
        """Return what this queue becomes if it has to be made: as the settings declare it, else as this handle says."""
        return define(self.project, self.name, self._asked, self.using)

    @property
    def _asked(self) -> Definition | None:
        """What this handle says of a queue that has to be made; ``None``: nothing."""
        if self.preset is None and not self.options:
            return None
        return Definition(self.preset or conf.settings.DEFAULT_PRESET, self.options)

    def make_steps(self) -> Steps[None]:
        """Make the queue that a first call needs: as the settings declare it, else as this handle says.

        Raises:
            QueueNotFound: it is not declared and ``LEASEQUEUE["AUTO_CREATE"]`` is off.
        """
        yield from make_declared(self.project, self.name, self._asked, self.using)

    def known_serializer(self) -> Serializer | None:
        """Return how payloads and results are written, if that is known without asking the database."""
        if self._given is not None:
            return serializers.of(self._given)
        until, found = _serializers.get((self.using, self.project, self.name), (0.0, None))
        return found if time.monotonic() < until else None

    def serializer_steps(self) -> Steps[Serializer]:
        """Find how payloads and results of this queue are written: as the handle says, else the database."""
        known = self.known_serializer()
        if known is not None:
            return known
        info = yield from find(self.project, self.name)
        found = serializers.find(
            str((self.definition().options if info is None else info.config).get("serializer", "json"))
        )
        if info is not None:
            _serializers[self.using, self.project, self.name] = (time.monotonic() + REMEMBER, found)
        return found

    def serializer(self) -> Operation[Serializer]:
        """The operation that finds how payloads and results are written."""
        return Operation(self.serializer_steps)

    def status_steps(self, job: Ref, inline: int | None = None) -> Steps[Status | None]:
        """Read what is known of one job, ``None`` if nothing is."""
        found = yield from status(self.name, project=self.project, inline=inline, **named(job)).steps()
        return found[0] if found else None
