"""The plan: which fault comes when, and at whom. A pure function of the seed, so that a run can be repeated."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

#: Roles of the crew. The first two workers reach PostgreSQL directly, the others through a proxy each.
WORKERS = ("worker1", "worker2", "worker3", "worker4")
BEHIND_PROXY = ("worker3", "worker4")
WEB_WORKERS = ("web1", "web2")
WEB_SERVER = "http"
#: Consumers that share a buffer.
FOLDED = "folded"

#: Seconds before the first fault, and after the last.
WARM_UP, COOL_DOWN = 6.0, 6.0

Length = tuple[float, float]


class Fault(NamedTuple):
    """A kind of fault: how long it lasts, and whom it can meet (nobody: the server, and so all)."""

    name: str
    length: Length = (0.0, 0.0)
    roles: tuple[str, ...] = ()


SERVER = (
    Fault("postmaster killed", (0.2, 3.0)), Fault("backend killed"), Fault("stopped immediately", (0.2, 4.0)),
    Fault("restarted"), Fault("disk full", (3.0, 6.0)), Fault("connections exhausted", (3.0, 7.0)),
    Fault("statement timeout", (3.0, 6.0)), Fault("backends terminated"), Fault("tables locked", (1.0, 7.0)),
    Fault("snapshot held", (6.0, 12.0)), Fault("transaction held open", (3.0, 7.0)), Fault("read only", (2.0, 5.0)),
)  # fmt: skip
CREW = (
    Fault("worker killed", (0.1, 2.0), WORKERS), Fault("worker stopped", (4.5, 8.0), WORKERS),
    Fault("worker hung", (6.0, 9.0), BEHIND_PROXY), Fault("worker refused", (3.0, 8.0), BEHIND_PROXY),
    Fault("worker cut", (0.0, 0.0), BEHIND_PROXY), Fault("worker asked to end", (0.0, 0.0), WORKERS),
    Fault("task: exit", (1.0, 2.0)), Fault("task: crash", (1.0, 2.0)), Fault("task: strike", (1.0, 2.0)),
    Fault("task: memory", (1.0, 2.0)), Fault("task: deaf", (0.0, 0.0), WORKERS),
    Fault("web worker killed", (0.1, 2.0), (*WEB_WORKERS, FOLDED)),
    Fault("web worker stopped", (4.5, 8.0), WEB_WORKERS),
    Fault("web worker hung", (6.0, 9.0), ("web1",)), Fault("web worker refused", (3.0, 7.0), ("web1",)),
    Fault("web worker cut", (0.0, 0.0), ("web1",)), Fault("web server killed", (0.1, 2.0), (WEB_SERVER,)),
    Fault("web server asked to end", (0.0, 0.0), (WEB_SERVER,)),
)  # fmt: skip
#: What changes the world around the queue; a track of its own, so that the plans of the others stay as they are.
WORLD = (
    Fault("clean failover"), Fault("lossy failover", (0.2, 1.5)), Fault("clock forward"), Fault("clock back"),
    Fault("statements cancelled", (3.0, 5.0)), Fault("queue paused", (2.0, 5.0)),
    Fault("second server away", (0.2, 5.0)),
)  # fmt: skip
#: Seconds between two faults of a track: the server gets time to be seen to come back.
GAPS: dict[tuple[Fault, ...], Length] = {SERVER: (4.5, 6.5), CREW: (1.0, 3.0), WORLD: (3.0, 5.0)}
#: Shorter runs have no such track.
WORLD_MINUTES = 2.0


class Step(NamedTuple):
    """One fault of the plan: when (seconds since the begin), at whom, for how long; ``chance`` chooses what is left."""

    number: int
    at: float
    fault: str
    role: str
    seconds: float
    chance: float

    def __str__(self) -> str:
        whom = f" at {self.role}" if self.role else ""
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:7.1f} s  #{self.number} {self.fault}{whom}{lasting}"


def plan(
    seed: int, minutes: float, without: Collection[str] = (), only: Collection[str] | None = None
) -> list[list[Step]]:
    tracks = []
    for place, (faults, gap) in enumerate(GAPS.items()):
        chosen = [fault for fault in faults if only is None or fault.name in only]
        if not chosen or (faults is WORLD and only is None and minutes < WORLD_MINUTES):
            continue
        steps = _track(chosen, gap, random.Random(f"{seed}/{place}"), minutes * 60)
        tracks.append([step for step in steps if step.fault not in without])
    numbered = {step: number for number, step in enumerate(in_time(tracks), 1)}
    return [[step._replace(number=numbered[step]) for step in track] for track in tracks]


def in_time(tracks: Iterable[Iterable[Step]]) -> list[Step]:
    return sorted(itertools.chain(*tracks), key=lambda step: step.at)


def _track(track: Sequence[Fault], gap: Length, dice: random.Random, seconds: float) -> Iterator[Step]:
    at = WARM_UP
    while True:
        # Every kind once in each round.
        for fault in dice.sample(track, len(track)):
            lasts = round(dice.uniform(*fault.length), 1)
            role = dice.choice(fault.roles) if fault.roles else ""
            step = Step(0, round(at, 1), fault.name, role, lasts, dice.random())
            if at + lasts > seconds - COOL_DOWN:
                return
            yield step
            at += lasts + dice.uniform(*gap)
