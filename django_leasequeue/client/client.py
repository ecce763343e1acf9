"""``Client`` and ``AsyncClient``: the same calls, in a thread and in an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any, Self

import httpx

from ..exceptions import InvalidOption
from ..twins import Steps, arun, run, twin
from . import loops
from .calls import Calls
from .messages import ClientJob
from .plans import Plan, Retry, T, call
from .wire import Wire

#: Requests of one client that wait for a connection at the same time.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


class _Base:
    """The address of a server, and the manner of speaking to it."""

    #: Keeps the connections.
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
        """Nothing is sent yet.

        ``address`` is where the API is mounted, for example ``https://jobs.example.com/v0``; ``token`` an API key,
        ``None`` where the API is open; ``timeout`` how many seconds the server may take to answer. ``headers`` are
        those of every request, for what stands before the API; ``options`` those of the HTTP library's client, for
        example ``verify``.
        """
        if not address.startswith(("http://", "https://")):
            raise InvalidOption(
                f"address must be where the API is mounted, such as https://jobs.example.com/v0; it is {address!r}."
            )
        self.address = address.rstrip("/")
        self.retry = retry
        self.timeout = timeout
        self._options = {"limits": _LIMITS, **options}
        self._headers = {"accept": "application/json", "user-agent": "django-leasequeue-client", **(headers or {})}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._wire = Wire(self.address, self._headers, timeout, self._http(**self._options))

    def _call(self, steps: Plan[T]) -> Steps[T]:
        return self._wire.call(call(steps, self.retry))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def asynchronous(self, *, retry: Retry | None = None) -> AsyncClient:
        """Return an async client for the same server, with connections of its own."""
        return AsyncClient(
            self.address, timeout=self.timeout, retry=retry or self.retry, headers=self._headers, **self._options
        )

    def synchronous(self) -> Client:
        """Return a client for threads for the same server, with connections of its own."""
        return Client(self.address, timeout=self.timeout, retry=self.retry, headers=self._headers, **self._options)


class Client(_Base, Calls):
    """Speaks to the HTTP door from threads; any number of threads may use one.

    It keeps connections open: use it as a context manager, or ``close`` it.
    """

    _http = httpx.Client

    def _run(self, steps: Plan[T], /) -> T:
        return run(self._call(steps))

    def claims(
        self, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None, poll_seconds: float = 1.0
    ) -> Generator[list[ClientJob], None, None]:
        """Yield lists of jobs, claim by claim, for ever; see ``loops.claims``."""
        return self._wire.iterate(
            loops.claims(topic, node, self.retry, max=max, lease_ms=lease_ms, poll_seconds=poll_seconds)
        )

    def work(
        self, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None
    ) -> Generator[ClientJob, None, None]:
        """Yield jobs as the server pushes them, for ever; see ``loops.work``.

        Ack or nack each of them: that makes room for the next. Leaving the loop gives back what is not settled.
        """
        return self._wire.iterate(loops.work(topic, node, max=max, lease_ms=lease_ms))

    def close(self) -> None:
        """Close the connections."""
        self._wire.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Base):
    """Speaks to the HTTP door from an event loop.

    Use it as an async context manager, or ``aclose`` it.
    """

    _http = httpx.AsyncClient

    async def _arun(self, steps: Plan[T], /) -> T:
        return await arun(self._call(steps))

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

    def claims(
        self,
        topic: str,
        node: str,
        *,
        max: int | Callable[[], int] = 1,
        lease_ms: int | None = None,
        poll_seconds: float = 1.0,
    ) -> AsyncGenerator[list[ClientJob], None]:
        """Yield lists of jobs, claim by claim, for ever; see ``loops.claims``."""
        return self._wire.aiterate(
            loops.claims(topic, node, self.retry, max=max, lease_ms=lease_ms, poll_seconds=poll_seconds)
        )

    def work(
        self, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None
    ) -> AsyncGenerator[ClientJob, None]:
        """Yield jobs as the server pushes them, for ever; see ``Client.work``.

        Python closes a loop that was left only some time later: ``async with contextlib.aclosing(client.work(...))``.
        """
        return self._wire.aiterate(loops.work(topic, node, max=max, lease_ms=lease_ms))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
