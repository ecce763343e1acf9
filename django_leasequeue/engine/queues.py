"""Operations on queues themselves: make, find, change, delete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .. import conf, presets
from ..enums import QueueType
from ..exceptions import InvalidOption, NotAQueue, QueueConflict, QueueNotFound
from . import codec
from .limits import MAX_QUEUE_BYTES, check_count, check_place, check_text
from .operation import Steps, operation


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
        """``queue`` or ``log``."""
        return str(self.config["type"])


def find(project: str, name: str) -> Steps[QueueInfo | None]:
    """Steps that read one queue; ``None`` if it is not there."""
    check_place(project, name)
    rows = yield "queue_get", {"project": project, "name": name}
    if not rows:
        return None
    (queue_id, found, paused_at, dead_lettered, created_at, config) = rows[0]
    return QueueInfo(queue_id, project, found, codec.loads(config), dead_lettered, paused_at, created_at)


def require(project: str, name: str, *, leases: bool = True) -> Steps[QueueInfo]:
    """Steps that read one queue, or raise ``QueueNotFound`` (``NotAQueue`` if it is a log and ``leases`` is set)."""
    info = yield from find(project, name)
    if info is None:
        raise QueueNotFound(name, project)
    if leases and info.type != "queue":
        raise NotAQueue(name)
    return info


def make(project: str, name: str, preset: str | None, options: dict[str, Any]) -> Steps[bool]:
    """Steps that make a queue unless it is there; return whether it is new."""
    presets.check_project(project)
    presets.check_name(name)
    config = presets.complete(preset, name, **options)
    rows = yield "queue_create", {"project": project, "name": name, "config": codec.dumps(config, "metadata")}
    return bool(rows)


def make_declared(project: str, name: str) -> Steps[None]:
    """Steps that make the queue that a first job needs, as the settings declare it.

    Raises:
        QueueNotFound: it is not declared and ``AUTO_CREATE`` is off.
    """
    declared = dict(conf.settings.QUEUES.get(name, {})) if not project else {}
    if not declared and not conf.settings.AUTO_CREATE:
        raise QueueNotFound(name, project)
    preset = declared.pop("preset", conf.settings.DEFAULT_PRESET)
    yield from make(project, name, preset, declared)


@operation
def create(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Steps[bool]:
    """Make a queue or log unless it is there.

    Args:
        name: 1 to 255 characters (spec/topics L1).
        project: the tenant, ``""`` by default.
        preset: a named bundle of options, see ``presets.PRESETS``; ``None`` for the defaults.
        options: queue options, over the preset's.

    Returns:
        Whether it is new.

    Raises:
        InvalidOption: a name or an option is not allowed.
    """
    return (yield from make(project, name, preset, options))


@operation
def configure(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Steps[QueueInfo]:
    """Replace the options of a queue: what is not given returns to the preset's or the default value.

    Returns:
        The queue as it is now.

    Raises:
        QueueNotFound: there is no such queue.
        QueueConflict: the type would change.
        InvalidOption: an option is not allowed.
    """
    check_place(project, name)
    config = presets.complete(preset, name, **options)
    info = yield from find(project, name)
    if info is None:
        raise QueueNotFound(name, project)
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


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One line of a list of queues."""

    id: int
    name: str
    type: str
    metadata: dict[str, Any]
    paused_at: datetime | None


@operation
def list_queues(
    *, project: str = "", after: str = "", prefix: str = "", type: str | None = None, size: int = 100
) -> Steps[list[QueueLine]]:
    """List queues by name: those behind ``after``, at most ``size`` (and never more than ``MAX_PAGE``)."""
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    check_place(project)
    check_text(after, "after", MAX_QUEUE_BYTES, 0)
    check_text(prefix, "prefix", MAX_QUEUE_BYTES, 0)
    if type not in (None, *QueueType.values):
        raise InvalidOption(f"type must be one of {', '.join(QueueType.values)}, or None for any; it is {type!r}.")
    rows = yield (
        "queue_list",
        {"project": project, "after": after, "prefix": prefix, "type": type, "size": size},
    )
    return [QueueLine(i, name, kind, codec.loads(meta), paused) for i, name, kind, meta, paused in rows]


@operation
def delete(name: str, *, project: str = "", if_empty: bool = False) -> Steps[bool]:
    """Delete a queue with its jobs, claims and results; its events stay.

    Returns:
        Whether it was there.

    Raises:
        InvalidOption: ``if_empty`` is set and there are jobs.
    """
    check_place(project, name)
    rows = yield "queue_delete", {"project": project, "name": name, "if_empty": if_empty}
    gone, busy, queue_id, _ = rows[0]
    if busy:
        raise InvalidOption(f"{name!r} is not empty.")
    while queue_id is not None:
        left = yield "orphans", {"queue": queue_id, "size": 5_000}
        if not left[0][0]:
            break
    return bool(gone)


@operation
def pause(name: str, *, project: str = "", paused: bool = True) -> Steps[None]:
    """Pause a queue (claims get nothing; enqueue and settle go on), or resume it.

    Raises:
        QueueNotFound: there is no such queue.
    """
    check_place(project, name)
    rows = yield "queue_pause", {"project": project, "name": name, "paused": paused}
    if not rows:
        raise QueueNotFound(name, project)


@operation
def set_metadata(name: str, metadata: dict[str, Any], *, project: str = "") -> Steps[None]:
    """Replace the metadata of a queue.

    Raises:
        QueueNotFound: there is no such queue.
        InvalidOption: it is not JSON.
    """
    text = codec.dumps(presets.check_options({"metadata": metadata})["metadata"], "metadata")
    rows = yield "queue_metadata", {"project": project, "name": name, "metadata": text}
    if not rows:
        raise QueueNotFound(name, project)
