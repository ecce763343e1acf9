"""The starts of the jobs under a rate: how many there were in which time, and how many there could have been."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from .evidence import SECOND

#: How long after its claim a worker may start a job under a rate.
LATE = SECOND // 25
#: A rate is measured in parts of so many times its length, in as many parts at least, and so much of it is to be kept.
PART, PARTS, KEPT = 3, 3, 0.9


@dataclass(slots=True)
class Pace:
    #: Starts, and the nanoseconds in which so many are allowed.
    rate: int
    per: int
    tries: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    #: The last starts, one more than are allowed in that time.
    last: list[int] = field(default_factory=list)
    #: From when to when each of them waited.
    waits: list[tuple[int, int]] = field(default_factory=list)
    #: Of the parts in which jobs waited all the time and nothing was done to anybody: how many, and the starts in them.
    parts: int = 0
    started: int = 0

    @property
    def kept(self) -> float:
        return self.started / (self.parts * PART * self.rate) if self.parts else 1.0

    def measure(self, calm: Callable[[int, int], bool]) -> None:
        """Count the starts of each part in which one more job waited at any time."""
        spans: list[tuple[int, int]] = []
        for since, until in sorted(self.waits):
            first, last = spans.pop() if spans and since <= spans[-1][1] else (since, until)
            spans.append((first, max(last, until)))
        starts, length = sorted(self.starts.values()), PART * self.per
        for begin, end in spans:
            for at in range(begin, end - length, length):
                if calm(at, at + length):
                    self.parts += 1
                    self.started += bisect_right(starts, at + length) - bisect_right(starts, at)
