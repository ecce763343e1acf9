"""Plans of both clients, without IO: requests and pauses of a call, retries, endless sources of jobs."""

from __future__ import annotations

import json
import logging
import random
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx

from ..twins import Either, Give, sleep, through
from .messages import (
    ApiError,
    BadAnswer,
    ClientError,
    ClientJob,
    ConnectionFailed,
    ServerUnavailable,
    Throttled,
    refusal,
)

if TYPE_CHECKING:
    from .client import EventStream

logger = logging.getLogger("django_leasequeue.client")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its quoted ``path`` below the API; the server may take ``wait`` seconds longer than usual."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0


#: A call: yields requests and pauses, returns its value. A failed connection is thrown in as ``ConnectionFailed``.
Call = Generator[Request | Either, Any, T]
#: A call without retries: it gets the JSON of a good answer, and how often the request was sent.
Plan = Generator[Request, tuple[dict[str, Any], int], T]
Source = Generator[Request | Either | Give[Any], Any, None]


#: Statuses to retry: too many requests; not ready, or a proxy that cannot reach the server.
PASSING = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of tries of a request, and the waits between them.

    Waits double from ``first`` to ``longest`` seconds, each randomly shortened by up to a half, so that clients do not
    return together. ``Retry-After`` of the server is added. No try begins later than ``seconds`` after the first.
    """

    tries: int = 6
    first: float = 0.1
    longest: float = 10.0
    seconds: float = 60.0

    def wait(self, tries: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after so many tries."""
        ours = min(self.longest, self.first * 2.0 ** min(tries - 1, 30)) * random.uniform(0.5, 1.0)
        return ours if retry_after is None else retry_after + ours


#: No retries: for callers with their own.
NEVER = Retry(tries=1)


def seconds_of(value: str | None) -> float | None:
    """Return ``Retry-After`` in seconds from now; ``None``: it is missing or invalid."""
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
    if status < 300 and isinstance(found, dict) and "performance" in found:  # as every answer of the API has it
        return found
    retry_after = seconds_of(answer.headers.get("retry-after"))
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, dict):
        # On one line each: the worker logs them.
        code, message = (" ".join(str(error.get(name, "")).split()) for name in ("code", "message"))
        raise refusal(status, code, message, error.get("detail"), retry_after)
    if status >= 500 or status == 429:
        raise refusal(status, "not_ready", "A proxy answered instead of the API.", None, retry_after)
    start = answer.content[:80].decode(errors="replace")
    raise BadAnswer(
        f"address must be the URL of the API, for example https://jobs.example.com/v0; it answered {status} with"
        f" {start!r}."
    )


def is_stream(answer: httpx.Response) -> bool:
    """Whether an answer is an event stream, whose body is read as it comes."""
    return answer.status_code == 200 and answer.headers.get("content-type", "").startswith("text/event-stream")


def call(plan: Plan[T], retry: Retry, clock: Callable[[], float] = time.monotonic) -> Call[T]:
    """Return the call of a plan: it reads the answers, and retries temporary failures."""
    return through(plan, lambda request: _send(request, retry, clock))


def _send(request: Request, retry: Retry, clock: Callable[[], float]) -> Call[tuple[dict[str, Any], int]]:
    ends = clock() + retry.seconds
    tries = 0
    # After a broken connection the server may have carried out the request; after a refusal it has not.
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
        yield sleep(wait)


