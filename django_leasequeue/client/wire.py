"""Carrying out plans with httpx: the only IO of the client, once with threads in mind and once for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import httpx

from .. import twins
from .errors import ConnectionFailed
from .steps import Answer, Call, Close, Open, Pause, Read, Request, Source, T


@contextmanager
def _failures() -> Iterator[None]:
    """Raise ``ConnectionFailed`` for what breaks off."""
    try:
        yield
    except httpx.RequestError as error:
        what = str(error) or type(error).__name__
        where = f"{error.request.method} {error.request.url.copy_with(query=None)}"
        raise ConnectionFailed(f"{where}: {what}.") from error


def _answer(response: httpx.Response, body: bytes) -> Answer:
    return Answer(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


class _Wire:
    """The form of requests.

    Args:
        address: where the API is mounted.
        headers: of every request.
        timeout: seconds that the server may take to answer.
    """

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float) -> None:
        self._address = address
        self._headers = dict(headers)
        self._timeout = timeout

    def _parts(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": f"{self._address}/{request.path}",
            "json": request.body,
            "params": dict(request.query) or None,
            "headers": {**self._headers, **request.headers},
            "timeout": httpx.Timeout(self._timeout, read=self._timeout + request.wait),
        }


class BlockingWire(_Wire):
    """Carries out plans in the calling thread."""

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float, http: httpx.Client) -> None:
        super().__init__(address, headers, timeout)
        self.http = http

    def run(self, call: Call[T]) -> T:
        """Carry out a call and return its value."""
        return twins.run(call, self.perform)

    def perform(self, step: Request | Pause) -> Answer | None:
        """Take one step of a call."""
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        with _failures():
            response = self.http.request(**self._parts(step))
        return _answer(response, response.content)

    def iterate(self, source: Source) -> Generator[Any, None, None]:
        """Yield what a source gives; closing the iterator closes its stream."""
        stream: httpx.Response | None = None
        pieces: Iterator[bytes] = iter(())

        def perform(step: Any) -> Any:
            nonlocal stream, pieces
            with _failures():
                if isinstance(step, Open):
                    stream = self.http.send(self.http.build_request(**self._parts(step.request)), stream=True)
                    pieces = stream.iter_raw()
                    return _answer(stream, b"" if stream.status_code == 200 else stream.read())
                if isinstance(step, Read):
                    return next(pieces, b"")
                if isinstance(step, Close):
                    return None if stream is None else stream.close()
                return self.perform(step)

        try:
            yield from twins.iterate(source, perform)
        finally:
            if stream is not None:
                stream.close()


class AsyncWire(_Wire):
    """Carries out plans in an event loop."""

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float, http: httpx.AsyncClient) -> None:
        super().__init__(address, headers, timeout)
        self.http = http

    async def run(self, call: Call[T]) -> T:
        """See ``BlockingWire.run``."""
        return await twins.arun(call, self.perform)

    async def perform(self, step: Request | Pause) -> Answer | None:
        """See ``BlockingWire.perform``."""
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        with _failures():
            response = await self.http.request(**self._parts(step))
        return _answer(response, response.content)

    async def iterate(self, source: Source) -> AsyncGenerator[Any, None]:
        """See ``BlockingWire.iterate``."""
        stream: httpx.Response | None = None
        pieces: AsyncIterator[bytes] | None = None

        async def perform(step: Any) -> Any:
            nonlocal stream, pieces
            with _failures():
                if isinstance(step, Open):
                    request = self.http.build_request(**self._parts(step.request))
                    stream = await self.http.send(request, stream=True)
                    pieces = stream.aiter_raw()
                    return _answer(stream, b"" if stream.status_code == 200 else await stream.aread())
                if isinstance(step, Read):
                    return b"" if pieces is None else await anext(pieces, b"")
                if isinstance(step, Close):
                    return None if stream is None else await stream.aclose()
                return await self.perform(step)

        try:
            async with aclosing(twins.aiterate(source, perform)) as items:
                async for item in items:
                    yield item
        finally:
            if stream is not None:
                with suppress(httpx.RequestError):
                    await stream.aclose()
