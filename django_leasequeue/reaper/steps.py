"""Removes the steps of jobs that are gone, and wakes what waits for an event that has come."""

from __future__ import annotations

from ..engine.jobs.events import emit_ended
from ..engine.jobs.steps import forget_steps, wake_waiting
from .duty import Turn

#: Steps of one statement.
BATCH = 1_000


class JobSteps:
    """Walks the table of steps from its beginning to its end, in several turns if it is large."""

    def __init__(self) -> None:
        self._after = 0

    def __call__(self, turn: Turn) -> None:
        after: int | None = self._after
        while after is not None:
            self._after = after
            after = turn.run(forget_steps(after, BATCH))
        self._after = 0


class MissedEvents:
    """Looks at what waits, a batch a turn: an emit in a transaction with an old snapshot does not see a new wait."""

    def __init__(self) -> None:
        self._after = ("", "", 0)

    def __call__(self, turn: Turn) -> None:
        event, project, seq = self._after
        rows = turn.fetch("step_waiting", {"event": event, "project": project, "seq": seq, "size": BATCH})
        if rows:
            turn.run(wake_waiting([seq for *_, seq in rows]))
        self._after = rows[-1] if len(rows) == BATCH else ("", "", 0)


def awaited_results(turn: Turn) -> None:
    """Wake the jobs that wait for others that have ended."""
    after: tuple[str, str] | None = ("", "")
    while after is not None:
        after = turn.run(emit_ended(after, BATCH))


def forget_events(turn: Turn) -> None:
    """Remove the events whose time is over."""
    while turn.fetch("event_forget", {"size": BATCH})[0][0] == BATCH:
        pass
