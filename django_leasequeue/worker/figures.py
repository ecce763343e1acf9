"""What a worker counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Figures:
    """Counts since the start. Each is changed by one thread only."""

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
    #: Leases that were gone before the job was settled.
    lost: int = 0
    #: Times that a connection was lost.
    disconnects: int = 0

    @property
    def settled(self) -> int:
        """Runs that have ended."""
        return self.completed + self.failed + self.retried

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
