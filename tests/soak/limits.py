"""What limits promise: how many jobs of a key run at once, in which order they start first, how many in a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .evidence import SECOND
from .incidents import Incidents
from .ledgers import seconds
from .promises import CROWDED, NOTICE, ORDER, RATE, SEEING, Broken
from .runs import CLOCKS, Job, Leases, Run, said

Lookup = Callable[[int], Job | None]


@dataclass(slots=True)
class Key:
    """A key of a limit: how many run at once, and the jobs in the order of their enqueueing by one producer."""

    name: str
    most: int
    places: dict[int, int] = field(default_factory=dict)
    running: list[tuple[int, Run]] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    #: The last one in that order that has been started, and when.
    last: tuple[int, int, int] = (-1, 0, 0)


#: How long after its claim a worker may start a job under a rate.
LATE = SECOND // 25


@dataclass(slots=True)
class Pace:
    """A rate: when its jobs were tried, and first started."""

    #: Starts, and the nanoseconds in which so many are allowed.
    rate: int
    per: int
    tries: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    #: The last starts, one more than are allowed in that time.
    last: list[int] = field(default_factory=list)


class Limits:
    """Holds what producers say of limits against the starts."""

    def __init__(self, incidents: Incidents, leases: Leases, lookup: Lookup) -> None:
        self._incidents = incidents
        self._leases = leases
        self._lookup = lookup
        self._keys: dict[str, Key] = {}
        self._of: dict[int, Key] = {}
        self._pace: Pace | None = None

    @property
    def jobs(self) -> int:
        """How many jobs were tried to be enqueued under a limit."""
        return len(self._of) + (len(self._pace.tries) if self._pace is not None else 0)

    def under(self, number: int, name: str, most: int, ordered: bool) -> None:
        """Note that a job is under a key that allows ``most`` at once; ``ordered``: one producer has them all."""
        key = self._of[number] = self._keys.setdefault(name, Key(name, most))
        if ordered:
            key.places[number] = len(key.places)

    def paced(self, at: int, numbers: list[int], rate: int, per: int) -> None:
        """Note that jobs are tried under the rate: so many starts in so many nanoseconds."""
        self._pace = self._pace or Pace(rate, per)
        self._pace.tries.update(dict.fromkeys(numbers, at))

    def started(self, number: int, run: Run) -> Iterator[Broken]:
        """Judge a start. They come in the order of time, and all that happened before is known."""
        # A server that takes over does not know the permits that were given last.
        known = not self._incidents.may_be_lost(run.claimed, run.start)
        if (pace := self._pace) is not None and number in pace.tries and number not in pace.starts and known:
            pace.starts[number] = run.start
            yield from self._in_window(pace, run.start)
        key = self._of.get(number)
        if key is None:
            return
        key.running = [one for one in key.running if one[0] != number and self._holds(*one, run.start)]
        if len(key.running) >= key.most:
            held = "; ".join(f"job {other}, {said(first)}" for other, first in key.running)
            fault = self._incidents.explain(min(first.start for _, first in key.running), run.start)
            text = f"{key.name} allows {key.most}: job {number}, {said(run)}, while there ran: {held}"
            yield Broken(CROWDED, run.start, fault, text)
        key.running.append((number, run))
        if number not in key.begun:
            key.begun.add(number)
            yield from self._in_order(key, number, run)

    def _holds(self, number: int, run: Run, at: int) -> bool:
        """Whether a run had its slot at a time, as far as it could know."""
        if (run.end is not None and run.end <= at) or self._incidents.ended_before(run.who, at):
            return False
        job = self._lookup(number)
        if job is not None and job.recalled and job.recalled <= at:
            return False
        if run.told is not None and run.told <= at and run.reason != "lease_lost":
            return False  # its worker ends, and has given it back
        if self._leases.forgotten(run, at):
            return False
        deadline = self._leases.deadline(run, at)
        if at < deadline - CLOCKS:
            return True
        in_time = run.told is not None and run.told <= deadline - NOTICE + SEEING
        return not in_time and not self._incidents.stopped(run.who, run.claimed, at)

    def _in_order(self, key: Key, number: int, run: Run) -> Iterator[Broken]:
        place = key.places.get(number)
        if place is None:
            return
        last, other, at = key.last
        if place > last:
            key.last = (place, number, run.start)
            return
        job = self._lookup(number)
        # One that was claimed before and came back after a delay has let others go first; of one whose commit was not
        # answered nobody knows when it was committed.
        if job is None or not (job.committed or job.over) or run.delivery > 1 or run.alone:
            return
        if self._leases.forgotten(run, run.start):
            return
        fault = self._incidents.explain(job.tried, run.start, run.who)
        text = f"job {number} of {key.name}, {said(run)}, {seconds(at, run.start)} after job {other},"
        yield Broken(ORDER, run.start, fault, f"{text} which was enqueued after it")

    def _in_window(self, pace: Pace, at: int) -> Iterator[Broken]:
        """No time of the limit's length has more starts than it says, whatever happened before."""
        pace.last = [*pace.last[-pace.rate :], at]
        first = pace.last[0]
        if len(pace.last) > pace.rate and at - first < pace.per - CLOCKS and not self._incidents.jumped(first, at):
            text = f"{pace.rate + 1} jobs under the rate started in {(at - first) / SECOND:.3f} s"
            yield Broken(RATE, at, self._incidents.explain(first, at), text)

    def finish(self) -> Iterator[Broken]:
        """Judge the rate, when all starts are known."""
        if self._pace is None:
            return
        pace = self._pace
        # From a moment at which none waits so many may start: one at once, half of one that is caught up, and one more
        # each time; each as late as a worker may be.
        moments = [(pace.tries[number], 0, number) for number in pace.starts]
        moments += [(at, 1, number) for number, at in pace.starts.items()]
        begin, waiting, started = 0, 0, 0
        for at, kind, number in sorted(moments):
            if kind == 0:
                if not waiting:
                    begin, started = at, 0
                waiting += 1
                continue
            waiting -= 1
            started += 1
            allowed = 1.5 + (at - begin + LATE + CLOCKS) * pace.rate / pace.per
            if started > allowed and not self._incidents.jumped(begin, at):
                fault = self._incidents.explain(begin, at)
                text = f"{started} jobs under the rate started in {(at - begin) / SECOND:.3f} s; {allowed:.1f} may"
                yield Broken(RATE, at, fault, f"{text} (job {number} was the last)")
                return
