"""Errors as clients see them: one code and one sentence for everything that can go wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

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
    """An error as clients see it: its status, the ``error`` object of its body in parts, and headers."""

    def __init__(
        self, status: int, code: str, message: str, *, detail: Mapping[str, Any] = {}, headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.detail, self.headers = detail, headers


_NO_TOPIC = "There is no topic {about!r}. Create it with PUT, or by its first write."
_NO_QUEUE = "{about!r} is a log, not a queue: read it with diff or watch. Jobs are leased from queues only."
#: What errors are for clients, the most special first: status, code, and the message where it is not the error's own.
_KNOWN: list[tuple[type[Exception], int, str, str]] = [
    (ours.BatchTooLarge, 400, "batch_too_large", ""),
    (ours.PayloadTooLarge, 400, "record_too_large", ""),
    (ours.QueueNotFound, 404, "topic_not_found", _NO_TOPIC),
    (ours.NotAQueue, 409, "not_a_queue", _NO_QUEUE),
    (ours.LogTruncated, 409, "log_truncated", ""),
    (ours.LeaseLost, 409, "lease_lost", ""),
    (ours.QueueConflict, 409, "topic_exists_incompatible", ""),
    (ours.QueueFull, 422, "topic_full", ""),
    (ours.InvalidOption, 400, "invalid_request", ""),
    (Http404, 404, "not_found", "There is nothing at this address."),
    (DjangoPermissionDenied, 403, "forbidden", "This is not allowed."),
    (RequestDataTooBig, 413, "payload_too_large", "The body is too large: split the request."),
    (SuspiciousOperation, 400, "invalid_request", "The request is malformed."),
]

RETRY = {"Retry-After": "1"}
#: One line when requests begin to fail because of the database, one when they succeed again.
outage = Outage(logger, "The database is away: requests are answered 503", "The database is back")


def describe(error: Exception, topic: str | None = None) -> ApiError:
    """Return the answer to a failed request; an error of the server is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ours.LargeStorageError):
        logger.warning("A request was answered 503: %s", error)
        message = "The storage of large payloads is not reachable. Nothing was changed; try again."
        return ApiError(503, "not_ready", message, headers=RETRY)
    if isinstance(error, ours.QueueBusy):  # whose transactions these are is not for clients
        message = f"Somebody may be adding to {error.queue!r} at this moment. Nothing was deleted; try again."
        return ApiError(503, "not_ready", message, headers=RETRY)
    if isinstance(error, drf.ValidationError):
        return _from_validation(error)
    if isinstance(error, drf.APIException):
        status, wait = int(error.status_code), getattr(error, "wait", None)
        headers = {"Retry-After": str(max(1, round(wait)))} if wait else {}
        code = CODES.get(status, "internal" if status >= 500 else "invalid_request")
        return ApiError(status, code, _sentence(str(error.detail)), headers=headers)
    for kind, status, code, message in _KNOWN:
        if isinstance(error, kind):
            about = topic or getattr(error, "queue", None)
            of_topic = isinstance(error, ours.LeaseQueueError) and status in (404, 409) and about is not None
            detail: dict[str, Any] = {"topic": about} if of_topic else {}
            if isinstance(error, ours.LogTruncated):
                detail |= {"next_from_seq": error.kept, "timeline": error.timeline}
            return ApiError(status, code, message.format(about=about) or _sentence(str(error)), detail=detail)
    if isinstance(error, psycopg.DataError | DataError | psycopg.errors.StatementTooComplex):
        line = str(error).strip().split("\n", 1)[0].rstrip(".")
        return ApiError(400, "invalid_request", f"The database cannot store this: {line}.")
    if passes(error):
        outage.begins("requests", error)
        message = "The database is away, read-only or too slow, or has no free connection. Try again."
        return ApiError(503, "not_ready", message, headers=RETRY)
    logger.error("A request failed", exc_info=error)
    return ApiError(500, "internal", "An error of the server; its log has the cause. It is safe to try again.")


def _sentence(text: str) -> str:
    """Begin like a sentence, unless the first word is the name of a field."""
    return text if "_" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


CODES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    406: "not_acceptable", 411: "length_required", 413: "payload_too_large", 415: "unsupported_media_type",
    429: "throttled", 500: "internal",
}  # fmt: skip


def _from_validation(error: drf.ValidationError) -> ApiError:
    code = "invalid_request"
    sentences = []
    for path, detail in _flatten(error.detail):
        if detail.code in ("batch_too_large", "record_too_large"):
            code = detail.code
        named = not path or str(detail).startswith(path)
        sentences.append(str(detail) if named else f"{path}: {detail}")
    return ApiError(400, code, " ".join(sentences))


def _flatten(detail: Any, path: str = "") -> Iterator[tuple[str, drf.ErrorDetail]]:
    if isinstance(detail, dict):
        for key, value in detail.items():
            names = (path, "" if key == "non_field_errors" else str(key))
            yield from _flatten(value, ".".join(filter(None, names)))
    elif isinstance(detail, list):
        for value in detail:
            yield from _flatten(value, path)
    else:
        yield path, detail
