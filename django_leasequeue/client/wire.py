"""Carrying out plans with httpx: the only IO of the client, once with threads in mind and once for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any

import httpx

from .errors import ConnectionFailed
from .steps import Answer, Call, Close, Give, Open, Pause, Read, Request, Source, T


def _failed(error: httpx.RequestError) -> ConnectionFailed:
    what = str(error) or type(error).__name__
    return ConnectionFailed(f"{error.request.method} {error.request.url.copy_with(query=None)}: {what}.")


def _answer(response: httpx.Response, body: bytes) -> Answer:
    return Answer(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


class _Wire:
    """How requests look.

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
        try:
            step = next(call)
            while True:
                try:
                    found = self._do(step)
                except httpx.RequestError as error:
                    step = call.throw(_failed(error))
                else:
                    step = call.send(found)
        except StopIteration as end:
            value: T = end.value
            return value

    def _do(self, step: Request | Pause) -> Answer | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        response = self.http.request(**self._parts(step))
        return _answer(response, response.content)

    def iterate(self, source: Source) -> Generator[Any, None, None]:
        """Yield what a source gives; closing the iterator closes its stream."""
        stream: httpx.Response | None = None
        pieces: Iterator[bytes] = iter(())
        found: Any = None
        error: ConnectionFailed | None = None
        try:
            while True:
                try:
                    step = source.send(found) if error is None else source.throw(error)
                except StopIteration:
                    return
                found = error = None
                try:
                    if isinstance(step, Give):
                        yield step.item
                    elif isinstance(step, Open):
                        stream = self.http.send(self.http.build_request(**self._parts(step.request)), stream=True)
                        pieces = stream.iter_raw()
                        found = _answer(stream, b"" if stream.status_code == 200 else stream.read())
                    elif isinstance(step, Read):
                        found = next(pieces, b"")
                    elif isinstance(step, Close):
                        if stream is not None:
                            stream.close()
                    else:
                        found = self._do(step)
                except httpx.RequestError as failed:
                    error = _failed(failed)
        finally:
            source.close()
            if stream is not None:
                stream.close()


class AsyncWire(_Wire):
    """Carries out plans in an event loop."""

    def __init__(self, address: str, headers: Mapping[str, str], timeout: float, http: httpx.AsyncClient) -> None:
        super().__init__(address, headers, timeout)
        self.http = http

    async def run(self, call: Call[T]) -> T:
        """See ``BlockingWire.run``."""
        try:
            step = next(call)
            while True:
                try:
                    found = await self._do(step)
                except httpx.RequestError as error:
                    step = call.throw(_failed(error))
                else:
                    step = call.send(found)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _do(self, step: Request | Pause) -> Answer | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        response = await self.http.request(**self._parts(step))
        return _answer(response, response.content)

    async def iterate(self, source: Source) -> AsyncGenerator[Any, None]:
        """See ``BlockingWire.iterate``."""
        stream: httpx.Response | None = None
        pieces: AsyncIterator[bytes] | None = None
        found: Any = None
        error: ConnectionFailed | None = None
        try:
            while True:
                try:
                    step = source.send(found) if error is None else source.throw(error)
                except StopIteration:
                    return
                found = error = None
                try:
                    if isinstance(step, Give):
                        yield step.item
                    elif isinstance(step, Open):
                        request = self.http.build_request(**self._parts(step.request))
                        stream = await self.http.send(request, stream=True)
                        pieces = stream.aiter_raw()
                        found = _answer(stream, b"" if stream.status_code == 200 else await stream.aread())
                    elif isinstance(step, Read):
                        found = b"" if pieces is None else await anext(pieces, b"")
                    elif isinstance(step, Close):
                        if stream is not None:
                            await stream.aclose()
                    else:
                        found = await self._do(step)
                except httpx.RequestError as failed:
                    error = _failed(failed)
        finally:
            source.close()
            if stream is not None:
                with suppress(httpx.RequestError):
                    await stream.aclose()
