"""Removing large payloads and results from their storages: those of jobs that are gone, and those that no job got."""

from __future__ import annotations

from ..engine import arrays
from ..engine.large import store
from .duty import Turn

#: Seconds after which an object that no job got is removed: longer than any upload, shorter than a day.
GRACE = 6 * 3_600.0
#: Objects of one statement, and statements of one turn that look for gone jobs.
BATCH, PAGES = 1_000, 10
#: Objects that are removed at a time: each is a request to the storage.
REMOVED = 100


class LargeObjects:
    """The duty. It walks over all objects, some thousands a turn, and begins anew at the end.

    An object is marked first, by a statement that no job can overlook; then it is removed from its storage; then it is
    forgotten. A reaper that dies in between leaves it marked, and the next one goes on. Nothing of a storage is listed.
    """

    def __init__(self) -> None:
        #: The last ids of the walk over all objects, and of that over those that could not be removed.
        self._after = self._behind = 0

    def __call__(self, turn: Turn) -> bool:
        """Do one turn; return whether there is more to remove at once."""
        for _ in range(PAGES):
            ((looked_at, last),) = turn.fetch("large_left", {"after": self._after, "size": BATCH})
            self._after = last if looked_at == BATCH else 0
            if looked_at < BATCH:
                break
        rows = turn.fetch("large_unused", {"grace": GRACE, "after": self._behind, "size": REMOVED})
        gone = store.remove(rows)
        if gone:
            turn.fetch("large_forget", {"ids": arrays.integers(gone)})
        self._behind = max(number for number, *_ in rows) if len(gone) < len(rows) else 0
        return len(gone) == len(rows) >= REMOVED
