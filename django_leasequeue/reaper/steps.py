"""Removes the steps of jobs that are gone."""

from __future__ import annotations

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
            ((after, _),) = turn.fetch("step_forget", {"after": after, "size": BATCH})
        self._after = 0
