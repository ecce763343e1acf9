"""The figures that a worker counts."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass

_lock = threading.Lock()


@dataclass(slots=True)
class WorkerFigures:
    """Counts since the start."""

    #: Jobs claimed.
    claimed: int = 0
    #: Done, the database said ok.
    completed: int = 0
    #: Failed for good, or dead after the last try.
    failed: int = 0
    #: Failed, to be tried again.
    retried: int = 0
    #: Given back: not started, or stopped with the worker.
    returned: int = 0
    #: Sleeping, or waiting for an event.
    suspended: int = 0
    #: Leases that were gone before the job was settled.
    lost: int = 0

    def add(self, **counts: int) -> None:
        """Add to counts, from any thread."""
        with _lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    @property
    def settled(self) -> int:
        """Runs that have ended."""
        return self.completed + self.failed + self.retried

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
