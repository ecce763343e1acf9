"""Errors as clients see them: one code and one sentence for everything that can go wrong."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import DataError
from django.http import Http404
from rest_framework import exceptions as drf

from .. import exceptions as ours
from ..engine.outage import Outage, passes

logger = logging.getLogger("django_leasequeue.http")


class ApiError(Exception):
    """An error with a status and a code of its own."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        detail: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = ErrorAnswer(status, code, message, dict(detail or {}), dict(headers or {}))


class ErrorAnswer(NamedTuple):
    """What is answered: the status, the body's ``error`` object in parts, and headers."""

    status: int
    code: str
    message: str
    # Shared defaults: never mutated.
    detail: dict[str, Any] = {}
    headers: dict[str, str] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The body: ``{"error": {"code", "message"[, "detail"]}}``."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            error["detail"] = self.detail
        return {"error": error}


#: The engine's errors, the most special first.
_ENGINE: list[tuple[type[Exception], int, str]] = [
    (ours.BatchTooLarge, 400, "batch_too_large"),
    (ours.PayloadTooLarge, 400, "record_too_large"),
    (ours.QueueNotFound, 404, "topic_not_found"),
    (ours.NotAQueue, 409, "not_a_queue"),
    (ours.LogTruncated, 409, "log_truncated"),
    (ours.LeaseLost, 409, "lease_lost"),
    (ours.QueueConflict, 409, "topic_exists_incompatible"),
    (ours.QueueFull, 422, "topic_full"),
    (ours.InvalidOption, 400, "invalid_request"),
]

#: Codes that a validation error may carry; everything else is ``invalid_request``.
_VALIDATION_CODES = ("batch_too_large", "record_too_large")

#: Of an answer 503.
RETRY = {"Retry-After": "1"}
#: One line when requests begin to fail because of the database, one when they succeed again.
outage = Outage(logger, "The database is away: requests are answered 503", "The database is back")


def not_ready(error: Exception) -> bool:
    """Whether an error is the database's that is away for a moment: the answer is 503. It is said once."""
    if passes(error):
        outage.begins("requests", error)
        return True
    return False


def describe(error: Exception, topic: str | None = None) -> ErrorAnswer:
    """Return the answer to a failed request; an error of the server is logged."""
    if isinstance(error, ApiError):
        return error.answer
    if isinstance(error, ours.LargeStorageError):
        logger.warning("A request was answered 503: %s", error)
        message = "The storage of large payloads is not reachable. Nothing was changed; try again."
        return ErrorAnswer(503, "not_ready", message, {}, RETRY)
    if isinstance(error, ours.LeaseQueueError):
        for kind, status, code in _ENGINE:
            if isinstance(error, kind):
                about = topic or getattr(error, "queue", None)
                named: dict[str, Any] = {"topic": about} if about is not None and status in (404, 409) else {}
                if isinstance(error, ours.LogTruncated):
                    named |= {"next_from_seq": error.kept, "timeline": error.timeline}
                message = _sentence(str(error))
                if isinstance(error, ours.QueueNotFound):
                    message = f"There is no topic {about!r}. Create it with PUT, or by its first write."
                elif isinstance(error, ours.NotAQueue):
                    message = (
                        f"{error.queue!r} is a log, not a queue: read it with diff or watch. Jobs are leased from"
                        " queues only."
                    )
                return ErrorAnswer(status, code, message, named)
    if isinstance(error, drf.APIException | Http404 | DjangoPermissionDenied | SuspiciousOperation):
        return _from_framework(error)
    if isinstance(error, psycopg.DataError | DataError | psycopg.errors.StatementTooComplex):
        line = str(error).strip().split("\n", 1)[0].rstrip(".")
        return ErrorAnswer(400, "invalid_request", f"The database cannot store this: {line}.")
    if not_ready(error):
        message = "The database is not reachable or has no free connection. Try again."
        return ErrorAnswer(503, "not_ready", message, {}, RETRY)
    logger.error("A request failed", exc_info=error)
    return ErrorAnswer(500, "internal", "An error of the server; its log has the cause. It is safe to try again.")


def _sentence(text: str) -> str:
    """Begin like a sentence, unless the first word is the name of a field."""
    return text if "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


_STATUS_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "payload_too_large",
    415: "unsupported_media_type",
    429: "throttled",
}


def _from_framework(error: Exception) -> ErrorAnswer:
    if isinstance(error, Http404):
        return ErrorAnswer(404, "not_found", "There is nothing at this address.")
    if isinstance(error, DjangoPermissionDenied):
        return ErrorAnswer(403, "forbidden", "This is not allowed.")
    if isinstance(error, RequestDataTooBig):
        return ErrorAnswer(413, "payload_too_large", "The body is too large: split the request.")
    if isinstance(error, drf.ValidationError):
        return _from_validation(error)
    if not isinstance(error, drf.APIException):
        return ErrorAnswer(400, "invalid_request", "The request is malformed.")
    status = int(error.status_code)
    headers = {}
    wait = getattr(error, "wait", None)
    if wait:
        headers["Retry-After"] = str(max(1, round(wait)))
    code = _STATUS_CODES.get(status, "internal" if status >= 500 else "invalid_request")
    return ErrorAnswer(status, code, _sentence(str(error.detail)), {}, headers)


def _from_validation(error: drf.ValidationError) -> ErrorAnswer:
    code = "invalid_request"
    sentences = []
    for path, detail in _flatten(error.detail):
        if detail.code in _VALIDATION_CODES:
            code = detail.code
        # A sentence that names the field itself needs no prefix.
        sentences.append(str(detail) if not path or str(detail).startswith(path) else f"{path}: {detail}")
    return ErrorAnswer(400, code, " ".join(sentences))


def _flatten(detail: Any, path: str = "") -> list[tuple[str, drf.ErrorDetail]]:
    if isinstance(detail, dict):
        found = []
        for key, value in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            found += _flatten(value, f"{path}.{name}" if path and name else path or name)
        return found
    if isinstance(detail, list):
        return [item for value in detail for item in _flatten(value, path)]
    return [(path, detail)]
