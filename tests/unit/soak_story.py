"""Made-up evidence for the soak's oracle."""

from __future__ import annotations

from typing import Any

from tests.soak.evidence import SECOND
from tests.soak.oracle import Oracle, Row

LEASE = 4.0
_LATER = 10**6


class Story:
    """Made-up evidence; times in seconds."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        for pid, role in ((1, "producer"), (11, "worker1"), (12, "worker2"), (2, "faults"), (3, "readers")):
            self.say("hello", 0, role, pid, who=f"{pid}.x")

    def say(self, kind: str, at: float, *values: Any, who: str = "2.x") -> None:
        self.entries.append([kind, round(at * SECOND), who, *values])

    def job(self, number: int, at: float = 1.0, *, mode: str = "plain", end: str = "committed") -> None:
        self.say("try", at, [[number, "sure", mode]], who="1.x")
        if end:
            self.say(end, at + 0.1, [number], who="1.x")

    def start(
        self, number: int, at: float, *, pid: int = 11, delivery: int = 1, claimed: float | None = None,
        queue: str = "sure", seq: int | None = None, alone: bool = False,
    ) -> None:  # fmt: skip
        begun = at - 0.01 if claimed is None else claimed
        lease = (round(begun * SECOND), round((begun + LEASE) * SECOND))
        self.say("start", at, number, seq or number, delivery, 100 + delivery, *lease, 1, queue, alone, who=f"{pid}.x")

    def end(self, number: int, at: float, *, pid: int = 11, delivery: int = 1, how: str = "done") -> None:
        self.say("end", at, number, 100 + delivery, how, 1, who=f"{pid}.x")

    def told(self, number: int, at: float, *, pid: int = 11, delivery: int = 1) -> None:
        self.say("told", at, number, 100 + delivery, "lease_lost", who=f"{pid}.x")

    def run(self, number: int, at: float, **options: Any) -> None:
        self.start(number, at, **options)
        self.end(number, at + 0.1, pid=options.get("pid", 11), delivery=options.get("delivery", 1))

    def read_claims(self, *claims: int) -> None:
        self.say("events", 90, [[claim, 1, 2, claim, 0, 0, [1]] for claim in claims], who="3.x")
        self.say("there", 91, "events", [[claim, claim] for claim in claims])

    def verdict(self) -> Oracle:
        """Everything in one look, at the end."""
        self.read_claims(101, 102)
        oracle = Oracle(forgetful=["swift"], sure=["log"], readers=["r1"], workers=["worker1", "worker2"])
        oracle.hear(self.entries)
        oracle.finish(_LATER * SECOND)
        return oracle

    def promise(self) -> str:
        found = {one.promise for one in self.verdict().broken}
        assert len(found) == 1, found
        return found.pop()

    def clean(self) -> dict[str, Row]:
        oracle = self.verdict()
        assert oracle.broken == []
        return oracle.rows
