"""Steps that a plan may ask for. Plans are generators without IO: both clients carry out the same ones."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..twins import Give

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Args:
        method: of HTTP.
        path: below the address of the API, quoted.
        body: for JSON; ``None`` for none.
        query: its parameters.
        headers: beside those that every request has.
        wait: seconds that the server may take longer than usual (a long-poll).
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: the headers' names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """Open an event stream. Sent back: the answer, whose body is empty if it is a stream."""

    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    """Read from the open stream. Sent back: bytes; none at its end."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the open stream, if one is open."""


#: A call: asks by requests and pauses, returns its value. A failed connection is thrown in as ``ConnectionFailed``.
Call = Generator[Request | Pause, Any, T]
#: A call before retries are added to it: it gets the JSON of a good answer and how often it was sent.
Plan = Generator[Request, tuple[dict[str, Any], int], T]
#: An endless source of items.
Source = Generator[Request | Pause | Open | Read | Close | Give[Any], Any, None]
