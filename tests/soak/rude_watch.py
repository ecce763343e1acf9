"""The watch of the rude soak: it troubles leaders and duties, and sees who leads, what ticks, what health says."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from .promises import LEADERLESS, TICKLESS, UNFENCED, UNSAID, UNTRUE
from .rude_app import HOW, LEDGER, STOP

#: Seconds that a database may be without a leader, and that a tick may be late.
ABSENT, LATE = 15.0, 15.0
#: Seconds between two looks.
LOOK = 0.5
#: Seconds between the ticks of recurring tasks of which each has to come.
TICKS = {"tick": 5.0, "often": 1.0}
#: Recurring tasks that cannot be enqueued: of whom it has to be said.
BAD = ("exits", "gone", "hangs", "unreadable")
#: Seconds for which a leader is stopped, and until the next is; for which a duty fails, and until it fails again.
STOPPED, REST, FAILING, GOOD = 16.0, 70.0, 60.0, 85.0
#: Seconds between the begins of two troubles: the limits are those of one at a time.
APART = 20.0
#: Seconds of a duty that fails from which on health may say so, and from which on it has to; and until which it may go
#: on to say so when the duty fails no more: it has its next turn within a minute.
MAY, MUST, MAY_STILL = 28.0, 42.0, 75.0
#: Seconds after a stop in which the health of that process may be bad: its supervisor did not hear of it.
WAKING = 20.0
#: Seconds in which a health page answers, and without an answer that count as silence.
ANSWER, SILENT = 3.0, 20.0
LEADER = """
SELECT holder, extract(epoch FROM clock_timestamp() - beat_at)::float8, clock_timestamp()::text
FROM leasequeue_reaperterm
"""
TICKED = """
SELECT name, extract(epoch FROM clock_timestamp() - last_tick_at)::float8, last_error FROM leasequeue_recurringtask
"""
LEADERS = ("leader stopped", "leader killed")
DUTIES = ("duty hangs", "duty exits", "duty raises", "duty leaves")


class Page(NamedTuple):
    """A worker's health page: its port, and the session of the worker's processes."""

    worker: str
    port: int
    session: int


class Watch:
    """Looks twice a second, in a thread, from ``start`` to ``stop``; troubles come in two more.

    ``pages``: the health pages that there are now. ``kill`` kills the worker of a session if it may be killed.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        folder: Path,
        pages: Callable[[], list[Page]],
        kill: Callable[[int], bool],
        tell: Callable[[str, str], None],
        only: Collection[str],
    ) -> None:
        self._connect, self._folder, self._pages, self._kill, self._tell = connect, folder, pages, kill, tell
        self._over = threading.Event()
        self._told: set[tuple[str, str]] = set()
        self._began = time.monotonic()
        #: The session and the process that lead, and since when.
        self._leader: tuple[int, int, float] | None = None
        #: Recurring tasks that had an error.
        self._failed: set[str] = set()
        #: When each session was stopped last, until when a duty was made to fail, and since when.
        self._stopped: dict[int, float] = {}
        self._failing: list[tuple[float, float]] = []
        self._apart = threading.Lock()
        self._last_began = float("-inf")
        #: When each page answered last.
        self._answered: dict[int, float] = {}
        self.counts = dict.fromkeys((*LEADERS, *DUTIES, "terms", "looks", "503"), 0)
        self._threads = [threading.Thread(target=self._watch, name="watch", daemon=True)]
        for kinds, trouble in ((LEADERS, self._trouble_leader), (DUTIES, self._trouble_duty)):
            chosen = [kind for kind in kinds if not only or kind in only]
            if chosen:
                self._threads.append(threading.Thread(target=self._trouble, args=(chosen, trouble), daemon=True))

    def start(self) -> None:
        with self._connect() as connection:
            connection.execute(LEDGER)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all troubles, then look once more at what was written."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        with self._connect() as connection:
            newest = 0
            for number, term in connection.execute("SELECT id, term FROM rude_ledger ORDER BY id").fetchall():
                if term < newest:
                    self._say(UNFENCED, f"row {number} is of term {term}, after one of term {newest}")
                newest = max(newest, term)
            self.counts["terms"] = newest
        if unsaid := set(BAD) - self._failed if time.monotonic() > self._began + 60 else set():
            self._say(UNSAID, f"of {sorted(unsaid)} no error was seen")

    def _say(self, promise: str, evidence: str, about: str = "") -> None:
        if (promise, about) not in self._told:
            self._told.add((promise, about))
            self._tell(promise, evidence)

    # What there is to see

    def _watch(self) -> None:
        with self._connect() as connection:
            while not self._over.wait(LOOK):
                self.counts["looks"] += 1
                self._look_at_leader(connection.execute(LEADER).fetchone())
                ticked = connection.execute(TICKED).fetchall()
                self._look_at_ticks({name: since for name, since, _ in ticked})
                self._failed |= {name for name, _, error in ticked if error}
                for page in self._pages():
                    self._look_at_health(page)

    def _look_at_leader(self, row: tuple[str, float, str] | None) -> None:
        now = time.monotonic()
        holder, silent, at = row or ("", now - self._began - 10, "")  # the first leader has the time of a start
        if silent > ABSENT:
            self._say(LEADERLESS, f"none was heard for {silent:.1f} s at {at}; the last was {holder!r}")
        pid = int(holder.split(":")[1]) if holder else 0
        if self._leader is None or self._leader[1] != pid:
            with suppress(ProcessLookupError):
                self._leader = (os.getsid(pid), pid, now) if pid else None

    def _look_at_ticks(self, ticked: Mapping[str, float | None]) -> None:
        for name, interval in TICKS.items():
            since = ticked.get(name)
            since = time.monotonic() - self._began - 10 if since is None else since
            if since > interval + LATE:
                self._say(TICKLESS, f"the last tick of {name!r} was {since:.1f} s ago", name)

    def _look_at_health(self, page: Page) -> None:
        asked = time.monotonic()
        leader, failing = self._leader, self._failing[:]
        status, said = _health(page.port)
        now = time.monotonic()
        if now < self._stopped.get(page.session, -WAKING) + WAKING:
            self._answered[page.session] = now
        elif status is None:
            since = now - self._answered.get(page.session, now)
            if since > SILENT:
                self._say(UNTRUE, f"the health page of {page.worker} does not answer for {since:.0f} s", page.worker)
        else:
            self._answered[page.session] = now
            self.counts["503"] += status == 503
            may = any(begin + MAY < now and asked < end + MAY_STILL for begin, end in failing)
            leads = leader is not None and leader[0] == page.session
            must = leader is not None and any(
                max(begin, leader[2]) + MUST < asked and now < end for begin, end in failing
            )
            if status == 503 and not may:
                self._say(UNTRUE, f"{page.worker} is well and answered 503: {said}", "well")
            elif status == 200 and leads and must and self._leader == leader:
                self._say(UNTRUE, f"a duty of {page.worker} fails, and it answered 200: {said}", "ill")

    # Troubles

    def _trouble(self, kinds: list[str], make: Callable[[str], None]) -> None:
        dice = random.Random(1)
        while True:
            for kind in dice.sample(kinds, len(kinds)) if self.counts[kinds[0]] else kinds:
                if self._over.is_set():
                    return
                self.counts[kind] += 1
                make(kind)

    def _trouble_leader(self, kind: str) -> None:
        session, pid, _ = leader = self._begin_apart()
        if kind == "leader killed" and self._kill(session):
            pass
        elif self._leader == leader:
            file = self._folder / STOP
            file.touch()
            while file.exists() and not self._over.wait(0.05):
                pass
            self._stopped[session] = time.monotonic() + STOPPED
            self._over.wait(STOPPED)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            file.unlink(missing_ok=True)
        self._over.wait(REST)

    def _begin_apart(self) -> tuple[int, int, float]:
        """Return who leads, when the last trouble has begun long enough ago."""
        with self._apart:
            self._over.wait(max(0.0, self._last_began + APART - time.monotonic()))
            # Others have to be there to take over.
            while (self._leader is None or len(self._answered) < len(self._pages())) and not self._over.wait(LOOK):
                pass
            self._last_began = time.monotonic()
            return self._leader or (0, 0, 0.0)

    def _trouble_duty(self, kind: str) -> None:
        self._begin_apart()
        file = self._folder / HOW
        file.with_suffix(".new").write_text(kind.removeprefix("duty "))
        file.with_suffix(".new").replace(file)
        self._failing.append((time.monotonic(), float("inf")))
        self._over.wait(FAILING)
        file.unlink()
        self._failing[-1] = self._failing[-1][0], time.monotonic()
        self._over.wait(GOOD)


def leads(port: int) -> bool:
    """Whether the worker with this health page answers that it leads."""
    status, text = _health(port)
    return status is not None and bool(json.loads(text).get("reaper", {}).get("leads"))


def _health(port: int) -> tuple[int | None, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=ANSWER) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        with suppress(ValueError):
            text = json.dumps({key: value for key, value in json.loads(text).items() if key in _SHOWN})
        return error.code, text
    except OSError:
        return None, ""


#: What is shown of a health page.
_SHOWN = ("node", "state", "database", "reaper", "healthy", "workers")
