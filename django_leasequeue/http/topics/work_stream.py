"""One worker's ``/work`` stream: the jobs that it holds, and what its client is told."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...engine import LeasedJob
from ...engine.leases.cohort import Claimer
from ...engine.leases.sweep import Standing
from ...models import JobFlag
from ..access import Access
from ..streaming import Stream, frame
from .base import leased

if TYPE_CHECKING:
    from .hub import WorkHub

_numbers = itertools.count(1)


class WorkStream(Stream):
    """One worker's stream, which may hold ``size`` jobs at once."""

    def __init__(
        self, hub: WorkHub, node: str, size: int, lease_ms: int | None, recheck: Callable[[], Awaitable[Any]],
        access: Access,
    ) -> None:  # fmt: skip
        super().__init__(recheck)
        self.access = access
        self.number = next(_numbers)
        self._hub = hub
        self.claimer = Claimer(node, size, lease_ms, f"{hub.channel}:{self.number}")
        #: seq -> token, and when it ends by this process's clock.
        self.held: dict[int, int] = {}
        #: Whether it waits in a cohort.
        self.joining = False
        self._paced_until = 0.0
        self.ends: dict[int, float] = {}
        #: seq -> lease id, of jobs of workflows: these can be cancelled while the client has them.
        self.members: dict[int, str] = {}

    @property
    def free(self) -> int:
        return self.claimer.size - len(self.held)

    @property
    def hungry(self) -> bool:
        return super().hungry and time.monotonic() >= self._paced_until

    def opened(self) -> None:
        self._hub.enter(self)

    def advise_pace(self, message: str, seconds: float) -> None:
        """Say once that requests are refused, and send no job until they are taken again: its ack would be refused."""
        now = time.monotonic()
        if now >= self._paced_until:
            self._paced_until = now + seconds
            self.push(frame("error", {"code": 429, "message": message, "retry_after_ms": round(seconds * 1000)}))
            asyncio.get_running_loop().call_later(seconds, self._hub.wake)

    def wants(self) -> None:
        self._hub.wake()

    def left(self) -> Awaitable[Any] | None:
        return self._hub.leave(self)

    def give(self, topic: str, jobs: Iterable[LeasedJob]) -> None:
        now = time.monotonic()
        for job in jobs:
            self.held[job.seq] = job.token
            self.ends[job.seq] = now + job.deadline_epoch - job.claimed_epoch
            answer = leased(job)
            if job.flags & JobFlag.FLOW:
                self.members[job.seq] = answer["lease_id"]
            self.push(frame("job", {"topic": topic, **answer}, str(job.seq)))

    def keep(self, topic: str, asked: Iterable[int], standing: dict[int, Standing]) -> None:
        """Forget those of the leases asked about that do not stand any more; announce the cancelled ones, once each."""
        now = time.monotonic()
        for seq in asked:
            if seq not in standing:
                self.held.pop(seq, None)
                self.ends.pop(seq, None)
                self.members.pop(seq, None)
                continue
            self.ends[seq] = now + standing[seq].seconds
            if standing[seq].cancelled and (lease_id := self.members.pop(seq, None)) is not None:
                self.push(frame("cancel", {"topic": topic, "$seq": seq, "lease_id": lease_id}))
