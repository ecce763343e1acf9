"""Paused tasks: their jobs are enqueued and due as ever, and workers give them back instead of starting them."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import NamedTuple

from ...exceptions import InvalidOption
from ..leases.sweep import promote
from ..limits import MAX_PROJECT_BYTES, check_text
from ..operation import Statements, operation

#: Tasks of a project that are paused at most; bytes of a task's name.
MOST, MAX_NAME_BYTES = 1_000, 512
#: Jobs that one statement looks at, and such statements of a resume: the workers, which hear of it, do the rest.
BATCH, ROUNDS = 1_000, 10


class PausedTask(NamedTuple):
    """A task that has been paused for ``seconds``; ``paused_by`` is empty where the host's own code did it."""

    project: str
    name: str
    paused_at: datetime
    paused_by: str
    seconds: float


@operation
def list_paused(
    project: str | None = None, *, name: str | None = None, size: int = MOST
) -> Statements[list[PausedTask]]:
    """Read the paused tasks, by name, of one project or of all."""
    return [PausedTask(*row) for row in (yield "task_pauses", {"project": project, "name": name, "size": size})]


@operation
def pause_task(name: str, *, project: str = "", by: str = "") -> Statements[bool]:
    """Let no further job of a task start; return False if it is paused already."""
    _check(name, project)
    if len((yield from list_paused(project))) >= MOST:
        raise InvalidOption(f"At most {MOST} tasks of a project are paused: resume some, or pause their queues.")
    return bool((yield "task_pause", {"project": project, "name": name, "by": by}))


@operation
def resume_task(name: str, *, project: str = "") -> Statements[bool]:
    """End the pause of a task and make due what its workers gave back; return False if it is not paused."""
    _check(name, project)
    if not (yield "task_resume", {"project": project, "name": name}):
        return False
    yield from make_due(name, project, ROUNDS)
    return True


@operation
def make_due(name: str, project: str, rounds: int | None = None) -> Statements[None]:
    """Make ready what workers gave back unstarted of a task, all or so many batches; its other delays stay."""
    last: int | None = 0
    for _ in count() if rounds is None else range(rounds):
        ((last, queues),) = yield "task_due", {"project": project, "name": name, "after": last, "size": BATCH}
        if queues:
            yield from promote(queues, 1)
        if last is None:
            return


def _check(name: str, project: str) -> None:
    check_text(name, "the name of a task", MAX_NAME_BYTES)
    check_text(project, "project", MAX_PROJECT_BYTES, 0)
