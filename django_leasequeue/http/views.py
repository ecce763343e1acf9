"""The base of all views: one way in (authentication, rights, rate), to the database, to read a body, and out."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.handlers.wsgi import WSGIRequest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_script_prefix
from django.views.decorators.csrf import csrf_exempt
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from .. import conf, engine
from ..engine import AsyncConnectionExecutor, ConnectionExecutor, DjangoExecutor, LeasedJob, Operation, Release
from ..engine.operation import BEGIN, Statements
from ..engine.outage import passes
from ..engine.pool import borrow, connect, in_thread, patiently
from ..engine.queues import presets, routing
from ..engine.queues.queues import QueueLine
from ..exceptions import InvalidOption
from . import payload
from .access import HOLDS_TASKS, PAYLOADS, Access
from .auth import ApiKeyAuthentication, authenticate, require, throttle
from .errors import ApiError, describe, outage
from .fields import Body
from .schema import SCHEMA, Parameter, filled

MAX_WARNINGS = 20
#: Bytes of a body that holds neither records nor results.
SMALL_BODY = 1_048_576

#: An integer of a query, also as ``340.0``.
_WHOLE = re.compile(r"(-?[0-9]{1,4000})(?:\.0{1,10})?")

T = TypeVar("T")

_threads = ThreadPoolExecutor(4, "leasequeue-large")


class RequestRunner:
    """Runs the operations of one request; ``threaded``: on Django's connection of its thread."""

    def __init__(self, using: str, *, threaded: bool) -> None:
        self.using = using
        self.threaded = threaded or in_thread()

    def on(self, using: str) -> RequestRunner:
        return self if using == self.using else RequestRunner(using, threaded=self.threaded)

    async def run(self, work: Operation[T], *, large: bool = False) -> T:
        """Run an operation; ``large``: its parameters are, and preparing them would hold the event loop."""
        if self.threaded or large:
            return await self._in_thread(work)
        async with borrow(self.using) as connection:
            return await AsyncConnectionExecutor(connection).run(work)

    async def run_flushed(self, work: Operation[T], *, large: bool = False) -> tuple[T, float]:
        """Run an operation in a transaction of its own; return its value and the milliseconds of its commit."""
        ended = 0.0

        def flushed() -> Statements[T]:
            nonlocal ended
            yield BEGIN, {}
            value = yield from work
            ended = time.perf_counter()
            return value

        value = await self.run(Operation(flushed), large=large)
        return value, (time.perf_counter() - ended) * 1000

    async def _in_thread(self, work: Operation[T]) -> T:
        def here() -> T:
            with patiently(self.using):
                return DjangoExecutor(self.using).run(work)

        def aside() -> T:  # (on a connection of its own)
            considerate: Operation[T] = Operation(_considerately, work)
            with closing(connect(self.using, patience=conf.settings.STATEMENT_TIMEOUT or None)) as connection:
                return ConnectionExecutor(connection).run(considerate)

        if self.threaded:
            return await sync_to_async(here)()
        return await asyncio.get_running_loop().run_in_executor(_threads, aside)


def _considerately(work: Operation[T]) -> Statements[T]:
    """Let steps be prepared by one thread at a time."""
    steps = iter(work)
    go = partial(next, steps)
    while True:
        with payload.considerately():
            try:
                step = go()
            except StopIteration as end:
                return cast(T, end.value)
        try:
            go = partial(steps.send, (yield step))
        except Exception as error:  # noqa: BLE001  (the steps may have an answer to it)
            go = partial(steps.throw, error)


