"""Coming back: how long after the end of a fault the first job is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .evidence import SECOND
from .promises import RECOVERY
from .runs import Run

#: Something is judged when nothing was said of it for so long: entries of several files come in any order.
QUIET = 2 * SECOND
#: So long the first job of a worker that came back is waited for.
PATIENCE = 60 * SECOND


@dataclass(slots=True)
class Return:
    """Work may go on since a moment, at one role or ("") everywhere; ``first`` is when it did."""

    fault: str
    role: str
    at: int
    first: int | None = None


class Returns:
    """Waits for the first job after each fault."""

    def __init__(self) -> None:
        self._open: list[Return] = []

    def note(self, fault: str, role: str, at: int) -> None:
        """Note that work may go on."""
        self._open.append(Return(fault, role, at))

    def started(self, at: int, role: str, worker: bool) -> None:
        """Note that a job was started; everywhere, work goes on when one of the workers has started one."""
        for back in self._open:
            if (
                at > back.at
                and (back.role == role or (worker and not back.role))
                and (back.first is None or at < back.first)
            ):
                back.first = at

    def due(self, now: int) -> Iterator[tuple[Return, int | None]]:
        """Yield those of which all is known, with the time that they took; ``None`` where no job came in time."""
        left: list[Return] = []
        due: list[Return] = []
        for back in self._open:
            heard = back.first is not None and back.first + QUIET <= now
            waits = not heard and now < back.at + (PATIENCE if back.role else RECOVERY + QUIET)
            (left if waits else due).append(back)
        self._open = left
        for back in due:
            yield back, None if back.first is None else back.first - back.at


def all_busy(at: int, runs: Iterable[Run], alive: set[str]) -> bool:
    """Whether each worker was in the middle of a run since a moment, some of them of suspects, which run alone."""
    until = at + RECOVERY - SECOND
    running = [run for run in runs if run.start <= at and (run.end is None or run.end >= until)]
    alone = {run.who for run in running if run.alone}
    return bool(alone & alive) and alive <= {run.who for run in running}
