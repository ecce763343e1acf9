"""Operations on queues themselves: make, find, change, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import QueueType
from ...exceptions import InvalidOption, NotAQueue, QueueConflict, QueueNotFound
from .. import arrays, codec
from ..limits import MAX_QUEUE_BYTES, check_count, check_place, check_text
from ..operation import BEGIN, Steps, only, operation
from . import presets, routing
from .presets import Definition, define

#: Jobs of one statement that removes those of a deleted queue, and finished ones that a deletion looks through at once.
BATCH = 5_000
LOOKED_THROUGH = 100_000
#: Seconds between two looks whether writers have ended, and looks.
PAUSE, LOOKS = 0.01, 200


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as it is in the database: its options in ``config``."""

    id: int
    project: str
    name: str
    config: dict[str, Any]
    dead_lettered: int
    paused_at: datetime | None
    created_at: datetime

    @property
    def type(self) -> str:
        return str(self.config["type"])


def find(project: str, name: str) -> Steps[QueueInfo | None]:
    """Steps that read one queue; ``None`` if it is not there."""
    check_place(project, name)
    rows = yield "queue_get", {"project": project, "name": name}
    if not rows:
        return None
    ((number, found, paused_at, dead_lettered, created_at, config),) = rows
    return QueueInfo(number, project, found, codec.loads(config), dead_lettered, paused_at, created_at)


def require(project: str, name: str, *, leases: bool = True) -> Steps[QueueInfo]:
    """Steps that read one queue, or raise ``QueueNotFound`` (``NotAQueue`` if it is a log and ``leases`` is set)."""
    info = yield from find(project, name)
    if info is None:
        raise QueueNotFound(name, project)
    if leases and info.type != "queue":
        raise NotAQueue(name)
    return info


def make(project: str, name: str, preset: str | None, options: Mapping[str, Any]) -> Steps[bool]:
    """Steps that make a queue unless it is there; return whether it is new."""
    presets.check_project(project)
    presets.check_name(name)
    config = presets.complete(preset, name, **options)
    routing.check_dead_letter(project, name, config["dead_letter"])
    rows = yield "queue_create", {"project": project, "name": name, "config": codec.dumps(config, "metadata")}
    return bool(rows)


@operation
def make_defined(project: str, name: str, asked: Definition | None = None, using: str | None = None) -> Steps[bool]:
    """Make a queue unless it is there, as ``define`` says; return whether it is new."""
    found = define(project, name, asked, using)
    return (yield from make(project, name, found.preset, found.options))


def make_declared(project: str, name: str, asked: Definition | None = None, using: str | None = None) -> Steps[None]:
    """Steps that make the queue that a first job needs, as ``define`` says."""
    found = define(project, name, asked, using)
    if not found.declared and not conf.settings.AUTO_CREATE:
        raise QueueNotFound(name, project)
    yield from make(project, name, found.preset, found.options)


