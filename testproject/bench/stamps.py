"""How a job tells the benchmark that it began: a datagram, or a number in shared memory. No database is asked."""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import tempfile
from contextlib import ExitStack
from pathlib import Path

#: Where jobs send to, and the file that jobs count in.
SOCKET_VARIABLE = "LEASEQUEUE_BENCH_SOCKET"
COUNTER_VARIABLE = "LEASEQUEUE_BENCH_COUNTER"

#: A number, and a moment on the machine's monotonic clock in nanoseconds.
STAMP = struct.Struct("=QQ")


class Stamps:
    """The benchmark's end: a socket and a counter in a directory of their own.

    Use as a context manager.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Stamps:
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lqbench-")))
        self.address = str(directory / "socket")
        self.file = str(directory / "counter")
        Path(self.file).write_bytes(bytes(STAMP.size))
        with Path(self.file).open("r+b") as file:
            self._memory = self._stack.enter_context(mmap.mmap(file.fileno(), STAMP.size))
        self._socket = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._socket.bind(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """What the jobs' process must find in its environment."""
        return {SOCKET_VARIABLE: self.address, COUNTER_VARIABLE: self.file}

    @property
    def count(self) -> int:
        """How many jobs have counted."""
        return int(STAMP.unpack_from(self._memory)[0])

    def wait(self, number: int, timeout: float) -> int | None:
        """Return when the job of this number began (monotonic ns); ``None`` if it did not within ``timeout`` seconds.

        Stamps of other numbers (late ones of earlier tries) are dropped.
        """
        while select.select([self._socket], [], [], timeout)[0]:
            found, moment = STAMP.unpack(self._socket.recv(STAMP.size))
            if found == number:
                return int(moment)
        return None


def address() -> str:
    """Return where a job sends to."""
    return os.environ[SOCKET_VARIABLE]


def counter() -> mmap.mmap:
    """Return the memory that a job counts in."""
    with Path(os.environ[COUNTER_VARIABLE]).open("r+b") as file:
        return mmap.mmap(file.fileno(), STAMP.size)
