"""The base of this door's views: project, client, body and limits of a request, and errors with a title."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request

from ... import conf, engine
from ...conf.options import ZaqarLimits
from ...engine.queues.queues import QueueInfo
from ...exceptions import NotAQueue, QueueNotFound
from ..access import ADMIN, DELETE, PROJECTS, READ, WRITE
from ..errors import ApiError, describe
from ..views import ApiView, json_response
from .schema import Seconds

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


READS, WRITES, DELETES, ADMINS = (frozenset({scope}) for scope in (READ, WRITE, DELETE, ADMIN))
_TRUE = {"true": True, "false": False}
#: What no JSON is sent as on purpose: the type that clients set when nobody named one.
FORM = "application/x-www-form-urlencoded"


class ZaqarView(ApiView):
    """Base of the views: bodies are JSON, whatever Content-Type but a form's; errors ``{"title", "description"}``."""

    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    subject = "queue"
    #: Whether the Client-ID header must be there (all message operations).
    client_required: ClassVar[bool] = False

    client: str | None

    @property
    def limits(self) -> ZaqarLimits:
        """The limits in force."""
        return conf.settings.API.ZAQAR

    async def _admit(self, request: Request, topic: str | None) -> None:
        self.format_kwarg = None  # (the framework's negotiation asks: addresses have no suffix that names a format)
        self.perform_content_negotiation(request)
        await super()._admit(request, topic)

    def check_address(self, request: Request, topic: str | None) -> None:
        """Note the project and the client that a request names; check the name of its queue.

        Raises:
            Refused: the key may not act for the project, a header is missing or wrong, or no queue has such a name.
        """
        given: str | None = request.headers.get("X-Project-Id")
        if given is not None and (not given or len(given) > 256 or "\x00" in given):
            raise bad("X-Project-Id must be 1 to 256 characters; leave the header out for the project without a name.")
        if not self.public and given is not None and given != self.project:
            if PROJECTS not in self.access.scopes:
                raise Refused(
                    403,
                    "Forbidden",
                    "This key acts for its own project only: leave X-Project-Id out, or use a key with the scope "
                    "projects.",
                )
            self.project = given
        self._check_client(request.headers.get("Client-ID"))
        if topic is not None:
            self._check_name(topic)

    def _check_client(self, given: str | None) -> None:
        self.client = None
        if given is None:
            if self.client_required:
                raise bad("The header Client-ID is missing: send a UUID that stays the same for your client.")
            return
        try:
            self.client = str(uuid.UUID(given))
        except ValueError:
            raise bad("The header Client-ID must be a UUID, like 3381af92-2b9e-11e3-b191-71861300734c.") from None

    def _check_name(self, topic: str) -> None:
        if not 0 < len(topic.encode()) <= self.limits.MAX_QUEUE_NAME_BYTES:
            raise bad(f"The name of a queue must be 1 to {self.limits.MAX_QUEUE_NAME_BYTES} bytes long.")
        if not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in topic):
            raise bad("The name of a queue must be ASCII letters, digits, underscores and hyphens.")

    # Requests

    async def document(self, limit: int) -> Any:
        """Return the JSON of the body, at most ``limit`` characters, whatever its Content-Type says but a form's.

        Raises:
            Refused, ApiError, InvalidOption: it is a form, too long, not JSON, or nested too deep.
        """
        request: HttpRequest = self.request._request
        if request.content_type == FORM:
            raise bad(f"The body must be JSON, not a form: send it with another Content-Type than {FORM}.")
        raw = await self.read(limit * 4)
        try:
            text = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            raise bad("The body must be UTF-8.") from None
        if raw is None or text is None or len(text) > limit:
            raise bad(f"The body must be at most {limit} characters; it has more.")
        if not text.strip():
            raise bad("The body is empty; it must be JSON.")
        return await self.parse(raw, lambda data: data)

    def page(self, highest: int) -> int:
        """Return the query's ``limit``, from 1 to ``highest``."""
        given = self.request.GET.get("limit")
        if given is None:
            return min(self.limits.DEFAULT_PAGE, highest)
        if not given.isascii() or not given.isdigit() or len(given) > 18 or not 1 <= int(given) <= highest:
            raise bad(f"The given limit cannot be below 1, and cannot be greater than {highest}.", "Unsupported limit")
        return int(given)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a switch of the query: ``true`` or ``false`` in any case."""
        given = self.request.GET.get(name)
        if given is None:
            return default
        if given.lower() not in _TRUE:
            raise bad(f"{name} must be true or false; it is {given!r}.")
        return _TRUE[given.lower()]

    def milliseconds(self, document: dict[str, Any], field: Seconds) -> int:
        """Return a field of whole seconds that must be there and within bounds, in milliseconds."""
        value = document.get(field.name)
        low, high = field.bounds
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(f"The field {field.name!r} must be an integer.")
        if not low <= value <= high:
            raise bad(f"The field {field.name!r} must be from {low} to {high}.")
        return value * 1_000

    # The engine

    async def queue(self, name: str) -> QueueInfo:
        """Return the queue, or answer 404."""
        info = await self.find(name)
        if info is None:
            raise missing(f"There is no queue {name!r} in this project.")
        return info

    async def find(self, name: str) -> QueueInfo | None:
        """Return the queue, or ``None``; a log is no queue of this door."""
        info = await self.run(engine.get(name, project=self.project))
        return info if info is not None and info.type == "queue" else None

    # Answers

    def reply(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Return a successful answer with a body."""
        return json_response(content, status, headers)

    def empty(self, status: int = 204, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Return a successful answer without a body."""
        response = HttpResponse(status=status, headers=dict(headers or {}))
        del response["Content-Type"]
        if status != 204:  # which never has a length
            response["Content-Length"] = "0"
        return response

    def refuse(self, error: Exception, topic: str | None = None) -> HttpResponse:
        """Return the answer to a request that failed."""
        return refusal(error)
