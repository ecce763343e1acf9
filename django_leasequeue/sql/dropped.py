"""The note on the lease log that tells what retention has dropped of it. Needs no Django: streams read it."""

from __future__ import annotations

import json
from typing import NamedTuple

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
