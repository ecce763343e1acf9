"""The processes that the demo starts: a worker, and in the end the server of the admin."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from django.conf import settings

_LAST_LINES = 15


class Child:
    """A ``manage.py`` command in a process of its own, its output in a file.

    Args:
        log: the file.
        arguments: of ``manage.py``.
    """

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = log.open("wb")
        # A group of its own: Ctrl-C is for the demo, which then stops its children in order.
        self._process = subprocess.Popen(
            [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), *arguments],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit code, ``None`` while it runs."""
        return self._process.poll()

    def last_lines(self) -> str:
        """Return the end of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])

    def stop(self, timeout: float = 30) -> None:
        """End it: asked first, killed if it does not end within ``timeout`` seconds."""
        if self.ended is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._file.close()


@contextlib.contextmanager
def running(name: str, *arguments: str) -> Iterator[Child]:
    """Run a ``manage.py`` command for the length of the block."""
    child = Child(Path(settings.BASE_DIR) / ".leasequeue" / f"{name}.log", *arguments)
    try:
        yield child
    finally:
        child.stop()


def free_port(wanted: int) -> int:
    """Return ``wanted`` if nobody listens there, else the next port above that is free.

    Raises:
        OSError: none of twenty is free.
    """
    for port in range(wanted, wanted + 20):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"None of the ports {wanted} to {wanted + 19} is free: name another one with PORT=.")
