"""What every view of this door does: project, client, body, limits, errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from rest_framework import exceptions, status
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ... import conf, engine
from ...engine.pool import patiently
from ...engine.queues.queues import QueueInfo
from ...exceptions import InvalidOption, NotAQueue, QueueNotFound
from .. import payload
from ..access import ADMIN, DELETE, PROJECTS, READ, WRITE, Access
from ..auth import ApiKeyAuthentication, authenticate, require
from ..errors import RETRY, ApiError, answered, not_ready
from ..running import Runner
from ..schema import SCHEMA
from ..throttle import throttle
from .errors import Refused, bad, missing
from .limits import Limits, limits

READS, WRITES, DELETES, ADMINS = (frozenset({scope}) for scope in (READ, WRITE, DELETE, ADMIN))
_TRUE = {"true": True, "false": False}


class JsonRenderer(JSONRenderer):
    """Answers as JSON; what is stored as JSON goes out as it was written."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return the body of an answer."""
        return b"" if data is None else payload.dumps(data)


class ZaqarView(APIView):
    """Base of the views: bodies are JSON whatever their Content-Type, errors are ``{"title", "description"}``."""

    authentication_classes = [ApiKeyAuthentication]
    permission_classes = []
    throttle_classes = []
    renderer_classes = [JsonRenderer]
    #: Method -> the scopes that it needs.
    required_scopes: ClassVar[Mapping[str, frozenset[str]]] = {}
    #: Whether the Client-ID header must be there (all message operations).
    client_required = False
    #: Whether anybody may ask (health).
    public = False

    access: Access
    project: str
    client: str | None
    limits: Limits

    if SCHEMA is not None:
        schema = SCHEMA

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer one request, and do not wait for ever for the database."""
        with ExitStack() as self._patience:
            response = super().dispatch(request, *args, **kwargs)
        if not self.public and response.status_code < status.HTTP_500_INTERNAL_SERVER_ERROR:
            answered()
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check who asks, for what project, and about which queue."""
        self.format_kwarg = None
        request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        self.limits = limits()
        if not self.public:
            self._admit(request)
            self._patience.enter_context(patiently(str(conf.settings.DATABASE)))
        self.project = self._project(request)
        self.client = self._client(request)
        self._check_name(kwargs.get("queue"))
        if not self.public:
            require(self.access, frozenset(), kwargs.get("queue"))

    def _admit(self, request: Request) -> None:
        runner = Runner(str(conf.settings.DATABASE), threaded=True)
        self.access = async_to_sync(authenticate)(request, runner)
        async_to_sync(throttle)(self.access)
        method = "GET" if request.method == "HEAD" else str(request.method)
        require(self.access, self.required_scopes.get(method, frozenset()))

    def _project(self, request: Request) -> str:
        given: str | None = request.headers.get("X-Project-Id")
        if given is not None and (not given or len(given) > 256 or "\x00" in given):
            raise bad("X-Project-Id must be 1 to 256 characters; leave the header out for the project without a name.")
        if self.public:
            return ""
        bound = self.access.project
        if given is None or given == bound:
            return bound
        if PROJECTS not in self.access.scopes:
            raise Refused(
                403,
                "Forbidden",
                "This key acts for its own project only: leave X-Project-Id out, or use a key with the scope projects.",
            )
        return given

    def _client(self, request: Request) -> str | None:
        given: str | None = request.headers.get("Client-ID")
        if given is None:
            if self.client_required:
                raise bad("The header Client-ID is missing: send a UUID that stays the same for your client.")
            return None
        try:
            return str(uuid.UUID(given))
        except ValueError:
            raise bad("The header Client-ID must be a UUID, like 3381af92-2b9e-11e3-b191-71861300734c.") from None

    def _check_name(self, name: str | None) -> None:
        if name is None:
            return
        if not 0 < len(name.encode()) <= self.limits.MAX_QUEUE_NAME_BYTES:
            raise bad(f"The name of a queue must be 1 to {self.limits.MAX_QUEUE_NAME_BYTES} bytes long.")
        if not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name):
            raise bad("The name of a queue must be ASCII letters, digits, underscores and hyphens.")

    # Requests

    def body(self, request: Request, limit: int) -> Any:
        """Return the JSON of the body, at most ``limit`` characters, whatever its Content-Type says.

        Raises:
            Refused, InvalidOption: it is too long, not JSON, or nested too deep.
        """
        raw: HttpRequest = request._request
        length = raw.headers.get("Content-Length") or "0"
        if length.isdigit() and int(length) > limit * 4:
            raise bad(f"The body must be at most {limit} characters; it is {length} bytes.")
        try:
            text = raw.body.decode()
        except UnicodeDecodeError:
            raise bad("The body must be UTF-8.") from None
        if len(text) > limit:
            raise bad(f"The body must be at most {limit} characters; it has {len(text)}.")
        if not text.strip():
            raise bad("The body is empty; it must be JSON.")
        try:
            found = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise bad("The body could not be parsed as JSON.") from None
        payload.check_depth(found, text)
        return found

    def page(self, request: Request, highest: int) -> int:
        """Return the query's ``limit``, from 1 to ``highest``."""
        given = request.query_params.get("limit")
        if given is None:
            return min(self.limits.DEFAULT_PAGE, highest)
        if not given.isascii() or not given.isdigit() or len(given) > 18 or not 1 <= int(given) <= highest:
            raise bad(f"The given limit cannot be below 1, and cannot be greater than {highest}.", "Unsupported limit")
        return int(given)

    def flag(self, request: Request, name: str) -> bool:
        """Return a boolean of the query: ``true`` or ``false`` in any case, false if it is not there."""
        given = request.query_params.get(name)
        if given is None:
            return False
        if given.lower() not in _TRUE:
            raise bad(f"{name} must be true or false; it is {given!r}.")
        return _TRUE[given.lower()]

    def integer(self, document: dict[str, Any], name: str, low: int, high: int) -> int:
        """Return an integer field of a body that must be there and within bounds."""
        value = document.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(f"The field {name!r} must be an integer.")
        if not low <= value <= high:
            raise bad(f"The field {name!r} must be from {low} to {high}.")
        return value

    # The engine

    def queue(self, name: str) -> QueueInfo:
        """Return the queue, or answer 404."""
        info = self.find(name)
        if info is None:
            raise missing(f"There is no queue {name!r} in this project.")
        return info

    def find(self, name: str) -> QueueInfo | None:
        """Return the queue, or ``None``; a log is no queue of this door."""
        info = engine.run(engine.get(name, project=self.project))
        return info if info is not None and info.type == "queue" else None

    # Errors

    def handle_exception(self, exc: Exception) -> Response:
        """Answer every error in this door's form."""
        headers: dict[str, str] = {}
        if isinstance(exc, Refused):
            refused = exc
        elif isinstance(exc, ApiError):
            answer = exc.answer
            refused = Refused(answer.status, answer.code.replace("_", " ").capitalize(), answer.message)
            headers = dict(answer.headers)
        elif isinstance(exc, InvalidOption):
            refused = bad(str(exc))
        elif isinstance(exc, QueueNotFound | NotAQueue):  # deleted, or another one, since the request looked
            refused = missing("There is no such queue in this project.")
        elif isinstance(exc, exceptions.APIException):
            refused = Refused(exc.status_code, str(exc.default_detail), str(exc.detail))
        elif isinstance(exc, Http404):
            refused = missing("There is nothing at this address.")
        elif not_ready(exc) or isinstance(exc, DatabaseError | InterfaceError):
            refused = Refused(
                503, "Service temporarily unavailable", "The storage could not be reached. Please try again."
            )
        else:
            raise exc
        if refused.status == status.HTTP_503_SERVICE_UNAVAILABLE:
            headers = {**RETRY, **headers}
        response = Response(
            {"title": refused.title, "description": refused.description}, refused.status, headers=headers
        )
        response.exception = True
        return response


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
