"""The server's clock, stepped forth and back: a preloaded library reads its offset from a file."""

from __future__ import annotations

import json
import struct
import subprocess
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from time import monotonic_ns, time_ns

SECOND = 1_000_000_000
#: Every step so far, in the directory of the evidence: since when (monotonic), and the offset from then on, both in ns.
STEPS = "clock.json"
#: What separates the two clocks of a machine.
TOLERANCE = SECOND // 200

Steps = list[tuple[int, int]]


def why_not(command: list[str]) -> str:
    """Run a command; return why it failed, "" if it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[:200] or f"{command[0]} failed"


class Clock:
    """Steps the clock of a server that was started with ``environment``."""

    def __init__(self, directory: Path) -> None:
        self._steps: Steps = [(0, 0)]
        self._history = directory / STEPS
        self._offset = directory / "clock"
        self._write()
        library = directory / "clock.so"
        source = Path(__file__).with_suffix(".c")
        #: Why it cannot be stepped; "" if it can.
        self.why_not = why_not(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"])
        self.environment = [] if self.why_not else [f"LD_PRELOAD={library}", f"SOAK_CLOCK={self._offset}"]
        for path in (self._offset, library):
            if path.exists():
                path.chmod(0o755)

    def step(self, seconds: float) -> None:
        # The history first: a process that reads a time from after the step finds the step in it.
        self._steps.append((monotonic_ns(), self._steps[-1][1] + round(seconds * SECOND)))
        self._write()

    def _write(self) -> None:
        made = self._history.with_suffix(".new")
        made.write_text(json.dumps(self._steps))
        made.replace(self._history)
        # In place: the server has mapped the file.
        with self._offset.open("r+b" if self._offset.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("=q", self._steps[-1][1]))


def monotonic(at: datetime, directory: Path) -> int:
    """Return a time of the server on the monotonic clock of the machine."""
    here = monotonic_ns()
    wall = round(at.timestamp() * 1_000_000) * 1_000 - time_ns() + here
    history = directory / STEPS
    return place(wall, _steps(history, history.stat().st_mtime_ns) if history.exists() else [(0, 0)], here)


@lru_cache(maxsize=1)
def _steps(history: Path, changed: int) -> Steps:
    found: Steps = json.loads(history.read_text())
    return found


def place(wall: int, steps: Steps, now: int) -> int:
    """Return when the server's clock showed a time; of two such moments (it was set back) the later one."""
    until = now
    for since, offset in reversed(steps):
        if since - TOLERANCE <= wall - offset <= until + TOLERANCE:
            return wall - offset
        # The step itself comes a moment after its entry.
        until = since + SECOND
    return wall - steps[-1][1]
