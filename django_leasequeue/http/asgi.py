"""Serving the APIs beside Django, without what they do not need: the host's middleware, threads, a task per request.

``application = beside(get_asgi_application(), "/v0/")`` in the host's ``asgi.py``. The APIs work without it as well,
as ordinary views; this makes them faster. ``beside(None, "/v0/")`` serves the APIs and nothing else, for a process
beside a site that has a WSGI server.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from asgiref.sync import ThreadSensitiveContext, async_to_sync
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import convert_exception_to_response
from django.core.signals import request_finished, request_started
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, get_resolver, set_script_prefix

from .. import conf
from ..engine.pool import close_pools
from ..notify import close_listeners
from .errors import logger
from .payload import RECEIVED, TRANSPORT, UNREAD, in_thread
from .streaming import finish_background, stop

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Where ``beside`` notes the view in the ASGI scope.
MATCH = "leasequeue.match"
#: Bytes of a body that are kept in memory while it comes: Django's usual size.
IN_MEMORY = 2_621_440
#: Seconds that a request may take before its connection is watched: most are done by then.
WATCH_AFTER = 0.02
#: Seconds that an answer waits for the rest of an unread body; a body of more bytes a second gets longer.
SKIP_SECONDS, SKIP_RATE = 1.0, 65_536


class ApiHandler(ASGIHandler):
    """Django's ASGI handler for the APIs' views alone: no middleware, but the Host is checked (``ALLOWED_HOSTS``)."""

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(self._answer)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        request.get_host()
        found: HttpResponseBase = await self._get_response_async(request)  # type: ignore[attr-defined]  # Django's own
        return found

    def resolve_request(self, request: Any) -> ResolverMatch:
        request.resolver_match = match = cast(ResolverMatch, request.scope[MATCH])
        return match

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[RECEIVED] = time.perf_counter()
        async with ThreadSensitiveContext():
            if not conf.settings.API.AUTHENTICATION_CLASSES:
                await self._handle(scope, receive, send)
                return
            # A host's class may use Django's connections: the signals of a request look after those.
            await request_started.asend(sender=type(self), scope=scope)
            try:
                await self._handle(scope, receive, send)
            finally:
                await request_finished.asend(sender=type(self))

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        if first["type"] == "http.disconnect":
            return
        client = _Client(receive, first)
        if client.more:  # the view reads the body once it has admitted the client
            scope[UNREAD] = client
        scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)  # (uvicorn's)
        set_script_prefix(get_script_prefix(scope))
        file: Any = _BodyFile(client) if client.more else io.BytesIO(first.get("body", b""))
        request, refused = self.create_request(scope, file)
        if request is None:
            if refused is not None:
                await self.send_response(refused, send)
            return
        if not client.more:
            client.watch()
        try:
            response = await self.run_get_response(request)
            if not await client.skip() and scope["http_version"].startswith("1"):
                response.headers["Connection"] = "close"
            await self.send_response(response, send)
        except asyncio.CancelledError:
            if not client.gone:
                raise
            client.task.uncancel()  # the cancellation was ours, and is over
        finally:
            client.close()


class _Client:
    """The client of a request: its body, from whose end on the request is cancelled when the client leaves."""

    def __init__(self, receive: Receive, first: Message) -> None:
        self._receive = receive
        self._first = first.get("body", b"")
        self.more: bool = first.get("more_body", False)
        #: The body that a host's authentication class has read: the view gets it as well.
        self.kept: bytes | None = None
        self.gone = False
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def read(self, limit: int) -> bytes | None:
        """Return the body: in memory while it comes, on disk beyond Django's usual size; ``None`` beyond the limit."""
        if self.kept is not None:
            return self.kept if len(self.kept) <= limit else None
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
            file.write(self._first)
            while self.more and file.tell() <= limit:
                file.write(await self._next())
            size = file.tell()
            if size > limit:
                return None
            file.seek(0)
            return await in_thread(file.read) if size > IN_MEMORY else file.read()

    async def skip(self) -> bool:
        """Drop the rest of the body, as a client that still sends reads no answer; return whether it has ended."""
        left, ends = conf.settings.API.MAX_BODY_BYTES, time.monotonic() + SKIP_SECONDS
        with suppress(TimeoutError):
            while self.more and left >= 0:
                async with asyncio.timeout(ends - time.monotonic()):
                    size = len(await self._next())
                left -= size
                ends += size / SKIP_RATE
        return not self.more

    async def _next(self) -> bytes:
        message = await self._receive()
        self.more = message.get("more_body", False)
        if message["type"] == "http.disconnect":
            self._leaves()
            await asyncio.sleep(0)  # which is cancelled
        elif not self.more:
            self.watch()
        found: bytes = message.get("body", b"")
        return found

    def watch(self) -> None:
        """Watch from now on: the body has been read."""

        async def watch() -> None:
            if (await self._receive())["type"] == "http.disconnect":
                self._leaves()

        def begin() -> None:
            self._watcher = asyncio.ensure_future(watch())

        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, begin)

    def _leaves(self) -> None:
        self.gone = True
        self.task.cancel()

    def close(self) -> None:
        for watching in (self._timer, self._watcher):
            if watching is not None:
                watching.cancel()


class _BodyFile(io.RawIOBase):
    """A body that is on its way, for a host's authentication class that reads it: in its thread, and as a whole."""

    def __init__(self, body: _Client) -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        if not self._body.more:
            return b""
        self._body.kept = found = async_to_sync(self._body.read)(conf.settings.API.MAX_BODY_BYTES)
        if found is None:
            raise RequestDataTooBig("The body is too large.")
        return found


def _of_ours(scope: Scope, starts: tuple[str, ...]) -> ResolverMatch | None:
    """Return the view of a request if it is one of the APIs', at or below a prefix."""
    path: str = scope["path"]
    if not path.startswith(starts) and f"{path}/" not in starts:
        return None
    try:
        match = get_resolver().resolve(path.removeprefix(get_script_prefix(scope)))
    except Resolver404:
        return None
    return match if match.func.__module__.startswith(f"{__package__}.") else None


def beside(django: Application | None, *prefixes: str) -> Application:
    """Return an ASGI application that serves the APIs itself and leaves the rest to Django.

    Other views with addresses below a prefix are left to Django, too. It speaks the ``lifespan`` protocol: views are
    imported when the server starts, connections closed when it ends. ``django`` is what ``get_asgi_application()``
    returned, ``None``: nothing is here but the APIs; ``prefixes`` are where the host's URLs have them: ``"/v0/"``.
    """
    apis = ApiHandler()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http" and (match := _of_ours(scope, prefixes)) is not None:
            scope[MATCH] = match
            await apis(scope, receive, send)
        elif django is not None:
            await django(scope, receive, send)
        elif scope["type"] == "http":
            from .views import not_found  # the apps are loaded by now

            await apis.send_response(not_found(HttpRequest()), send)
        else:
            raise ValueError(f"There is nothing here for a connection of the type {scope['type']}.")

    return application


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                # Imports the project's URLs with all views: the first request does not wait for that.
                _ = get_resolver().url_patterns
            except Exception as error:
                logger.exception("The URLs of the project cannot be imported")
                await send({"type": "lifespan.startup.failed", "message": f"The URLs cannot be imported: {error}"})
                return
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            stop()
            with suppress(Exception):  # the process ends anyway
                await finish_background()
                await close_pools()
                await asyncio.to_thread(close_listeners)
            await send({"type": "lifespan.shutdown.complete"})
            return
