"""Errors of this door: a status and ``{"title", "description"}``."""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpResponse

from ...exceptions import NotAQueue, QueueNotFound
from ..errors import ApiError, describe
from ..views import json_response

#: Titles of errors by their code; where there is none, the code in words.
_TITLES = {"invalid_request": "Invalid API request", "not_ready": "Service temporarily unavailable"}


class Refused(ApiError):
    """A request that is answered with an error of this door's own."""

    def __init__(self, status: int, title: str, description: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, "refused", description, headers=headers)
        self.title = title


def bad(description: str, title: str = _TITLES["invalid_request"]) -> Refused:
    """A request that is wrong: 400."""
    return Refused(400, title, description)


def missing(what: str) -> Refused:
    """Something that is not there: 404."""
    return Refused(404, "Not found", what)


def forbidden(description: str, title: str = "Forbidden") -> Refused:
    """Something that the caller may not do: 403."""
    return Refused(403, title, description)


def refusal(error: Exception) -> HttpResponse:
    """Return the answer to a request that failed."""
    if isinstance(error, QueueNotFound | NotAQueue):  # deleted, or another one, since the request looked
        error = missing("There is no such queue in this project.")
    answer = describe(error)
    if isinstance(error, Refused):
        title = error.title
    else:
        title = _TITLES.get(answer.code) or answer.code.replace("_", " ").capitalize()
    return json_response({"title": title, "description": answer.message}, answer.status, answer.headers)