def address(topic: str, end: str = "") -> str:
    """Return the path of a topic, or of something below it."""
    return f"topics/{quote(topic, safe='')}{end}"


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not ``None``."""
    return {name: value for name, value in values.items() if value is not None}


def claim_jobs(topic: str, node: str, max: int, lease_ms: int | None) -> Plan[list[ClientJob]]:
    """Lease jobs to a node; see ``Calls.claim``."""
    answer, _ = yield Request("POST", address(topic, "/claim"), given(node=node, max=max, lease_ms=lease_ms))
    return [ClientJob.of(topic, item) for item in answer["claimed"]]


#: First pause in seconds between claims of an empty queue; doubled each time, up to ``poll_seconds``.
FIRST_POLL = 0.05
#: Seconds without even a heartbeat (the server sends one every 15) after which a stream counts as broken.
SILENCE = 40.0
#: The longest pause in seconds before a reconnect.
LONGEST_WAIT = 2.0


def claims(
    topic: str,
    node: str,
    retry: Retry,
    *,
    max: int | Callable[[], int] = 1,
    lease_ms: int | None = None,
    poll_seconds: float = 1.0,
) -> Source:
    """Give the jobs of each claim as a list, endlessly.

    It retries while the server is unreachable, and raises refusals (a wrong key, no such topic). ``max`` is the most
    jobs of a claim, or a function that returns it; 0 ends the loop. Pauses on an empty queue grow to ``poll_seconds``.
    """
    wait = FIRST_POLL
    failed = 0
    while True:
        size = max() if callable(max) else max
        if not size:
            return
        try:
            jobs = yield from call(claim_jobs(topic, node, size, lease_ms), retry)
        except (ConnectionFailed, ServerUnavailable, Throttled) as error:
            failed += 1
            # A line when it begins and one when it is over, none for every try.
            level = logging.WARNING if failed == 1 else logging.DEBUG
            logger.log(level, "Cannot claim from %r, trying again: %s", topic, error)
            yield sleep(_pause_after(failed, error))
            continue
        if failed:
            logger.info("Claiming from %r again", topic)
        failed = 0
        if jobs:
            wait = FIRST_POLL
            yield Give(jobs)
        else:
            yield sleep(wait * random.uniform(0.75, 1.25))
            wait = min(wait * 2, poll_seconds)


def work(stream: EventStream, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Source:
    """Give jobs as the server pushes them, endlessly; each ack or nack makes room for the next of ``max``.

    When the connection is lost, the server takes back the jobs of the stream: they become ``lost``, and the stream is
    reopened. Permanent refusals (a wrong key, a deleted topic) are raised.
    """
    query = {name: str(value) for name, value in given(node=node, max=max, lease_ms=lease_ms).items()}
    headers = {"accept": "text/event-stream"}
    request = Request("GET", address(topic, "/work"), query=query, headers=headers, wait=SILENCE)
    failed = 0
    while True:
        held: weakref.WeakSet[ClientJob] = weakref.WeakSet()
        reader = EventReader()
        error: ClientError | None = None
        try:
            answer = yield from stream.open(request)
            if not is_stream(answer):
                read(answer)
            if failed:
                logger.info("The stream of %r is open again", topic)
            failed = 0
            while piece := (yield stream.read()):
                for event in reader.feed(piece):
                    data = _data(event)
                    if event.name == "job":
                        job = ClientJob.of(topic, data)
                        held.add(job)
                        yield Give(job)
                    elif event.name == "cancel":
                        for job in [job for job in held if job.lease_id == data["lease_id"]]:
                            job.lose(cancelled=True)
        except (ConnectionFailed, ServerUnavailable, Throttled) as found:
            error = found
        except ValueError as found:
            error = ConnectionFailed(f"The stream cannot be read: {found}.")
        finally:
            # Also if the iterator is closed: it closes the connection, and the leases end.
            for job in held:
                job.lose()
        yield stream.close()
        failed += 1
        pause = _pause_after(failed, error, (reader.retry or 0) / 1000)
        # As above.
        level = logging.DEBUG if failed > 1 else logging.WARNING if error else logging.INFO
        logger.log(level, "The stream of %r ended, connecting again: %s", topic, error or "in order")
        yield sleep(pause)


#: Characters of one event: a job's data and meta are 1 MiB at most.
MAX_EVENT = 4_194_304


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: str
    id: str | None


class EventReader:
    """Parses events as WHATWG HTML says; ``retry`` is the reconnection time in ms, if the server sent one."""

    def __init__(self) -> None:
        self.retry: int | None = None
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        # A line ends with CR LF, LF or CR; a CR at the end of a piece may be the first half of CR LF.
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


def _data(event: Event) -> Any:
    """Return the data of an event. An error 429 means that the server pauses briefly."""
    data = json.loads(event.data)
    if event.name == "error" and data["code"] != 429:
        raise ServerUnavailable(int(data["code"]), "stream_ended", str(data["message"]))
    if event.name not in ("job", "cancel", "error"):
        raise ValueError(f"an event {event.name!r} is unknown")
    return data


def _pause_after(failed: int, error: ClientError | None, first: float = 0.0) -> float:
    """Return the random seconds to wait after consecutive failures, so that clients do not return together."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    step = min(LONGEST_WAIT, (first or 0.5) * 2.0 ** min(failed - 1, 10))
    return (asked or 0.0) + step * random.random()
