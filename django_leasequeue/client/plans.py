"""Plans: requests and pauses of a call, without IO, and which failures pass when they are tried again.

Both clients carry out the same plans.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from ..twins import Give, through
from .errors import ApiError, BadAnswer, ConnectionFailed, refusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its ``path`` is below the address of the API, quoted; ``body`` is for JSON, ``None`` for none.

    The server may take ``wait`` seconds longer than usual (a long-poll).
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """Open an event stream. Sent back: the answer, whose body is read unless it is a stream."""

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


#: Statuses that pass: too many requests; not ready, or a proxy that cannot reach the server.
PASSING = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of tries of a request, and the waits between them.

    Waits grow from ``first`` to ``longest`` seconds, doubled each time, each between a half and the whole of it by
    chance, so that clients do not come back together. A server that asks for more (``Retry-After``) gets it. A try that
    would begin later than ``seconds`` after the first is not made.
    """

    tries: int = 6
    first: float = 0.1
    longest: float = 10.0
    seconds: float = 60.0

    def wait(self, tries: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after so many tries."""
        ours = min(self.longest, self.first * 2.0 ** min(tries - 1, 30)) * random.uniform(0.5, 1.0)
        # Clients with the same ``Retry-After`` come back a little apart.
        return ours if retry_after is None else retry_after + ours


#: Every request once: for callers that have their own way.
NEVER = Retry(tries=1)


def seconds_of(value: str | None) -> float | None:
    """Return what ``Retry-After`` says, in seconds from now; ``None`` if it says nothing that can be read."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def read(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON of a good answer."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    status = answer.status_code
    if status < 300 and isinstance(found, dict):
        return found
    retry_after = seconds_of(answer.headers.get("retry-after"))
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, dict):
        code, message = str(error.get("code", "")), str(error.get("message", ""))
        raise refusal(status, code, message, error.get("detail"), retry_after)
    if status >= 500 or status == 429:
        raise refusal(status, "not_ready", "A proxy answered instead of the API.", None, retry_after)
    start = answer.content[:80].decode(errors="replace")
    raise BadAnswer(
        f"{status} with {start!r} is no answer of the API: the address must be the one where it is mounted, for"
        " example https://jobs.example.com/v0."
    )


def call(plan: Plan[T], retry: Retry, clock: Callable[[], float] = time.monotonic) -> Call[T]:
    """Return the call of a plan: it reads the answers, and sends again what failed for reasons that pass."""
    return through(plan, lambda request: _send(request, retry, clock))


def _send(request: Request, retry: Retry, clock: Callable[[], float]) -> Call[tuple[dict[str, Any], int]]:
    ends = clock() + retry.seconds
    tries = 0
    # A broken connection leaves open whether the server did it; a refusal does not.
    sent = 0
    while True:
        tries += 1
        try:
            return read((yield request)), sent + 1
        except (ConnectionFailed, ApiError) as error:
            refused = error if isinstance(error, ApiError) else None
            sent += refused is None or refused.status != 429
            wait = retry.wait(tries, refused.retry_after if refused else None)
            if (refused and refused.status not in PASSING) or tries >= retry.tries or clock() + wait > ends:
                raise
        yield Pause(wait)
