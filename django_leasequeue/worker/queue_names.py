"""The queues that a worker claims from: its names and patterns, the queues that fit them, its own limits of their jobs.

The only wildcard of a pattern is ``*``, for any characters. By a pattern a worker of tasks takes the queues that hold
tasks: other queues have their own consumers.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from ..engine import LeasedJob, arrays
from ..engine.leases.claim import MAX_QUEUES as MAX_CLAIM_QUEUES
from ..engine.leases.floor import ClaimCursor
from ..engine.operation import Statements, operation
from ..engine.queues import routing
from ..engine.queues.presets import NAME, of_backends
from ..engine.queues.queues import make_declared
from ..exceptions import QueueNotFound
from .link import DatabaseLink
from .state import WorkerState

logger = logging.getLogger("django_leasequeue.worker")

#: Patterns and exclusions of one worker: each is compared with the name of every queue.
MAX_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queues that a worker takes: names and patterns in order of preference, and what patterns leave out."""

    entries: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, given: Sequence[str]) -> QueueChoice:
        """Return the choice of the option ``queues``; ``ImproperlyConfigured``: it is invalid."""
        check_names("queues", given, "names, patterns ('mail*') and exclusions ('-mail.bulk')", sign="-")
        excluded = tuple(dict.fromkeys(entry[1:] for entry in given if entry[0] == "-"))
        entries = tuple(dict.fromkeys(entry for entry in given if entry[0] != "-")) or ("*",)
        choice = cls(entries, excluded)
        if both := sorted({*entries} & {*excluded}):
            raise ImproperlyConfigured(f"queues takes {both[0]!r} and excludes it as well: keep one of the two.")
        if excluded and not choice.patterns:
            raise ImproperlyConfigured(
                f"queues excludes {excluded[0]!r}, but only patterns can leave out a queue, and it has none: add '*' or"
                " remove the exclusion."
            )
        return choice

    @property
    def names(self) -> list[str]:
        return [entry for entry in self.entries if "*" not in entry]

    @property
    def patterns(self) -> list[str]:
        return [entry for entry in self.entries if "*" in entry]

    def grouped(self, found: Iterable[str]) -> list[list[str]]:
        """Return the queues of each entry in order: a queue stands at its name, else at the first fitting pattern."""
        groups: dict[str, list[str]] = {entry: [] for entry in self.entries}
        for name in found:
            if (place := best(name, groups)) is not None:
                groups[place].append(name)
        return [group for group in groups.values() if group]


def check_names(option: str, given: Sequence[str], takes: str, sign: str = "") -> None:
    """Check names and patterns, which may have a sign in front; ``takes``: what the option takes, in words."""
    for entry in given:
        name = entry.removeprefix(sign)
        if not NAME.match(name.replace("*", "x")) or name[0] == "-":
            raise ImproperlyConfigured(
                f"{option} takes {takes}, of letters, digits, '.', '_', ':', '-' and the wildcard '*', with at most 255"
                f" characters; one of them is {entry!r}."
            )
    if (count := sum("*" in entry or entry[0] == "-" for entry in given)) > MAX_PATTERNS:
        raise ImproperlyConfigured(f"{option} takes at most {MAX_PATTERNS} patterns and exclusions; it has {count}.")


def best(name: str, entries: Iterable[str] | Mapping[str, object]) -> str | None:
    """Return the entry for a queue: its name, else the first pattern that fits."""
    if name in entries:
        return name
    return next((entry for entry in entries if "*" in entry and fits(name, entry)), None)


