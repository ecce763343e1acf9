"""Carrying out plans with httpx: the only IO of the client, one body for threads and for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any

import httpx

from ..twins import Give, Steps, aiterate, either, iterate, sleep, through
from .errors import ConnectionFailed
from .plans import Call, Close, Open, Pause, Read, Request, Source, T


@contextmanager
def _failures() -> Iterator[None]:
    """Raise ``ConnectionFailed`` for what breaks off."""
    try:
        yield
    except httpx.RequestError as error:
        what = str(error) or type(error).__name__
        where = f"{error.request.method} {error.request.url.copy_with(query=None)}"
        raise ConnectionFailed(f"{where}: {what}.") from error


class Wire:
    """Turns the steps of plans into calls of httpx."""

    def __init__(
        self, address: str, headers: Mapping[str, str], timeout: float, http: httpx.Client | httpx.AsyncClient
    ) -> None:
        self.http: Any = http
        self._address = address
        self._headers = dict(headers)
        self._timeout = timeout

    def call(self, call: Call[T]) -> Steps[T]:
        """Return a body that carries out a call."""
        return through(call, self.perform)

    def perform(self, step: Request | Pause) -> Steps[httpx.Response | None]:
        """Take one step of a call."""
        if isinstance(step, Pause):
            yield sleep(step.seconds)
            return None
        send = partial(self.http.request, **self.parts(step))
        with _failures():
            response: httpx.Response = yield either(send, send)
        return response

    def parts(self, request: Request) -> dict[str, Any]:
        """Return a request as httpx takes it."""
        return {
            "method": request.method,
            "url": f"{self._address}/{request.path}",
            "json": request.body,
            "params": dict(request.query) or None,
            "headers": {**self._headers, **request.headers},
            "timeout": httpx.Timeout(self._timeout, read=self._timeout + request.wait),
        }

    def iterate(self, source: Source) -> Generator[Any, None, None]:
        """Yield what a source gives; closing the iterator closes its stream."""
        stream = _Stream(self)
        try:
            yield from iterate(through(source, stream.perform))
        finally:
            stream.response.close()

    async def aiterate(self, source: Source) -> AsyncGenerator[Any, None]:
        """Yield what a source gives, in a coroutine; see ``iterate``."""
        stream = _Stream(self)
        try:
            async with aclosing(aiterate(through(source, stream.perform))) as items:
                async for item in items:
                    yield item
        finally:
            with suppress(httpx.RequestError):
                await stream.response.aclose()


class _Stream:
    """The event stream of a source, one after the other."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        #: The one that is open; before the first an empty one.
        self.response = httpx.Response(204)
        self._pieces: Any = iter(())

    def perform(self, step: Any) -> Generator[Any, Any, Any]:
        """Take one step of the source."""
        if isinstance(step, Give):
            return (yield step)
        with _failures():
            if isinstance(step, Open):
                return (yield from self._open(step.request))
            if isinstance(step, Read):
                return (yield either(next, anext, self._pieces, b""))
            if isinstance(step, Close):
                return (yield either(self.response.close, self.response.aclose))
            return (yield from self._wire.perform(step))

    def _open(self, request: Request) -> Steps[httpx.Response]:
        http = self._wire.http
        send = partial(http.send, http.build_request(**self._wire.parts(request)), stream=True)
        response = self.response = yield either(send, send)
        self._pieces = response.aiter_raw() if isinstance(http, httpx.AsyncClient) else response.iter_raw()
        if response.status_code != 200:
            yield either(response.read, response.aread)
        return self.response
