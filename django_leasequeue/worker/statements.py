"""Operations on the database that only a worker carries out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from ..engine import arrays, codec
from ..engine.limits import MAX_BATCH
from ..engine.operation import Steps, operation
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound

#: Queues that a worker of all queues takes at most.
MAX_QUEUES = 10_000


@operation
def read_queues(project: str, names: Sequence[str] | None) -> Steps[dict[str, int]]:
    """Read the ids of queues by name; ``None`` for all of the project. Names that are no queue are left out."""
    rows = yield (
        "worker_queues",
        {"project": project, "names": None if names is None else arrays.texts(names), "size": MAX_QUEUES},
    )
    return {name: queue_id for queue_id, name in rows}


@operation
def make_queues(project: str, names: Sequence[str], using: str | None = None) -> Steps[None]:
    """Make queues that are not there, as their first job would; without ``AUTO_CREATE`` only the declared ones."""
    for name in names:
        with suppress(QueueNotFound):
            yield from make_declared(project, name, using=using)


@operation
def until_due(queue_ids: Sequence[int]) -> Steps[tuple[float | None, float | None]]:
    """Read how many seconds are left until the first delayed job is due, and until the first lease expires."""
    rows = yield "worker_due", {"queues": arrays.integers(queue_ids)}
    ((due, expires),) = rows
    return due, expires


@operation
def name_session(name: str) -> Steps[None]:
    """Name the connection for ``pg_stat_activity``."""
    yield "worker_session", {"name": name}


@operation
def check_writable() -> Steps[None]:
    """Raise ``psycopg.errors.ReadOnlySqlTransaction`` where nothing can be written, as what writes would."""
    ((writable,),) = yield "worker_writable", {}
    if not writable:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")


@operation
def read_strays(
    queue_ids: Sequence[int] | None, node: str, known: Sequence[int], size: int = MAX_BATCH
) -> Steps[list[tuple[int, int]]]:
    """Read (seq, token) of jobs that a node holds whose token is none of the ``known``: their answer never came."""
    queues = None if queue_ids is None else arrays.integers(queue_ids)
    rows = yield "worker_strays", {"queues": queues, "node": node, "known": arrays.integers(known), "size": size}
    return [(seq, token) for seq, token in rows]


class Presence(NamedTuple):
    """A worker's word of itself."""

    node: str
    host: str
    pid: int
    project: str
    queues: Sequence[str]
    concurrency: int
    state: str
    age: float
    completed: int
    failed: int
    retried: int
    lost: int
    running: list[dict[str, Any]]
    info: dict[str, Any]


@operation
def say_presence(presence: Presence) -> Steps[bool]:
    """Write the worker's row; return whether an operator asked it to stop."""
    values = presence._asdict()
    values["queues"] = arrays.texts(presence.queues)
    values["running"] = codec.dumps(presence.running)
    values["info"] = codec.dumps(presence.info)
    rows = yield "worker_seen", values
    return rows[0][0] is not None


@operation
def say_goodbye(node: str) -> Steps[None]:
    """Remove the worker's row."""
    yield "worker_gone", {"node": node}
