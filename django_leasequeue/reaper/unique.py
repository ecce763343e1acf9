"""Removes the keys of unique jobs that are gone."""

from __future__ import annotations

from .duty import Turn

#: Keys of one statement.
BATCH = 1_000


class UniqueKeys:
    """Walks the table of unique keys from its beginning to its end, in several turns if it is large."""

    def __init__(self) -> None:
        self._after: tuple[int, str] = (0, "")

    def __call__(self, turn: Turn) -> None:
        queue, key = self._after
        while rows := turn.fetch("unique_expire", {"queue": queue, "key": key, "size": BATCH}):
            queue, key, _ = rows[0]
            self._after = (queue, key)
        self._after = (0, "")
