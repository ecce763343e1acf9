"""Operations on queues themselves: make, find, change, delete; and the transactions that may still write to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import QueueType
from ...exceptions import InvalidOption, NotAQueue, QueueBusy, QueueConflict, QueueNotFound
from .. import arrays, codec
from ..clock import span
from ..limits import MAX_QUEUE_BYTES, check_count, check_place, check_text
from ..operation import BEGIN, END, LOOK, Statements, operation
from . import presets, routing
from .presets import Definition, define

#: Jobs of one statement that removes those of a deleted queue, and finished ones that a deletion looks through at once.
BATCH = 5_000
LOOKED_THROUGH = 100_000
#: Seconds between two looks whether writers have ended, and looks.
PAUSE, LOOKS = 0.01, 200
#: Transactions that an error names.
NAMED = 3


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
    holds_tasks: bool

    @property
    def type(self) -> str:
        return str(self.config["type"])


def find(project: str, name: str) -> Statements[QueueInfo | None]:
    """Read one queue; ``None`` if it is not there."""
    check_place(project, name)
    rows = yield "queue_get", {"project": project, "name": name, LOOK: True}
    if not rows:
        return None
    ((number, found, paused_at, dead_lettered, created_at, holds_tasks, config),) = rows
    return QueueInfo(number, project, found, codec.loads(config), dead_lettered, paused_at, created_at, holds_tasks)


def require(project: str, name: str, *, leases: bool = True) -> Statements[QueueInfo]:
    """Read one queue, or raise ``QueueNotFound`` (``NotAQueue`` if it is a log and ``leases`` is set)."""
    info = yield from find(project, name)
    if info is None:
        raise QueueNotFound(name, project)
    if leases and info.type != "queue":
        raise NotAQueue(name)
    return info


def make(
    project: str, name: str, preset: str | None, options: Mapping[str, Any], *, tasks: bool = False
) -> Statements[bool]:
    """Make a queue, perhaps for ``tasks``, unless it is there; return whether it is new."""
    presets.check_project(project)
    presets.check_name(name)
    config = presets.complete(preset, name, **options)
    routing.check_dead_letter(project, name, config["dead_letter"])
    params = {"project": project, "name": name, "config": codec.dumps(config, "metadata"), "tasks": tasks}
    rows = yield "queue_create", params
    return bool(rows)


@operation
def make_defined(
    project: str, name: str, asked: Definition | None = None, using: str | None = None
) -> Statements[bool]:
    """Make a queue unless it is there, as ``define`` says; return whether it is new."""
    found = define(project, name, asked, using)
    return (yield from make(project, name, found.preset, found.options))


def make_declared(
    project: str, name: str, asked: Definition | None = None, using: str | None = None, *, tasks: bool = False
) -> Statements[None]:
    """Make the queue that a first job needs, as ``define`` says; ``tasks``: the job is a task."""
    found = define(project, name, asked, using)
    if not found.declared and not conf.settings.AUTO_CREATE:
        raise QueueNotFound(name, project)
    yield from make(project, name, found.preset, found.options, tasks=tasks)


@operation
def create(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Statements[bool]:
    """Make a queue or log with these options over a preset's or the defaults; return whether it is new."""
    return (yield from make(project, name, preset, options))


@operation
def configure(name: str, *, project: str = "", preset: str | None = None, **options: Any) -> Statements[QueueInfo]:
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
def get(name: str, *, project: str = "") -> Statements[QueueInfo | None]:
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
) -> Statements[list[QueueLine]]:
    """List queues by name behind ``after``, at most ``size``; ``prefixes``: only names that begin with one of them."""
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
def delete(name: str, *, project: str = "", if_empty: bool = False) -> Statements[bool]:
    """Delete a queue with its jobs, claims and results; its events stay. Return whether the queue was there.

    It waits some seconds for open transactions that may be adding jobs, and raises ``QueueBusy`` while one stays open.
    With ``if_empty`` it is an error that there are jobs. Of finished jobs it looks through a hundred thousand at once;
    what is beyond goes when its time is over.
    """
    yield BEGIN, {}
    queue_id = yield from drop_steps(name, project, if_empty=if_empty)
    if queue_id is None:
        return False
    yield END, {}  # new jobs wait no longer: they go to a new queue
    yield from clear_steps(queue_id)
    return True


def drop_steps(name: str, project: str, *, if_empty: bool = False) -> Statements[int | None]:
    """Delete a queue but not its jobs, in a transaction of the caller's; return its id if it was there."""
    check_place(project, name)
    params = {"project": project, "name": name}
    if if_empty:
        yield from _see_empty(params)
    if not (yield from _keep_writers_out(params)):
        return None
    if if_empty:
        yield from _see_empty(params)
    ((queue_id, _told),) = yield "queue_delete", params
    return int(queue_id)


