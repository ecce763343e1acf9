"""Notes on the lease log, also for Spark, which has no Django: the warning after a restore, what retention dropped."""

from __future__ import annotations

import json
from typing import NamedTuple

#: Rows of the lease log that are counted.
COUNTED = 100_000
#: The command that begins an epoch.
COMMAND = "manage.py leasequeue_restored"


def waiting_text(above: int) -> str:
    """Return what is wrong, and what to do; ``above``: rows of the log above the horizon."""
    count = f"more than {COUNTED:,}" if above >= COUNTED else f"{above:,}"
    return (
        f"This database was restored from a copy, and {count} rows of the lease log lie above the horizon: readers wait"
        f" for them. Run '{COMMAND}' as the owner of the tables, or start a worker of that role."
    )


_BEGINS = "leasequeue: retention dropped "


class DroppedEvents(NamedTuple):
    """The events of the log that are gone, in the order in which streams read."""

    #: The last one that went, ``(txid, id)``; ``None`` where none did.
    to: tuple[int, int] | None = None
    #: The number under which retention left none.
    below: int = 0

    @classmethod
    def read(cls, note: str | None) -> DroppedEvents:
        """Return what a note tells; nothing is gone where there is none."""
        if note is None or not note.startswith(_BEGINS):
            return cls()
        told = json.loads(note.removeprefix(_BEGINS))
        to = None if told["to"] is None else (told["to"][0], told["to"][1])
        return cls(to, told["below"])

    def note(self) -> str:
        return _BEGINS + json.dumps(self._asdict())

    def and_also(self, last: tuple[int, int] | None, below: int) -> DroppedEvents:
        """Return what is gone after one more partition is: its last event, and the number below which it ended."""
        to = max((each for each in (self.to, last) if each is not None), default=None)
        return DroppedEvents(to, max(self.below, below))