def fits(name: str, pattern: str) -> bool:
    """Return whether a name fits a pattern, in linear time."""
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(name) - len(last)
    if end < at or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in middle:
        if (found := name.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True


def like(pattern: str) -> str:
    """Return the pattern for LIKE; of its special characters names may have only ``_``."""
    return pattern.replace("_", "\\_").replace("*", "%")


#: Seconds between readings of the list of queues.
REREAD = 5.0
#: Queues of a worker that takes all queues, and queues that one reading searches for tasks.
MAX_QUEUES, MAX_SEARCHED = 10_000, 1_000


class QueueNames:
    """The queues of the options in their order; those of one pattern take turns."""

    def __init__(self, state: WorkerState, link: DatabaseLink) -> None:
        self._state = state
        self._link = link
        self.read_at = -math.inf
        #: Whether notifications of new queues arrived when the list was read.
        self._notified = False
        self._rotation = 0
        self._choice = QueueChoice.of(state.options.queues)
        #: The queues of each entry of the options, if there are patterns.
        self._groups: list[list[str]] = []
        #: The queues that the settings declare for tasks; ``None``: patterns take any queue.
        self._declared: set[str] | None = None
        if state.runs_tasks and self._choice.patterns:
            self._declared = {item.name for item in of_backends() if item.project == state.options.project}
        self.names: list[str] = []
        self.ids: list[int] = []

    def refresh(self) -> bool:
        """Read the list again if it is some seconds old or may miss a new queue; return whether it was read."""
        now = time.monotonic()
        if now - self.read_at < REREAD and not self.unheard:
            return False
        # Before the list is read: a notification meanwhile lets the next call read again.
        self.read_at, self._notified = now, self._state.notifications_arrive()
        options, choice = self._state.options, self._choice
        found = self._link.run(read_queues(options.project, choice, self._declared))
        # A worker of several databases has the same names for each: make only this database's queues.
        missing = [
            name
            for name in choice.names
            if name not in found and routing.alias_of(options.project, name) == options.database
        ]
        if missing:
            self._link.run(make_queues(options.project, missing, options.database))
            found = self._link.run(read_queues(options.project, choice, self._declared))
            for name in found.keys() & set(missing):
                logger.info("The queue %s is new, made for this worker: nothing was enqueued there before", name)
        groups = choice.grouped(found)
        self._groups = groups if choice.patterns else []
        self.names = [name for group in groups for name in group]
        self.ids = [found[name] for name in self.names]
        self._state.queues = self.names
        return True

    @property
    def unheard(self) -> bool:
        """Whether the list is older than the notifications: it misses queues made in between."""
        return not self._notified and self._state.notifications_arrive()

    def chunks(self) -> list[list[str]]:
        """Return the names for each claim, at most 100; the queues of one pattern take turns at being its first."""
        names = self.names
        if self._groups and len(names) > 1:
            self._rotation += 1
            names = []
            for group in self._groups:
                at = self._rotation % len(group)
                names += group[at:] + group[:at]
        return [names[at : at + MAX_CLAIM_QUEUES] for at in range(0, len(names), MAX_CLAIM_QUEUES)]


@operation
def read_queues(
    project: str, choice: QueueChoice, declared: Collection[str] | None = None
) -> Statements[dict[str, int]]:
    """Read the ids of the chosen queues by name. Unknown names are left out.

    ``declared``: of patterns only queues that hold tasks; these empty ones too, the settings declare them for tasks.
    """
    wanted = {
        "names": arrays.texts(choice.names),
        "patterns": arrays.texts(map(like, choice.patterns)) if choice.patterns else None,
        "excluded": arrays.texts(map(like, choice.excluded)),
    }
    rows = yield "worker_queues", {"project": project, **wanted, "size": MAX_QUEUES}
    if declared is None:
        return {name: queue_id for queue_id, name, _ in rows}
    named = set(choice.names)
    rows = [(queue_id, name, holds or name in named) for queue_id, name, holds in rows]
    made_for_tasks = [queue_id for queue_id, name, holds in rows if not holds and name in declared]
    others = [queue_id for queue_id, name, holds in rows if not holds and name not in declared]
    searched = made_for_tasks + random.sample(others, min(len(others), MAX_SEARCHED))
    hold: set[int] = set()
    if searched:
        given = {"queues": arrays.integers(searched), "declared": arrays.integers(made_for_tasks)}
        hold = {queue_id for (queue_id,) in (yield "worker_tasks", given)}
    return {name: queue_id for queue_id, name, holds in rows if holds or queue_id in hold}


@operation
def make_queues(project: str, names: Sequence[str], using: str | None = None) -> Statements[None]:
    """Make missing queues, as their first job would; without ``AUTO_CREATE`` only the declared ones."""
    for name in names:
        with suppress(QueueNotFound):
            yield from make_declared(project, name, using=using)


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