class ApiView(APIView):
    """A DRF view of an API: handlers are coroutines, and what DRF does for each request is done here natively async."""

    authentication_classes = [ApiKeyAuthentication]
    permission_classes = []
    throttle_classes = []
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    http_method_names = ["get", "post", "put", "delete", "head"]
    #: What the addresses call the topic that they are about.
    subject: ClassVar[str] = "topic"
    #: Whether anybody may ask, without a key.
    public: ClassVar[bool] = False
    #: Whether a token in the query counts: event streams only, for browsers.
    token_in_query: ClassVar[bool] = False

    #: The method's function, with what its ``endpoint`` says: the scopes that it needs, and more.
    handler: Any
    access: Access
    #: The tenant that the request works for.
    project: str
    runner: RequestRunner
    began: float
    #: What the client should know of its request, as sentences: they go into a successful answer.
    warnings: list[str]
    #: Whether the body is so large that what it brings is written in a thread.
    large = False

    if SCHEMA is not None:
        schema = SCHEMA

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        view: Any = super().as_view(**initkwargs)
        # An async view cannot be inside ATOMIC_REQUESTS; operations have transactions of their own.
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    async def dispatch(  # type: ignore[override]  # as Django's own async views do
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        scope = getattr(request, "scope", None)
        self.began = scope.get(payload.RECEIVED) or time.perf_counter() if scope else time.perf_counter()
        self.args, self.kwargs, self.headers, self.warnings = args, kwargs, {}, []
        topic = kwargs.get(self.subject)
        # Under ASGI Django leaves FORCE_SCRIPT_NAME out of it, and our links would be without.
        request.path = get_script_prefix() + request.path_info.removeprefix("/")
        self.request = wrapped = self.initialize_request(request, *args, **kwargs)
        try:
            allowed, method = self.allowed_methods, request.method or ""
            handler = getattr(self, method.lower(), None) if method in allowed else None
            if handler is None:
                message = f"{method} is not possible here; {' and '.join(allowed) or 'nothing'} is."
                raise ApiError(405, "method_not_allowed", message, headers={"Allow": ", ".join(allowed)})
            self.handler = handler
            await self._admit(wrapped, topic)
            response: HttpResponseBase = await handler(wrapped, **kwargs)
            if outage.parts and not self.public:
                outage.ends("requests")  # the database answered
            return response
        except Exception as error:  # noqa: BLE001  (whatever happens has one form for the client)
            return self.refuse(error, topic)

    async def _admit(self, request: Request, topic: str | None) -> None:
        self.project = ""
        self.runner = runner = RequestRunner(conf.settings.DATABASE, threaded=isinstance(request._request, WSGIRequest))
        if not self.public:
            self.access = await authenticate(request, runner, in_query=self.token_in_query)
            limit = conf.settings.API.RATE_PER_SECOND if self.access.rate is None else self.access.rate
            if limit is not None:
                await throttle(self.access, limit)
            require(self.access, self.handler.scopes)
            self.project = self.access.project
            if (named := request.headers.get("X-Project-Id")) is not None:
                self.project = self.named_project(named)
        self.check_address(request, topic)
        if topic is None:
            return
        require(self.access, frozenset(), topic)
        alias = routing.alias_of(self.project, topic, adding=getattr(self.handler, "adds", False))
        if alias != runner.using:
            self.runner = runner.on(alias)

    def named_project(self, named: str) -> str:
        """Return the project that Zaqar's header names, if the request may work for it: for its key's own alone."""
        if named != self.access.project:
            message = "This key acts for its own project only, and X-Project-Id names another: use a key of that one."
            raise ApiError(403, "forbidden", message)
        return named

    def check_address(self, request: Request, topic: str | None) -> None:
        """Check what an API asks of a request beside a key."""
        if topic is not None:
            presets.check_name(topic, "the name of a topic")

    async def refuse_tasks(self, jobs: Sequence[LeasedJob], node: str) -> NoReturn:
        """Give tasks that the caller may not have back, as not delivered, and answer 403."""
        releases = [Release(job.seq, job.token, 0) for job in jobs]
        await self.runner.run(engine.release(releases, node, project=self.project, unstarted=True))
        raise ApiError(403, "forbidden", HOLDS_TASKS)

    async def list_queues(self, size: int, **options: Any) -> tuple[list[QueueLine], int]:
        """Return queues of all databases by name, of those that the key may see, and how many databases are away."""
        operation = engine.list_queues(project=self.project, prefixes=self.access.prefixes, size=size, **options)
        found: list[QueueLine] = []
        aliases, away = routing.aliases(), 0
        for alias in aliases:
            try:
                rows: list[QueueLine] = await self.runner.on(alias).run(operation)
                found += rows
            except Exception as error:
                away += 1
                if away == len(aliases) or not passes(error):
                    raise
        return sorted(found, key=lambda line: line.name)[:size], away

    async def body(self) -> dict[str, Any]:
        """Return the valid fields of the request's body; no body is an empty object. Unknown fields become warnings."""
        kind: type[Body] = self.handler.body
        limit = conf.settings.API.MAX_BODY_BYTES
        if not kind.bulk:
            limit = min(limit, SMALL_BODY)
        raw = await self.read(limit)
        if raw is None:
            raise _too_large(f"{limit} bytes")
        if not raw:
            return kind.validated({})
        media = self.request._request.content_type
        if media != "application/json" and not (media or "").endswith("+json"):
            message = f"The body must be JSON: send 'Content-Type: application/json' (it is {media!r})."
            raise ApiError(415, "unsupported_media_type", message)

        def valid(data: Any) -> dict[str, Any]:
            if not isinstance(data, dict):
                raise ApiError(400, "invalid_request", "The body must be a JSON object.")
            fields = kind.validated(data)
            if self.large:
                kind.check_large(fields)
            unknown = kind.unknown(data)[:MAX_WARNINGS]
            self.warnings += [f"The field {name[:80]!r} is not known here: it was ignored." for name in unknown]
            return fields

        return await self.parse(raw, valid)

    async def read(self, limit: int) -> bytes | None:
        """Return the request's body, inflated; ``None`` if it has more than ``limit`` bytes: those are not read."""
        request = self.request._request
        length = request.META.get("CONTENT_LENGTH") or ""
        if not length and "HTTP_TRANSFER_ENCODING" in request.META and isinstance(request, WSGIRequest):
            message = "Under WSGI a chunked body is not read: send it with Content-Length, or serve the API by ASGI."
            raise ApiError(411, "length_required", message)
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            return None
        unread = getattr(request, "scope", {}).get(payload.UNREAD)
        raw: bytes | None = bytes(request.read(limit + 1)) if unread is None else await unread.read(limit)
        if raw is None or len(raw) > limit:
            return None
        encoding = request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower()
        if encoding not in ("", "identity"):
            if encoding not in ("gzip", "x-gzip"):
                message = f"Content-Encoding {encoding[:80]!r} is unknown: send gzip or none."
                raise ApiError(415, "unsupported_media_type", message)
            try:
                if isinstance(request, WSGIRequest):
                    return payload.inflate(raw, limit)
                return await payload.in_thread(partial(payload.inflate, raw, limit))
            except ValueError as error:
                raise ApiError(400, "invalid_request", f"The body is not valid gzip: {error}.") from error
        return raw

    async def parse(self, raw: bytes, use: Callable[[Any], T]) -> T:
        """Return what ``use`` makes of a body's JSON; of a large one in a thread."""

        def work() -> T:
            if len(raw) > payload.MAX_VALUES and payload.too_many(raw):
                raise _too_large(f"{payload.MAX_VALUES:,} values")
            try:
                data = payload.loads(raw)
            except ValueError as error:
                raise ApiError(400, "invalid_request", f"The body is not valid JSON: {error}.") from error
            depth = conf.settings.API.MAX_DEPTH
            # Only a text with many brackets can be nested so deep.
            if raw.count(b"{") + raw.count(b"[") > depth and payload.too_deep(data, depth):
                raise InvalidOption(f"The body is nested more than {depth} deep: flatten the data.")
            return use(data)

        self.large = len(raw) >= payload.IN_PIECES
        if len(raw) < payload.IN_THREAD or isinstance(self.request._request, WSGIRequest):
            return work()
        return await payload.in_thread(work)

    def flag(self, parameter: Parameter) -> bool:
        value = self.request.GET.get(parameter.name, str(parameter.schema["default"]))
        if value.lower() not in ("true", "false", "1", "0"):
            raise ApiError(400, "invalid_request", f"{parameter.name} must be true or false; it is {value[:80]!r}.")
        return value.lower() in ("true", "1")

    def number(self, parameter: Parameter) -> int:
        """Return an integer of the query, refused below its minimum, cut to its highest value."""
        value = self.request.GET.get(parameter.name)
        if value is None:
            return int(filled(parameter.schema["default"]))
        found = _WHOLE.fullmatch(value)
        if found is None:
            raise ApiError(400, "invalid_request", f"{parameter.name} must be an integer; it is {value[:80]!r}.")
        number, low = int(found[1]), parameter.schema.get("minimum")
        if low is not None and number < low:
            raise ApiError(400, "invalid_request", f"{parameter.name} must be {low} or more; it is {number}.")
        return min(number, parameter.most())

    def answer(
        self, content: Mapping[str, Any], *, status: int = 200, performance: Mapping[str, float] = {}
    ) -> HttpResponse:
        """Return a successful answer: the content and, measured last, what it took."""
        body = payload.dumps({**content, "warnings": self.warnings[:MAX_WARNINGS]} if self.warnings else content)
        spent = {"server_total_ms": round((time.perf_counter() - self.began) * 1000, 3), **performance}
        tail = b'"performance":' + payload.dumps(spent) + b"}"
        return json_response(body[:-1] + (b"," if len(body) > 2 else b"") + tail, status)

    def refuse(self, error: Exception, topic: str | None = None) -> HttpResponse:
        answer = describe(error, topic)
        told = {"code": answer.code, "message": answer.message, **({"detail": answer.detail} if answer.detail else {})}
        return json_response({"error": told}, answer.status, answer.headers)

    async def recheck(self, topics: Iterable[str]) -> None:
        """Raise when the client may not go on (streams): its key was revoked, has expired, or lost a right."""
        access = await authenticate(self.request, self.runner, in_query=self.token_in_query)
        require(access, self.handler.scopes | (self.access.scopes & {PAYLOADS}))
        for topic in topics:
            require(access, frozenset(), topic)
        if access.project != self.access.project:
            raise ApiError(403, "forbidden", "This key belongs to another project now.")


def _too_large(size: str) -> ApiError:
    return ApiError(413, "payload_too_large", f"The body has more than {size}: send fewer records at a time.")


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] = {}) -> HttpResponse:
    """Return an answer with a value as its body, or with JSON that is written already."""
    text = content if isinstance(content, bytes) else payload.dumps(content)
    # The length is a middleware's affair elsewhere in Django; here there may be none.
    length = {"Content-Length": str(len(text))}
    return HttpResponse(text, status=status, content_type="application/json", headers={**headers, **length})


@csrf_exempt
def not_found(request: HttpRequest, **_: str) -> HttpResponse:
    """Answer 404 below an API's prefix where there is no endpoint."""
    return ApiView().refuse(ApiError(404, "not_found", "There is no endpoint at this address: see the API's schema."))