@operation
def create(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Steps[bool]:
    """Make a queue or log unless it is there, with these options over a preset's (``presets.PRESETS``) or the defaults.

    Return whether it is new.
    """
    return (yield from make(project, name, preset, options))


@operation
def configure(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Steps[QueueInfo]:
    """Replace the options of a queue: what is not given returns to the preset's or the default value."""
    config = presets.complete(preset, name, **options)
    routing.check_dead_letter(project, name, config["dead_letter"])
    info = yield from require(project, name, leases=False)
    if config["type"] != info.type:
        raise QueueConflict(
            f"{name!r} is a {info.type}; the type of a topic cannot change. Delete it and make it anew."
        )
    yield "queue_update", {"project": project, "name": name, "config": codec.dumps(config, "metadata")}
    return (yield from require(project, name, leases=False))


@operation
def get(name: str, *, project: str = "") -> Steps[QueueInfo | None]:
    """Read one queue; ``None`` if it is not there."""
    return (yield from find(project, name))


class QueueLine(NamedTuple):
    """One line of a list of queues."""

    id: int
    name: str
    type: str
    metadata_json: str
    paused_at: datetime | None

    @property
    def metadata(self) -> dict[str, Any]:
        """The facts that were noted of the queue."""
        found: dict[str, Any] = codec.loads(self.metadata_json)
        return found


@operation
def list_queues(
    *,
    project: str = "",
    after: str = "",
    prefix: str = "",
    prefixes: Sequence[str] = (),
    type: str | None = None,
    size: int = 100,
) -> Steps[list[QueueLine]]:
    """List queues by name: those behind ``after``, at most ``size`` (and never more than ``MAX_PAGE``).

    ``prefixes``: only names that begin with one of them (those of an API key); empty for all.
    """
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    check_place(project)
    check_text(after, "after", MAX_QUEUE_BYTES, 0)
    check_text(prefix, "prefix", MAX_QUEUE_BYTES, 0)
    if type not in (None, *QueueType.values):
        raise InvalidOption(f"type must be one of {', '.join(QueueType.values)}, or None for any; it is {type!r}.")
    names = {"after": after, "prefix": prefix, "prefixes": arrays.texts(prefixes)}
    rows = yield "queue_list", {"project": project, **names, "type": type, "size": size}
    return [QueueLine._make(row) for row in rows]


@operation
def delete(name: str, *, project: str = "", if_empty: bool = False) -> Steps[bool]:
    """Delete a queue with its jobs, claims and results; its events stay.

    Of finished jobs it looks through a hundred thousand at once; what is beyond goes when its time is over. With
    ``if_empty`` it is an error that there are jobs, or that a session might be writing some right now. Return whether
    the queue was there.
    """
    check_place(project, name)
    if if_empty:
        yield from _keep_empty(project, name)
    rows = yield "queue_delete", {"project": project, "name": name}
    if not rows:
        return False
    ((queue_id, _told),) = rows
    while (yield from remove_orphans(queue_id)):
        pass
    after: int | None = 0
    for _ in range(LOOKED_THROUGH // BATCH):
        if after is not None:
            after = yield from remove_orphan_jobs(queue_id, after)
    return True


@operation
def remove_orphans(queue_id: int) -> Steps[int]:
    """Remove a batch of the jobs that have not ended of a queue that is gone; return how many went."""
    return int(only((yield "orphans", {"queue": queue_id, "size": BATCH})))


@operation
def remove_orphan_jobs(queue_id: int, after: int) -> Steps[int | None]:
    """Remove the finished jobs of a queue that is gone among a batch behind ``after``; return where to go on."""
    ((last, _),) = yield "orphan_jobs", {"queue": queue_id, "after": after, "size": BATCH}
    return int(last) if last is not None else None


def _keep_empty(project: str, name: str) -> Steps[None]:
    """Lock a queue against writers, for the rest of the transaction, and see that it is empty.

    A writer sees the lock in the queue's row at once and waits for it. One that read the row before holds the lock of
    the table of jobs by then: when all of these have ended, what a look finds is all there is.
    """
    params = {"project": project, "name": name}
    yield from _see_empty(params)
    yield BEGIN, {}
    if not (yield "queue_lock", params):
        if (yield from find(project, name)) is None:
            return
        raise InvalidOption(f"{name!r} may be about to get jobs: a session writes to it. Try again.")
    ((writers, _),) = yield "queue_writers", {"known": None, "pause": 0.0}
    for _ in range(LOOKS):
        if not writers:
            break
        ((writers, _),) = yield "queue_writers", {"known": arrays.texts(writers), "pause": PAUSE}
    else:
        raise InvalidOption(f"{name!r} may be about to get jobs: transactions that write jobs are open. Try again.")
    yield from _see_empty(params)


def _see_empty(params: Mapping[str, Any]) -> Steps[None]:
    for (empty,) in (yield "queue_empty", params):
        if not empty:
            raise InvalidOption(f"{params['name']!r} is not empty.")


@operation
def pause(name: str, *, project: str = "", paused: bool = True) -> Steps[None]:
    """Pause a queue (claims get nothing; enqueue and settle go on), or resume it."""
    check_place(project, name)
    rows = yield "queue_pause", {"project": project, "name": name, "paused": paused}
    if not rows:
        raise QueueNotFound(name, project)


@operation
def set_metadata(name: str, metadata: dict[str, Any], *, project: str = "") -> Steps[None]:
    """Replace the metadata of a queue."""
    text = codec.dumps(presets.check_options({"metadata": metadata})["metadata"], "metadata")
    rows = yield "queue_metadata", {"project": project, "name": name, "metadata": text}
    if not rows:
        raise QueueNotFound(name, project)
