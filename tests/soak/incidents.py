"""What the faults did, and which of them explains that something happened."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import partialmethod
from typing import NamedTuple

from .evidence import SECOND

#: How long a fault can still be the cause of something after its end: the longest lease, and some seconds.
ECHO = 16 * SECOND
FOR_EVER = 1 << 62
#: So often a machine that has time lets a process wait in the time in which a rate is measured.
FEW = 9
#: What it may take to notice that a process has ended.
NOTICING = SECOND
#: What the names of faults begin with beside which the server works, and workers hear of everything.
HARMLESS = ("task", "snapshot", "transaction", "queue", "clock")


class Death(NamedTuple):
    """When a process ended, and why; ``sure`` if whoever ended it said so, else it was noticed."""

    at: int
    cause: str
    sure: bool


@dataclass(slots=True)
class Window:
    begin: int
    end: int = FOR_EVER
    name: str = ""
    roles: frozenset[str] = frozenset()

    def meets(self, begin: int, end: int, echo: int = 0) -> bool:
        """Whether it, or what is left of it for a while, lies partly between two moments."""
        return self.begin <= end and self.end + echo > begin


@dataclass(slots=True)
class Process:
    role: str
    pid: int
    since: int
    stops: list[Window] = field(default_factory=list)
    death: Death | None = None


class Incidents:
    def __init__(self) -> None:
        self._processes: dict[str, Process] = {}
        self._windows: dict[int, Window] = {}
        self.crashes: list[int] = []
        #: When the server's clock was moved forward by more than any lease.
        self._jumps: list[int] = []
        #: Since when the server's clock, moved back, showed times that it had shown, and until when.
        self._repeated: list[tuple[int, int]] = []
        #: When this machine let a process wait that had slept for a moment: nothing starts in time there.
        self.crowded: list[int] = []
        #: Failovers to a server that had not seen all: up to when it had, and when the other one had ended.
        self.losses: list[tuple[int, int]] = []
        self._by_pid: dict[int, str] = {}
        #: What was done to a process before it said hello.
        self._early: dict[int, list[tuple[str, int, str]]] = {}

    # Evidence

    def hello(self, at: int, who: str, role: str, pid: int) -> None:
        known = self._processes.get(self._by_pid.get(pid, ""))
        self._processes[who] = Process(role, pid, at)
        if known is None or known.since < at:
            self._by_pid[pid] = who
        for kind, when, name in self._early.pop(pid, []):
            if when > at:
                self._done_to(kind, when, who, pid, name)

    def _done_to(self, kind: str, at: int, who: str, pid: int, name: str) -> None:
        process = self._processes.get(self._by_pid.get(pid, ""))
        if process is None or process.since > at:
            self._early.setdefault(pid, []).append((kind, at, name))
        elif kind == "stop":
            process.stops.append(Window(at))
        elif kind == "cont":
            for stop in process.stops:
                stop.end = min(stop.end, at)
        elif process.death is None:
            process.death = Death(at, name, kind == "kill")

    kill = partialmethod(_done_to, "kill")
    stop = partialmethod(_done_to, "stop")
    cont = partialmethod(_done_to, "cont")
    #: It was noticed to have ended.
    died = partialmethod(_done_to, "died")

    def stepped(self, at: int, who: str, by: int) -> None:
        if by > 0:
            self._jumps.append(at)
        else:
            self._repeated.append((at, at - by))

    def last_words(self, at: int, who: str, cause: str) -> None:
        process = self._processes.get(who)
        if process is not None and (process.death is None or not process.death.sure):
            process.death = Death(at, cause, True)

    def fault(self, at: int, number: int, name: str, edge: str, roles: list[str]) -> None:
        if edge == "begin":
            self._windows[number] = Window(at, FOR_EVER, name, frozenset(roles))
        else:
            self._windows[number].end = at

    # What it explains

    def role(self, who: str) -> str:
        return self._processes[who].role if who in self._processes else ""

    def death(self, who: str) -> Death | None:
        return self._processes[who].death if who in self._processes else None

    def stops(self, who: str) -> list[Window]:
        return self._processes[who].stops if who in self._processes else []

    def alive(self, roles: frozenset[str], begin: int, end: int) -> set[str]:
        """Return the processes of some roles that lived from one moment to another, not stopped all the time."""
        return {
            who
            for who, process in self._processes.items()
            if process.role in roles
            and process.since <= begin
            and (process.death is None or process.death.at > end)
            and not any(stop.begin <= begin and stop.end >= end for stop in process.stops)
        }

    def ended_before(self, who: str, at: int) -> bool:
        """Whether a process had ended at a time; one whose end was only noticed may have ended a moment earlier."""
        death = self.death(who)
        return death is not None and death.at - (0 if death.sure else NOTICING) <= at

    def stopped(self, who: str, begin: int, end: int) -> bool:
        return any(stop.meets(begin, end) for stop in self.stops(who))

    def crashed(self, begin: int, end: int) -> bool:
        return any(begin <= at <= end for at in self.crashes)

    def jumped(self, begin: int, end: int) -> bool:
        """Whether the server's clock went forward between two moments, so that every lease ended."""
        return any(begin <= at <= end for at in self._jumps)

    def shown_twice(self, at: int) -> bool:
        """Whether the server's clock showed the time of this moment before, too: then it may have been that one."""
        return any(begin <= at <= end for begin, end in self._repeated)

    def may_be_lost(self, tried: int, answered: int) -> bool:
        """Whether what was tried and answered at these times may have gone with a server."""
        return any(tried <= ended and answered >= known for known, ended in self.losses)

    def lost_tail(self, begin: int, end: int) -> bool:
        return any(begin <= ended <= end for _, ended in self.losses)

    def failovers(self) -> int:
        return sum(window.name.endswith("failover") for window in self._windows.values())

    def disturbed(self, begin: int, end: int, role: str = "") -> bool:
        """Whether something was done to the server, or to a role, between two moments."""
        return any(
            window.meets(begin, end)
            and (role in window.roles if window.roles else not window.name.startswith(HARMLESS))
            for window in self._windows.values()
        )

    def calm(self, begin: int, end: int) -> bool:
        """Whether the machine had time between two moments, and nothing was done to anybody but to hold a snapshot."""
        if bisect_right(self.crowded, end) - bisect_left(self.crowded, begin) > FEW:
            return False
        near = (window for window in self._windows.values() if window.meets(begin, end, ECHO))
        return all(window.name.startswith("snapshot") for window in near)

    def explain(self, begin: int, end: int, who: str = "") -> str:
        """Return the name of the fault, the nearest first, that explains what happened between two moments, or ""."""
        death = self.death(who)
        if death is not None and death.sure and death.cause and begin <= death.at <= end:
            return death.cause
        role = self.role(who)
        near = [window for window in self._windows.values() if window.meets(begin, end, ECHO)]
        found = max(near, key=lambda window: (role in window.roles, not window.roles, window.begin), default=None)
        return found.name if found is not None and (not found.roles or role in found.roles or not who) else ""
