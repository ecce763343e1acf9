"""``Client`` and ``AsyncClient``: the same calls, in a thread and in an event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

import httpx

from ..exceptions import InvalidOption
from . import loops, plans
from .messages import Job
from .retries import Retry, call
from .steps import Plan, T
from .wire import AsyncWire, BlockingWire

P = ParamSpec("P")

#: Requests of one client that wait for a connection at the same time.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


class _Base:
    """Where the server is, and how to speak to it."""

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

        Args:
            address: where the API is mounted, for example ``https://jobs.example.com/v0``.
            token: an API key; ``None`` where the API is open.
            timeout: seconds that the server may take to answer.
            retry: how often requests are tried again; see ``Retry``.
            headers: of every request, for what stands before the API.
            options: of the HTTP library's client, for example ``verify`` or ``proxy``.

        Raises:
            InvalidOption: the address is not one of HTTP.
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def asynchronous(self, *, retry: Retry | None = None) -> AsyncClient:
        """Return an async client for the same server, with connections of its own."""
        return AsyncClient(
            self.address, timeout=self.timeout, retry=retry or self.retry, headers=self._headers, **self._options
        )


def _describe(method: Any, plan: Callable[..., Any]) -> None:
    """Let ``help`` show the arguments of the call and what it returns, not the plan."""
    signature = inspect.signature(plan)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    gets = str(signature.return_annotation).removeprefix("Plan[").removesuffix("]")
    parameters = [itself, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters, return_annotation=gets)


def _blocking(plan: Callable[P, Plan[T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(plan)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wire.run(call(plan(*args, **kwargs), self.retry))

    _describe(method, plan)
    return method


def _awaited(plan: Callable[P, Plan[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(plan)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._wire.run(call(plan(*args, **kwargs), self.retry))

    _describe(method, plan)
    return method


class Client(_Base):
    """Speaks to the HTTP door from threads; any number of threads may use one.

    It keeps connections open: use it as a context manager, or ``close`` it.
    """

    def __init__(self, address: str, token: str | None = None, **options: Any) -> None:
        super().__init__(address, token, **options)
        self._wire = BlockingWire(self.address, self._headers, self.timeout, httpx.Client(**self._options))

    put_topic = _blocking(plans.put_topic)
    get_topic = _blocking(plans.get_topic)
    list_topics = _blocking(plans.list_topics)
    delete_topic = _blocking(plans.delete_topic)
    produce = _blocking(plans.produce)
    read = _blocking(plans.read)
    delete_records = _blocking(plans.delete_records)
    claim = _blocking(plans.claim)
    ack = _blocking(plans.ack)
    nack = _blocking(plans.nack)
    extend = _blocking(plans.extend)

    def claims(
        self,
        topic: str,
        node: str,
        *,
        max: int = 1,
        lease_ms: int | None = None,
        poll_seconds: float = 1.0,
    ) -> Generator[list[Job], None, None]:
        """Yield lists of jobs, claim by claim, for ever; see ``loops.claims``."""
        return self._wire.iterate(
            loops.claims(topic, node, self.retry, max=max, lease_ms=lease_ms, poll_seconds=poll_seconds)
        )

    def work(
        self,
        topic: str,
        node: str,
        *,
        max: int = 1,
        lease_ms: int | None = None,
    ) -> Generator[Job, None, None]:
        """Yield jobs as the server pushes them, for ever; see ``loops.work``.

        Ack or nack each of them: that makes room for the next. Leaving the loop gives back what is not settled.
        """
        return self._wire.iterate(loops.work(topic, node, max=max, lease_ms=lease_ms))

    def close(self) -> None:
        """Close the connections."""
        self._wire.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Base):
    """Speaks to the HTTP door from an event loop.

    Use it as an async context manager, or ``aclose`` it.
    """

    def __init__(self, address: str, token: str | None = None, **options: Any) -> None:
        super().__init__(address, token, **options)
        self._wire = AsyncWire(self.address, self._headers, self.timeout, httpx.AsyncClient(**self._options))

    put_topic = _awaited(plans.put_topic)
    get_topic = _awaited(plans.get_topic)
    list_topics = _awaited(plans.list_topics)
    delete_topic = _awaited(plans.delete_topic)
    produce = _awaited(plans.produce)
    read = _awaited(plans.read)
    delete_records = _awaited(plans.delete_records)
    claim = _awaited(plans.claim)
    ack = _awaited(plans.ack)
    nack = _awaited(plans.nack)
    extend = _awaited(plans.extend)

    def claims(
        self,
        topic: str,
        node: str,
        *,
        max: int | Callable[[], int] = 1,
        lease_ms: int | None = None,
        poll_seconds: float = 1.0,
    ) -> AsyncGenerator[list[Job], None]:
        """Yield lists of jobs, claim by claim, for ever; see ``loops.claims``."""
        return self._wire.iterate(
            loops.claims(topic, node, self.retry, max=max, lease_ms=lease_ms, poll_seconds=poll_seconds)
        )

    def work(
        self,
        topic: str,
        node: str,
        *,
        max: int = 1,
        lease_ms: int | None = None,
    ) -> AsyncGenerator[Job, None]:
        """Yield jobs as the server pushes them, for ever; see ``Client.work``.

        Python closes a loop that was left only some time later: ``async with contextlib.aclosing(client.work(...))``.
        """
        return self._wire.iterate(loops.work(topic, node, max=max, lease_ms=lease_ms))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
