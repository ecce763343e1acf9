"""How jobs note when they ran: lines of one file that only grows. No database is asked."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path

from .stamps import STAMP

#: Where the jobs' process finds the file.
FILE_VARIABLE = "LEASEQUEUE_BENCH_NOTES"

#: Seconds between two looks at the file.
_LOOK = 0.005


class Notes:
    """The benchmark's end of the file. Use as a context manager."""

    def __enter__(self) -> Notes:
        handle, self._file = tempfile.mkstemp(prefix="lqbench-")
        os.close(handle)
        return self

    def __exit__(self, *_: object) -> None:
        Path(self._file).unlink()

    @property
    def environment(self) -> dict[str, str]:
        """What the jobs' process must find in its environment."""
        return {FILE_VARIABLE: self._file}

    def forget(self) -> None:
        """Empty the file: those who append go on at its new end."""
        os.truncate(self._file, 0)

    @property
    def count(self) -> int:
        """How many jobs have noted."""
        return Path(self._file).stat().st_size // STAMP.size

    def wait(self, count: int, timeout: float) -> bool:
        """Wait until so many jobs have noted; return whether they have within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.count < count:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK)
        return True

    def read(self) -> list[tuple[int, float]]:
        """Return (number of the job, monotonic seconds) in the order of time."""
        content = Path(self._file).read_bytes()
        found = [(number, moment / 1e9) for number, moment in STAMP.iter_unpack(content)]
        return sorted(found, key=lambda note: note[1])


def note(number: int) -> None:
    """Note that a job is here now: one write of one record, which never mixes with another's."""
    os.write(_file(), STAMP.pack(number, time.monotonic_ns()))


@cache
def _file() -> int:
    return os.open(os.environ[FILE_VARIABLE], os.O_WRONLY | os.O_APPEND)