def clear_steps(queue_id: int) -> Statements[None]:
    """Remove the jobs of a queue that is gone."""
    while (yield from remove_orphans(queue_id)):
        pass
    after: int | None = 0
    for _ in range(LOOKED_THROUGH // BATCH):
        if after is not None:
            after = yield from remove_orphan_jobs(queue_id, after)


@operation
def remove_orphans(queue_id: int) -> Statements[int]:
    """Remove a batch of the jobs that have not ended of a queue that is gone; return how many went."""
    ((gone, _told),) = yield "orphans", {"queue": queue_id, "size": BATCH}
    return int(gone)


@operation
def remove_orphan_jobs(queue_id: int, after: int) -> Statements[int | None]:
    """Remove the finished jobs of a queue that is gone among a batch behind ``after``; return where to go on."""
    ((last, _),) = yield "orphan_jobs", {"queue": queue_id, "after": after, "size": BATCH}
    return int(last) if last is not None else None


def _keep_writers_out(params: Mapping[str, Any]) -> Statements[bool]:
    """Lock a queue against writers, for the rest of the transaction; return whether there is one.

    A writer sees the lock in the queue's row at once and waits for it. One that read the row before holds the lock of
    the table of jobs by then: when all of these have ended, what a look finds is all there is.
    """
    for _ in range(LOOKS):
        if locked := (yield "queue_lock", params):
            break
        if (yield from find(params["project"], params["name"])) is None:
            return False
        yield from writer_steps(pause=PAUSE)
    else:
        raise QueueBusy(params["name"], "another session deletes it, or adds many jobs in a transaction")
    ((_, isolation),) = locked
    if isolation != "read committed":
        raise InvalidOption(
            f"a transaction of isolation level {isolation} does not see the jobs that others commit meanwhile: delete"
            f" {params['name']!r} outside of it, or in one that is READ COMMITTED."
        )
    writers = yield from writer_steps()
    known = [writer.transaction for writer in writers]
    for _ in range(LOOKS):
        if not known:
            return True
        writers = yield from writer_steps(pause=PAUSE)
        known = still_open(known, writers)
    named = " and ".join([str(writer) for writer in writers if writer.transaction in known][:NAMED])
    raise QueueBusy(params["name"], f"transactions that add or remove jobs are open, {named}")


def _see_empty(params: Mapping[str, Any]) -> Statements[None]:
    for (empty,) in (yield "queue_empty", {**params, "ended": True}):
        if not empty:
            raise InvalidOption(f"{params['name']!r} is not empty.")


@operation
def pause(name: str, *, project: str = "", paused: bool = True) -> Statements[None]:
    """Pause a queue (claims get nothing; enqueue and settle go on), or resume it."""
    check_place(project, name)
    rows = yield "queue_pause", {"project": project, "name": name, "paused": paused}
    if not rows:
        raise QueueNotFound(name, project)


@operation
def set_metadata(name: str, metadata: dict[str, Any], *, project: str = "") -> Statements[None]:
    """Replace the metadata of a queue."""
    text = codec.dumps(presets.check_options({"metadata": metadata})["metadata"], "metadata")
    rows = yield "queue_metadata", {"project": project, "name": name, "metadata": text}
    if not rows:
        raise QueueNotFound(name, project)


class Writer(NamedTuple):
    """An open transaction that has written jobs or is about to.

    ``pid`` is ``None`` for a prepared transaction, ``name`` its name or the application of a session; ``seconds``: its
    age, ``None`` where that is not visible.
    """

    transaction: str
    pid: int | None
    name: str
    seconds: float | None

    def __str__(self) -> str:
        age = "" if self.seconds is None else f", open for {span(self.seconds)}"
        if self.pid is None:
            return f"the prepared transaction {self.name!r}{age}"
        return f"pid {self.pid} ({self.name or 'no application_name'}{age})"


def writer_steps(*, looking: bool = False, pause: float = 0.0) -> Statements[list[Writer]]:
    """Find the writers, after ``pause`` seconds; with ``looking`` also who may only be about to write."""
    return [Writer(*row) for row in (yield "queue_writers", {"looking": looking, "pause": pause})]


def still_open(known: Collection[str], now: Iterable[Writer]) -> list[str]:
    """Return which of the ``known`` transactions may still be open ``now``."""
    sessions = {writer.transaction for writer in now if writer.pid is not None}
    prepared = {writer.transaction for writer in now if writer.pid is None}
    left = set(known) & (sessions | prepared)
    if left != set(known):  # after a restart of the server a prepared one goes on under another name
        left |= prepared
    return sorted(left)
