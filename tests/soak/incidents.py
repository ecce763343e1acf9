"""What the faults did, and which of them explains that something happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .evidence import SECOND

#: How long a fault can still be the cause of something after its end: the longest lease, and some seconds.
ECHO = 16 * SECOND
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
    """The time of one fault."""

    name: str
    roles: frozenset[str]
    begin: int
    end: int | None = None


@dataclass(slots=True)
class Stop:
    """The time that a process was stopped (SIGSTOP)."""

    begin: int
    end: int | None = None


@dataclass(slots=True)
class Process:
    """What is known of one process."""

    role: str
    pid: int
    since: int
    stops: list[Stop] = field(default_factory=list)
    death: Death | None = None


class Incidents:
    """Everything that was done to processes and to the server."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        self.windows: dict[int, Window] = {}
        self.crashes: list[int] = []
        #: When the server's clock was moved forward by more than any lease.
        self.jumps: list[int] = []
        #: Since when the server's clock, moved back, showed times that it had shown, and until when.
        self.repeated: list[tuple[int, int]] = []
        #: Failovers to a server that had not seen all: up to when it had, and when the other one had ended.
        self.losses: list[tuple[int, int]] = []
        self._by_pid: dict[int, str] = {}
        #: What was done to a process before it said hello.
        self._early: dict[int, list[tuple[str, int, str]]] = {}

    def hello(self, at: int, who: str, role: str, pid: int) -> None:
        """Note a process."""
        known = self.processes.get(self._by_pid.get(pid, ""))
        self.processes[who] = Process(role, pid, at)
        if known is None or known.since < at:
            self._by_pid[pid] = who
        for kind, when, name in self._early.pop(pid, []):
            if when > at:
                self.done_to(kind, when, pid, name)

    def done_to(self, kind: str, at: int, pid: int, name: str = "") -> None:
        """Note what was done to a process: ``kill``, ``stop``, ``cont``; or that it was noticed to have ended."""
        process = self.processes.get(self._by_pid.get(pid, ""))
        if process is None or process.since > at:
            self._early.setdefault(pid, []).append((kind, at, name))
        elif kind == "stop":
            process.stops.append(Stop(at))
        elif kind == "cont":
            for stop in process.stops:
                stop.end = stop.end or at
        elif process.death is None:
            process.death = Death(at, name, kind == "kill")

    def last_words(self, at: int, who: str, cause: str) -> None:
        """Note that a process is about to end itself."""
        process = self.processes.get(who)
        if process is not None and (process.death is None or not process.death.sure):
            process.death = Death(at, cause, True)

    def fault(self, at: int, number: int, name: str, edge: str, roles: list[str]) -> None:
        """Note the begin or the end of a fault."""
        if edge == "begin":
            self.windows[number] = Window(name, frozenset(roles), at)
        else:
            self.windows[number].end = at

    def role(self, who: str) -> str:
        """Return what a process is for."""
        process = self.processes.get(who)
        return process.role if process is not None else ""

    def death(self, who: str) -> Death | None:
        """Return when a process ended, ``None`` if it lives."""
        process = self.processes.get(who)
        return process.death if process is not None else None

    def alive(self, roles: frozenset[str], begin: int, end: int) -> set[str]:
        """Return the processes of some roles that lived from one moment to another, not stopped all the time."""
        return {
            who
            for who, process in self.processes.items()
            if process.role in roles
            and process.since <= begin
            and (process.death is None or process.death.at > end)
            and not any(stop.begin <= begin and (stop.end is None or stop.end >= end) for stop in process.stops)
        }

    def ended_before(self, who: str, at: int) -> bool:
        """Whether a process had ended at a time; one whose end was only noticed may have ended a moment earlier."""
        death = self.death(who)
        return death is not None and death.at - (0 if death.sure else NOTICING) <= at

    def stopped(self, who: str, begin: int, end: int) -> bool:
        """Whether a process was stopped at some moment between two."""
        process = self.processes.get(who)
        return process is not None and any(
            stop.begin < end and (stop.end is None or stop.end > begin) for stop in process.stops
        )

    def continued_between(self, who: str, begin: int, end: int) -> bool:
        """Whether a whole stop of a process lies between two moments."""
        process = self.processes.get(who)
        return process is not None and any(
            begin <= stop.begin and stop.end is not None and stop.end <= end for stop in process.stops
        )

    def crashed(self, begin: int, end: int) -> bool:
        """Whether PostgreSQL crashed between two moments."""
        return any(begin <= at <= end for at in self.crashes)

    def jumped(self, begin: int, end: int) -> bool:
        """Whether the server's clock went forward between two moments, so that every lease ended."""
        return any(begin <= at <= end for at in self.jumps)

    def shown_twice(self, at: int) -> bool:
        """Whether the server's clock showed the time of this moment before, too: then it may have been that one."""
        return any(begin <= at <= end for begin, end in self.repeated)

    def may_be_lost(self, tried: int, answered: int) -> bool:
        """Whether what was tried and answered at these times may have gone with a server."""
        return any(tried <= ended and answered >= known for known, ended in self.losses)

    def lost_tail(self, begin: int, end: int) -> bool:
        """Whether a server that had not seen all took over between two moments."""
        return any(begin <= ended <= end for _, ended in self.losses)

    def failovers(self) -> int:
        """Return how many failovers have begun so far."""
        return sum(window.name.endswith("failover") for window in self.windows.values())

    def met(self, who: str, begin: int, end: int) -> bool:
        """Whether a fault met a process, or the server, between two moments."""
        return self.disturbed(begin, end, self.role(who))

    def disturbed(self, begin: int, end: int, role: str = "") -> bool:
        """Whether something was done to the server, or to a role, between two moments."""
        return any(
            (role in window.roles if window.roles else not window.name.startswith(HARMLESS))
            and window.begin <= end
            and (window.end is None or window.end > begin)
            for window in self.windows.values()
        )

    def crash(self, at: int) -> None:
        """Note that PostgreSQL ended without a word."""
        self.crashes.append(at)

    def explain(self, begin: int, end: int, who: str = "") -> str:
        """Return the name of the fault, the nearest first, that explains what happened between two moments, or ""."""
        death = self.death(who)
        if death is not None and death.sure and death.cause and begin <= death.at <= end:
            return death.cause
        role = self.role(who)
        near = [
            window
            for window in self.windows.values()
            if window.begin <= end and (window.end is None or window.end + ECHO >= begin)
        ]
        near.sort(key=lambda window: (role in window.roles, not window.roles, window.begin))
        found = near[-1] if near else None
        return found.name if found is not None and (not found.roles or role in found.roles or not who) else ""
