"""The client's errors: one class for each thing that a caller can do something about."""

from __future__ import annotations

from typing import Any

from ..exceptions import LeaseQueueError


class ClientError(LeaseQueueError):
    """Base of all errors of the client."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or broke off; the last error of the HTTP library is the ``__cause__``."""


class BadAnswer(ClientError):
    """Something answered that is not this API: a wrong address, or a proxy's own page."""


class ApiError(ClientError):
    """The server refused a request: the HTTP ``status``, the error's ``code`` (lower snake_case) and ``message``.

    ``detail`` has more, where there is more (``topic`` in 404 and 409); after ``retry_after`` seconds it may be tried
    again, where the server says so.
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
    """400, 406, 413, 415: the request is wrong, or too large; the same one never succeeds."""


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
    """409: a failover may have lost what was read; ``detail["next_from_seq"]`` is where to read on."""


class LeaseLost(TopicConflict):
    """409: the job's lease is over, or another's: what was to be kept is not."""


class TopicFull(ApiError):
    """422: the topic is at its cap and refuses more."""


class Throttled(ApiError):
    """429, after all retries: the key makes too many requests."""


class ServerUnavailable(ApiError):
    """5xx, after all retries: the server, its database or the proxy before it is not well."""


_BY_CODE: dict[str, type[ApiError]] = {
    "not_a_queue": NotAQueue,
    "log_truncated": LogTruncated,
    "lease_lost": LeaseLost,
    "topic_not_found": TopicNotFound,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    **dict.fromkeys((400, 406, 413, 415), InvalidRequest),
    401: Unauthorized,
    403: Forbidden,
    409: TopicConflict,
    422: TopicFull,
    429: Throttled,
}


def refusal(
    status: int, code: str, message: str, detail: dict[str, Any] | None = None, retry_after: float | None = None
) -> ApiError:
    """Return the error for a refused request."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerUnavailable if status >= 500 else ApiError)
    return kind(status, code, message, detail, retry_after)
