"""Values of requests and answers, and a class for each error that callers handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

from ..exceptions import LeaseQueueError


@dataclass(frozen=True, slots=True)
class Record:
    """One record to append: a job, where the topic is a queue.

    ``data`` is any JSON value, with ``meta`` (an object of at most 16 KiB and 64 keys) at most 1 MiB. ``tag`` is text
    of at most 256 bytes, by which records can be deleted; ``node`` is the producer's name: readers can skip their own
    records; ``tags`` are at most 16 names and values (texts, integers, bools) to find the job by.
    """

    data: Any
    tag: str | None = None
    meta: Mapping[str, Any] | None = None
    node: str | None = None
    tags: Mapping[str, str | int] | None = None

    def body(self) -> dict[str, Any]:
        more = {name: getattr(self, name) for name in ("tag", "meta", "node", "tags")}
        return {"data": self.data, **{name: value for name, value in more.items() if value is not None}}


class _Answer:
    __slots__ = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        return cls(**{item.name: answer.get(item.name) for item in fields(cls)})  # type: ignore[arg-type]  # dataclasses


@dataclass(frozen=True, slots=True)
class Written(_Answer):
    """The outcome of a write: ``seqs`` in the order of the records."""

    topic: str
    seqs: list[int]
    count: int
    created: bool
    deduped: bool

    @property
    def seq(self) -> int:
        """The number of the first record."""
        return self.seqs[0]


@dataclass(eq=False, slots=True, weakref_slot=True)
class ClientJob:
    """A job that is leased to a node.

    ``lost`` becomes true when the lease is over: stop then, the result would be refused, and another worker may have
    the job. ``cancelled`` becomes true when its workflow was cancelled: stop, and nack.
    """

    topic: str
    seq: int
    lease_id: str
    #: The end of the lease, unless it is extended.
    deadline: datetime
    #: The time of the write.
    created_at: datetime
    #: The number of deliveries, this one included.
    deliveries: int
    data: Any
    tag: str | None = None
    meta: Mapping[str, Any] | None = None
    lost: bool = False
    cancelled: bool = False
    #: In a handler of ``Worker``: ``JobSteps`` in a function, ``AsyncJobSteps`` in a coroutine function.
    steps: Any = field(default=None, repr=False)
    _on_stop: Callable[[], object] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, topic: str, item: Mapping[str, Any]) -> Self:
        """Read it from a claim's answer, or from an event of ``/work``."""
        return cls(
            topic,
            item["$seq"],
            item["lease_id"],
            moment(item["deadline"]),
            moment(item["$ts"]),
            item["deliveries"],
            item["data"],
            item.get("$tag"),
            item.get("meta"),
        )

    def when_stopped(self, callback: Callable[[], object] | None) -> None:
        """Set the function to call once when the job is lost or cancelled; ``None``: none."""
        self._on_stop = callback

    def lose(self, *, cancelled: bool = False) -> None:
        """Note that the lease is over, or that the job is ``cancelled``."""
        before = self.lost or self.cancelled
        self.lost, self.cancelled = self.lost or not cancelled, self.cancelled or cancelled
        if self._on_stop is not None and not before:
            self._on_stop()


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of an ack, a nack or an extend.

    ``skipped`` jobs were no longer held. If the request was ``repeated`` (the first answer was lost), the first one may
    have settled a job in ``skipped``.
    """

    count: int
    skipped: list[int]
    repeated: bool = False
    #: After an extend: the new ends of the leases, by seq.
    deadlines: Mapping[int, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspension:
    """The state of a sleep or a wait.

    ``suspended``: the job was given back, and is delivered again within ``left_ms``. Else it is over: ``payload`` is
    that of the event, unless it ``timed_out``.
    """

    suspended: bool
    left_ms: int
    payload: Any
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Page(_Answer):
    """Records of a read, as the API gives them (``$seq``, ``$ts``, ``data``, ...); read on from ``next_from_seq``.

    ``tombstone`` describes unread records that a cap or the TTL has removed; ``None``: none. ``timeline`` is the
    server's: pass it to the next read. ``reset_to`` is the start of a read with ``reset`` after a failover that may
    have lost records; ``None`` otherwise.
    """

    records: list[dict[str, Any]]
    next_from_seq: int
    head_seq: int
    caught_up: bool
    tombstone: Mapping[str, Any] | None
    timeline: int | None = None
    reset_to: int | None = None


def moment(milliseconds: int) -> datetime:
    """Return a time of the API as an aware datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


class ClientError(LeaseQueueError):
    """Base of all errors of the client."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or the connection was lost; ``__cause__`` is the error of httpx."""


class BadAnswer(ClientError):
    """The answer is not of this API: a wrong address, or a proxy's own page."""


class ApiError(ClientError):
    """The server refused a request: the HTTP ``status``, the error's ``code`` (lower snake_case) and ``message``.

    ``detail`` may have more (``topic`` in 404 and 409); ``retry_after`` is the seconds until a retry, if the server
    says so.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.detail: dict[str, Any] = detail or {}
        self.retry_after = retry_after
        super().__init__(f"{status} {code}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.code, self.message, self.detail, self.retry_after)


class InvalidRequest(ApiError):
    """400, 406, 411, 413, 415: the request is invalid or too large; a retry never succeeds."""


class Unauthorized(ApiError):
    """401: the key is missing, unknown, revoked or has expired."""


class Forbidden(ApiError):
    """403: the key lacks a scope, or may not use this topic."""


class TopicNotFound(ApiError):
    """404: there is no such topic. It is made by ``put_topic``, or by its first write."""


class TopicConflict(ApiError):
    """409: the topic is of another type, or is not empty."""


class NotAQueue(TopicConflict):
    """409: the topic is a log, which has no leases."""


class LogTruncated(TopicConflict):
    """409: a failover may have lost read records; continue at ``detail["next_from_seq"]``."""


class LeaseLost(TopicConflict):
    """409: the job's lease is over, or another worker's: nothing was recorded."""


class TopicFull(ApiError):
    """422: the topic is at its cap and refuses more."""


class Throttled(ApiError):
    """429, after all retries: the key makes too many requests."""


class ServerUnavailable(ApiError):
    """5xx, after all retries: the server, its database or its proxy fails."""


_BY_CODE: dict[str, type[ApiError]] = {
    "not_a_queue": NotAQueue, "log_truncated": LogTruncated, "lease_lost": LeaseLost, "topic_not_found": TopicNotFound,
}  # fmt: skip
_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 406: InvalidRequest, 409: TopicConflict,
    411: InvalidRequest, 413: InvalidRequest, 415: InvalidRequest, 422: TopicFull, 429: Throttled,
}  # fmt: skip


def refusal(status: int, code: str, message: str, detail: Any, retry_after: float | None) -> ApiError:
    """Return the error for a refused request."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerUnavailable if status >= 500 else ApiError)
    return kind(status, code, message, detail, retry_after)
