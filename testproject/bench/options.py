"""What a run of the benchmark does: one size that everything scales with."""

from __future__ import annotations

from dataclasses import dataclass

#: The tenant that holds the benchmark's queues. Everything in it is deleted before and after each run.
PROJECT = "leasequeue-bench"

SIZE, QUICK_SIZE = 20_000, 2_000
#: Durable steps of a job that has some.
STEPS = 5
ROUNDS, QUICK_ROUNDS = 3, 2
MIN_SIZE, MAX_SIZE = 100, 1_000_000
MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of one run.

    Args:
        using: alias of the database.
        size: jobs of one round of the larger measurements; the counts below follow from it.
        rounds: how often each measurement and its ceiling are taken in turn.
    """

    using: str = "default"
    size: int = SIZE
    rounds: int = ROUNDS

    @property
    def singles(self) -> int:
        """Jobs of one round where each takes a transaction of its own; tries of the latency modes."""
        return max(10, self.size // 20)

    @property
    def small_backlog(self) -> int:
        """Jobs that wait in the small backlog."""
        return max(200, self.size // 2)

    @property
    def large_backlog(self) -> int:
        """Jobs that wait in the large backlog; delayed jobs in the way of a claim."""
        return self.size * 50

    @property
    def steady(self) -> int:
        """Jobs of the steady production and consumption."""
        return self.size * 5 // 2

    @property
    def crowd(self) -> int:
        """Jobs that several workers do beside a held snapshot."""
        return self.size * 15

    @property
    def long(self) -> int:
        """Jobs of the memory mode."""
        return self.size * 5
