"""Values that callers and handlers of ``compat.jobqueue`` get, and the signal that tells a handler to stop."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from ..engine import codec
from ..worker.control import JobControl


class Serde(Protocol):
    """A way to write payloads or results."""

    def serialize(self, value: Any, /) -> bytes: ...

    def deserialize(self, buffer: bytes, /) -> Any: ...


class JsonSerde:
    """JSON as bytes: what a queue without a serde writes by itself, as an object."""

    def serialize(self, value: Any, /) -> bytes:
        return codec.dumps(value).encode()

    def deserialize(self, buffer: bytes, /) -> Any:
        return codec.loads(buffer.decode())


def create_json_serde() -> JsonSerde:
    """Return a ``JsonSerde``."""
    return JsonSerde()


class EnqueueResult(NamedTuple):
    """The outcome of an enqueue: ``queued``, ``duplicate`` with the existing state, ``completed`` with the result."""

    status: str
    existing_state: str | None = None
    result: Any = None


class CancelResult(NamedTuple):
    """The state that ``cancel`` found: ``cancelled``, ``processing``, ``completed`` or ``not_found``."""

    status: str


class UpdateResultTTLResult(NamedTuple):
    """The outcome of ``update_result_ttl``: ``updated``, ``not_found`` or ``not_terminal``."""

    status: str


class SerializedError(NamedTuple):
    """The last error of a job.

    ``code`` is the class of the exception, or a word such as ``LEASE_EXPIRED``; ``stack`` is its traceback as text.
    Its own text is the message.
    """

    message: str
    code: str | None = None
    stack: str | None = None

    def __str__(self) -> str:
        return self.message


class MessageStatus(NamedTuple):
    """The state of a job (``queued``, ``processing``, ``failing``, ``completed`` or ``failed``) and its runs so far.

    ``result`` is that of a completed job, ``error`` that of one that is failing or has failed.
    """

    id: str
    state: str
    #: When it was enqueued (aware, UTC).
    created_at: datetime
    attempts: int
    result: Any = None
    error: SerializedError | None = None


class AbortSignal:
    """Tells a running handler to stop: its lease is lost, or its worker stops."""

    def __init__(self, control: JobControl) -> None:
        self._control = control

    @property
    def aborted(self) -> bool:
        """Whether to stop."""
        return self._control.lost

    @property
    def reason(self) -> str:
        """The reason to stop: ``lease_lost`` or ``stopping``; empty while there is none."""
        return self._control.reason

    def throw_if_aborted(self) -> None:
        """Raise ``AbortError`` if the handler is to stop."""
        self._control.raise_if_aborted()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep in a thread until the handler is to stop, at most ``timeout`` seconds; return whether it is."""
        return self._control.event.wait(timeout)

    async def wait_aborted(self) -> str:
        """Wait in a coroutine until the handler is to stop; return the reason."""
        return await self._control.wait_aborted()


@dataclass(slots=True)
class AfterExecutionContext:
    """The run that ends a job, as ``after_execution`` sees it before anything is stored.

    What the hook writes to ``result`` (of a completed run), ``error`` (of a failed one) and ``ttl`` counts.
    """

    id: str
    payload: Any
    #: Runs so far, this one included; how many there may be, 0 for any number.
    attempts: int
    max_attempts: int
    created_at: datetime
    #: ``completed`` or ``failed``.
    status: str
    result: Any
    error: BaseException | None
    #: Milliseconds for which result or error are remembered.
    ttl: int
    worker_id: str
    started_at: datetime
    finished_at: datetime
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its handler gets it. It may be run more than once: ``id`` is what makes that harmless."""

    id: str
    payload: Any
    #: Runs so far, this one included.
    attempts: int
    created_at: datetime
    signal: AbortSignal
