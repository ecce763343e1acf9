"""Figures of limits and workflows for operators. Every read is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from .. import arrays
from ..limits import MAX_PROJECT_BYTES, check_count, check_text
from ..operation import Steps, operation
from .limits import LimitValues
from .workflows import MAX_NODES, MAX_PAGE, NodeRow, workflow_nodes

#: Limits of one page.
MAX_LIMITS = 100
#: Keys of a limit that are looked at, and jobs of a limit (in a list) or of a key that are counted.
MAX_KEYS, CAP, KEY_CAP = 1_000, 1_000, 200


class LimitFigures(NamedTuple):
    """A limit with its figures.

    ``keys`` are counted up to ``MAX_KEYS``. Of these, ``waiting`` (jobs that wait for their turn) and ``taken`` (slots
    that ready and running jobs have) are counted up to ``CAP``. One more stands for whatever is more.
    """

    id: int
    project: str
    name: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    burst: int
    fair: bool
    pinned: bool
    updated_at: datetime
    keys: int
    waiting: int
    taken: int

    @property
    def values(self) -> LimitValues:
        """The values of the limit."""
        return LimitValues.of(self)


class KeyFigures(NamedTuple):
    """A key of a limit: jobs that wait for it, slots of it that are taken; ``KEY_CAP`` and one stand for more."""

    key: str
    waiting: int
    taken: int


class BusyKeys(NamedTuple):
    """The busiest of some keys of a limit.

    ``looked_at`` keys up to ``last`` were looked at, for which ``waiting`` jobs wait and which have ``taken`` slots.
    ``more``: whether there may be keys behind them.
    """

    keys: list[KeyFigures]
    looked_at: int
    last: str | None
    waiting: int
    taken: int

    @property
    def more(self) -> bool:
        """Whether there may be further keys."""
        return self.looked_at == MAX_KEYS


def allows(values: LimitValues) -> str:
    """Return what a limit allows each of its keys, in words."""
    parts = [] if values.concurrency is None else [f"{values.concurrency:,} at a time"]
    if values.rate is not None and values.per_ms is not None:
        parts.append(f"{values.rate:,} in {values.per_ms / 1000:g} s")
    if values.burst:
        parts.append(f"{values.burst:,} more at once")
    if values.fair:
        parts.append("keys take turns")
    return ", ".join(parts) or "everything"


def changed(before: LimitValues, after: LimitValues) -> dict[str, list[Any]]:
    """Return the values that differ, each before and after."""
    old, new = asdict(before), asdict(after)
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}


@operation
def list_limits(
    *,
    project: str | None = None,
    after: tuple[str, str] | None = None,
    ids: Sequence[int] | None = None,
    size: int = 50,
) -> Steps[list[LimitFigures]]:
    """Return limits with their figures, by project and name."""
    after_project, after_name = after or (project or "", "")
    for text, what in ((project, "the project"), (after_project, "the project"), (after_name, "the name of a limit")):
        if text is not None:
            check_text(text, what, MAX_PROJECT_BYTES, 0)
    params = {
        "project": project,
        "ids": None if ids is None else arrays.integers(ids),
        "after_project": after_project,
        "after_name": after_name,
        "size": check_count(size, "size", MAX_LIMITS, 1),
        "keys": MAX_KEYS + 1,
        "cap": CAP + 1,
    }
    return [LimitFigures._make(row) for row in (yield "limit_list", params)]


@operation
def busy_keys(limit: int, *, after: str = "", most: int = 20) -> Steps[BusyKeys]:
    """Return the busiest of the next ``MAX_KEYS`` keys of a limit, the one that most jobs wait for first."""
    params = {
        "limit": limit,
        "after": check_text(after, "the key of a limit", MAX_PROJECT_BYTES, 0),
        "size": MAX_KEYS,
        "cap": KEY_CAP + 1,
        "most": check_count(most, "most", MAX_KEYS, 1),
    }
    rows = yield "limit_busy", params
    return BusyKeys([KeyFigures._make(row[4:]) for row in rows if row[4] is not None], *rows[0][:4])


@operation
def workflow_queues(workflow: int) -> Steps[list[str | None]]:
    """Return the names of the queues that the jobs of a workflow are in; ``None`` for one that is gone."""
    return [name for (name,) in (yield "workflow_queues", {"workflow": workflow})]


@operation
def every_node(workflow: int) -> Steps[list[NodeRow]]:
    """Return all nodes of a workflow, without results, in the order of their places."""
    found: list[NodeRow] = []
    while len(found) % MAX_PAGE == 0 and len(found) < MAX_NODES:
        page = yield from workflow_nodes(workflow, after=found[-1].seq if found else 0, size=MAX_PAGE, results=False)
        if not page:
            break
        found += page
    return sorted(found, key=lambda node: node.place)
