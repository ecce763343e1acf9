"""Saying what goes on while it goes on."""

from __future__ import annotations

import time
from io import TextIOBase


class Progress:
    """One line that changes on a terminal; a line a step elsewhere.

    Args:
        stream: where to write; ``None`` for nowhere.
    """

    def __init__(self, stream: TextIOBase | None) -> None:
        self._stream = stream
        self._changes = bool(stream is not None and stream.isatty())
        self._start = time.monotonic()
        self._width = 0

    def step(self, text: str) -> None:
        """Say what begins now."""
        if self._stream is None:
            return
        line = f"[{time.monotonic() - self._start:5.0f} s] {text}"
        if self._changes:
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def done(self) -> None:
        """Make room for other output."""
        if self._stream is not None and self._changes and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
