"""The worker's own limits: so many jobs of a queue at once in one process, whose other threads stay for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..engine import LeasedJob
from ..engine.leases.floor import ClaimCursor
from .patterns import best
from .queue_names import QueueNames
from .state import WorkerState


class QueueLimits:
    """Tells the fetcher how many jobs of limited queues it may claim. For its thread.

    A queue at its limit is left out of claims, so that no turn of it is taken, and other workers have its jobs.
    """

    def __init__(self, state: WorkerState, cursor: ClaimCursor) -> None:
        self._state, self._cursor = state, cursor
        self._limits = state.options.limits
        #: The queues of which the last claims brought all that their limits allowed.
        self.capped: frozenset[str] = frozenset()
        self._capped_before = self.capped

    def begin(self) -> None:
        """Begin to claim from every queue."""
        self.capped = frozenset()
        self._cursor.cut = False  # of the last claim: if every queue is at its limit there is none

    def open(self, names: Sequence[str]) -> tuple[list[str], dict[str, int]]:
        """Return the queues that are not at their limit, and how many jobs of limited ones may be claimed."""
        room = self._room(names)
        self._cap(name for name, most in room.items() if not most)
        return [name for name in names if room.get(name) != 0], room

    def note(self, room: dict[str, int], jobs: Sequence[LeasedJob]) -> None:
        """Note what a claim brought that had so much room."""
        if room:
            came = Counter(job.queue for job in jobs)
            self._cap(name for name, most in room.items() if came[name] >= most)

    def sleep(self, seconds: float) -> bool:
        """Sleep until a wake, which the end of each job is too while a queue is capped; return whether one came."""
        alarm = self._state.buffer.fetcher
        return alarm.doze(seconds, self._freed) if self.capped else alarm.wait(seconds)

    def _freed(self) -> bool:
        """Return whether one of the capped queues has room again, or the worker stops."""
        return self._state.draining.is_set() or any(self._room(self.capped).values())

    def open_ids(self, queues: QueueNames) -> list[int]:
        """Return the ids of the queues that are not capped; if these have changed, what is due is read again."""
        if self.capped != self._capped_before:
            self._capped_before, self._state.due_changed = self.capped, True
        return [queue_id for queue_id, name in zip(queues.ids, queues.names, strict=True) if name not in self.capped]

    def _cap(self, names: Iterable[str]) -> None:
        self.capped |= frozenset(names)
        self._cursor.skip(self.capped)

    def _room(self, names: Iterable[str]) -> dict[str, int]:
        """Return the limits of the limited queues without the jobs that are held or run."""
        limits = {name: self._limits[entry] for name in names if (entry := best(name, self._limits)) is not None}
        if not limits:
            return {}
        # A run whose lease was lost is not held any more, and goes on until it heeds that.
        jobs = [*list(self._state.held.values()), *(control.job for control, _ in self._state.running())]
        taken = Counter({(job.seq, job.token): job.queue for job in jobs}.values())
        return {name: max(0, limit - taken[name]) for name, limit in limits.items()}
