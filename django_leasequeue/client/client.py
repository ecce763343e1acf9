"""``Client`` and ``AsyncClient``: the same calls for threads and for an event loop, with IO by httpx."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

import httpx

from ..exceptions import InvalidOption
from ..twins import Body, Either, Give, Repeatable, aiterate, arun, either, iterate, run, through, twin
from . import plans
from .calls import Calls
from .messages import ClientJob, ConnectionFailed
from .plans import Plan, Request, Retry, Source, T, call, is_stream

Batches = TypeVar("Batches")
Jobs = TypeVar("Jobs")

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


class _Base(ABC, Generic[Batches, Jobs]):
    """The common part of both clients; they differ in the type of their iterators."""

    _http: type[httpx.Client] | type[httpx.AsyncClient]

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        timeout: float = 15.0,
        retry: Retry = Retry(),  # noqa: B008  (immutable)
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Make a client; it sends nothing yet.

        ``address`` is the URL of the API, for example ``https://jobs.example.com/v0``; ``token`` is an API key,
        ``None`` for an open API; ``timeout`` bounds the server's answer in seconds. ``headers`` go with every request,
        for a proxy; ``options`` go to the client of httpx, for example ``verify``.
        """
        if not address.startswith(("http://", "https://")):
            raise InvalidOption(
                f"address must be the URL of the API, such as https://jobs.example.com/v0; it is {address!r}."
            )
        self.address = address.rstrip("/")
        self.retry = retry
        self.timeout = timeout
        self._options = {"limits": _LIMITS, **options}
        self._headers = {"accept": "application/json", "user-agent": "django-leasequeue-client", **(headers or {})}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._connections: Any = self._http(**self._options)

    @abstractmethod
    def _iterate(self, source: Source, stream: EventStream | None = None) -> Any:
        """Yield the items of a source; to close the iterator closes its stream."""

    def claims(
        self,
        topic: str,
        node: str,
        *,
        max: int | Callable[[], int] = 1,
        lease_ms: int | None = None,
        poll_seconds: float = 1.0,
    ) -> Batches:
        """Yield the jobs of each claim as a list, endlessly; see ``plans.claims``."""
        found: Batches = self._iterate(
            plans.claims(topic, node, self.retry, max=max, lease_ms=lease_ms, poll_seconds=poll_seconds)
        )
        return found

    def work(self, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Jobs:
        """Yield jobs as the server pushes them, endlessly; see ``plans.work``.

        Ack or nack each of them: that makes room for the next. The end of the loop gives unsettled jobs back; Python
        closes an async iterator later, so use ``async with contextlib.aclosing(client.work(...))``.
        """
        stream = EventStream(self)
        found: Jobs = self._iterate(plans.work(stream, topic, node, max=max, lease_ms=lease_ms), stream)
        return found

    def _call(self, steps: Plan[T]) -> Body[T]:
        return through(call(steps, self.retry), self._perform)

    def _perform(self, step: Request | Either | Give[Any]) -> Generator[Any, Any, Any]:
        """Carry out a step of a plan: send a request, pass others on; a broken connection is ``ConnectionFailed``."""
        if isinstance(step, Request):
            send = partial(self._connections.request, **self._parts(step))
            step = either(send, send)
        try:
            return (yield step)
        except httpx.RequestError as error:
            what = str(error) or type(error).__name__
            where = f"{error.request.method} {error.request.url.copy_with(query=None)}"
            raise ConnectionFailed(f"{where}: {what}.") from error

    def _parts(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": f"{self.address}/{request.path}",
            "json": request.body,
            "params": dict(request.query) or None,
            "headers": {**self._headers, **request.headers},
            "timeout": httpx.Timeout(self.timeout, read=self.timeout + request.wait),
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def asynchronous(self, *, retry: Retry | None = None) -> AsyncClient:
        """Return an async client for the same server, with its own connections."""
        return AsyncClient(
            self.address, timeout=self.timeout, retry=retry or self.retry, headers=self._headers, **self._options
        )

    def synchronous(self) -> Client:
        """Return a client for threads for the same server, with its own connections."""
        return Client(self.address, timeout=self.timeout, retry=self.retry, headers=self._headers, **self._options)


class EventStream:
    """An event stream of a client, which can be reopened; its calls are steps of a plan."""

    def __init__(self, client: _Base[Any, Any]) -> None:
        self._client = client
        #: The open response; an empty one before the first.
        self.response = httpx.Response(204)
        self._pieces: Any = iter(())

    def open(self, request: Request) -> Body[httpx.Response]:
        """Return the answer, whose body is read unless it is a stream."""
        http: Any = self._client._connections
        send = partial(http.send, http.build_request(**self._client._parts(request)), stream=True)
        response = self.response = yield either(send, send)
        self._pieces = response.aiter_raw() if isinstance(http, httpx.AsyncClient) else response.iter_raw()
        if not is_stream(response):
            yield either(response.read, response.aread)
        return self.response

    def read(self) -> Either:
        """Read bytes; none at the end of the stream."""
        return either(next, anext, self._pieces, b"")

    def close(self) -> Either:
        return either(self.response.close, self.response.aclose)


class Client(_Base[Generator[list[ClientJob], None, None], Generator[ClientJob, None, None]], Calls):
    """A client of the HTTP API for threads, which may share it.

    It keeps connections open: use it as a context manager, or ``close`` it.
    """

    _http = httpx.Client

    def _run(self, body: Repeatable[T], /) -> T:
        return run(self._call(iter(body)))

    def _iterate(self, source: Source, stream: EventStream | None = None) -> Generator[Any, None, None]:
        try:
            yield from iterate(through(source, self._perform))
        finally:
            if stream is not None:
                stream.response.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Base[AsyncGenerator[list[ClientJob], None], AsyncGenerator[ClientJob, None]]):
    """A client of the HTTP API for an event loop.

    Use it as an async context manager, or ``aclose`` it.
    """

    _http = httpx.AsyncClient

    async def _arun(self, body: Repeatable[T], /) -> T:
        return await arun(self._call(iter(body)))

    async def _iterate(self, source: Source, stream: EventStream | None = None) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(aiterate(through(source, self._perform))) as items:
                async for item in items:
                    yield item
        finally:
            if stream is not None:
                with suppress(httpx.RequestError):
                    await stream.response.aclose()

    put_topic = twin(Calls.put_topic, "put_topic")
    get_topic = twin(Calls.get_topic, "get_topic")
    list_topics = twin(Calls.list_topics, "list_topics")
    delete_topic = twin(Calls.delete_topic, "delete_topic")
    produce = twin(Calls.produce, "produce")
    read = twin(Calls.read, "read")
    delete_records = twin(Calls.delete_records, "delete_records")
    claim = twin(Calls.claim, "claim")
    ack = twin(Calls.ack, "ack")
    nack = twin(Calls.nack, "nack")
    extend = twin(Calls.extend, "extend")
    read_steps = twin(Calls.read_steps, "read_steps")
    record_step = twin(Calls.record_step, "record_step")
    suspend = twin(Calls.suspend, "suspend")
    emit = twin(Calls.emit, "emit")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
