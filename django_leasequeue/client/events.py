"""Server-sent events, read piece by piece as they come from the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: Characters of one event: a job's data and meta are 1 MiB at most.
MAX_EVENT = 4_194_304


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    data: str
    id: str | None


class EventReader:
    """Turns bytes into events (WHATWG HTML, "Server-sent events": interpreting an event stream).

    ``retry`` is the reconnection time in milliseconds, once the server told one.
    """

    def __init__(self) -> None:
        self.retry: int | None = None
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that are complete with this piece.

        Raises:
            ValueError: an event without end.
        """
        # A line may end with CR LF, LF or CR; a CR at the very end of a piece may be the first half of one end.
        text = self._rest + piece
        held = text.endswith(b"\r")
        lines = (text[:-1] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held else b"")
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT:
            raise ValueError(f"an event is longer than {MAX_EVENT} bytes")
        for line in lines:
            if line:
                self._take(line.decode(errors="replace"))
                continue
            if self._data:
                yield Event(self._name or "message", "\n".join(self._data), self._id)
            self._name, self._data = "", []

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdecimal():
            self.retry = int(value)
