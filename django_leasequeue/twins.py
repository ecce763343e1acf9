"""One body for threads and coroutines: a generator of steps that ``run`` and ``arun`` carry out.

A body yields steps: a request, a call that may wait. It gets the step's value, or its error. ``sync`` makes a method
that runs its body in the calling thread; ``twin`` makes the coroutine method of the same body. Statements of the
database have a driver of their own: ``engine/runner.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar, cast, get_args

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Either(NamedTuple):
    """A call of one function in a thread, and of another one in a coroutine, with the same arguments."""

    blocking: Callable[..., Any]
    awaitable: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]


def either(blocking: Callable[P, Any], awaitable: Callable[P, Awaitable[Any]], *args: Any) -> Either:
    """Return the step that calls ``blocking`` in a thread, and ``awaitable`` in a coroutine."""
    return Either(blocking, awaitable, args)


def sleep(seconds: float) -> Either:
    """Return the step that sleeps."""
    return Either(time.sleep, asyncio.sleep, (seconds,))


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """A step of an iterator's body: yield an item to the caller."""

    item: T_co


#: The body of a method that calls functions which exist twice.
Body = Generator[Either, Any, T]


class Repeatable(partial[Generator[Any, Any, T]]):
    """A generator function with its arguments, which can begin again."""

    def __iter__(self) -> Generator[Any, Any, T]:
        return self()


def run(body: Repeatable[T] | Generator[Any, Any, T], perform: Callable[[Any], Any] | None = None) -> T:
    """Carry out a body in this thread and return its value; errors of ``perform`` are thrown into the body."""
    steps: Generator[Any, Any, T] = iter(body)
    try:
        step = next(steps)
        while True:
            try:
                found = step.blocking(*step.args) if perform is None else perform(step)
            except Exception as error:  # noqa: BLE001  (the body decides)
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


async def arun(
    body: Repeatable[T] | Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]] | None = None
) -> T:
    """Carry out a body in this coroutine; see ``run``. A cancellation ends the body."""
    steps: Generator[Any, Any, T] = iter(body)
    try:
        step = next(steps)
        while True:
            try:
                found = await (step.awaitable(*step.args) if perform is None else perform(step))
            except Exception as error:  # noqa: BLE001  (the body decides)
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


def iterate(steps: Generator[Any, Any, None]) -> Generator[Any, None, None]:
    """Yield the items of a body (``Give``); to close the iterator closes the body."""

    def take(step: Any) -> Generator[Any, Any, Any]:
        return (yield step.item) if isinstance(step, Give) else step.blocking(*step.args)

    return through(steps, take)


async def aiterate(steps: Generator[Any, Any, None]) -> AsyncGenerator[Any, None]:
    """Yield the items of a body, in a coroutine; see ``iterate``."""
    try:
        step = next(steps)
        while True:
            try:
                found = (yield step.item) if isinstance(step, Give) else await step.awaitable(*step.args)
            except Exception as error:  # noqa: BLE001  (the body decides)
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration:
        return
    finally:
        steps.close()


def through(
    steps: Generator[Any, Any, T], perform: Callable[[Any], Generator[Any, Any, Any]]
) -> Generator[Any, Any, T]:
    """Return a body that carries out another one, with ``perform`` for each of its steps."""
    try:
        step = next(steps)
        while True:
            try:
                found = yield from perform(step)
            except Exception as error:  # noqa: BLE001  (the body decides)
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


class Runs(Protocol):
    """An object that carries out the bodies of its methods."""

    def _run(self, body: Repeatable[T], /) -> T: ...


class Twins:
    """Base of classes whose bodies yield ``either``."""

    def _run(self, body: Repeatable[T], /) -> T:
        return run(body)

    async def _arun(self, body: Repeatable[T], /) -> T:
        return await arun(body)


class StartStop(ABC):
    """Base of classes that ``with`` starts and stops."""

    @abstractmethod
    def start(self) -> Self:
        """Start."""

    @abstractmethod
    def stop(self) -> Any:
        """Stop."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


class AsyncStartStop(StartStop):
    """Base of classes that ``async with`` starts and stops as well."""

    @abstractmethod
    async def astart(self) -> Self:
        """Async twin of ``start``."""

    @abstractmethod
    async def astop(self) -> Any:
        """Async twin of ``stop``."""

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *error: object) -> None:
        await self.astop()


R = TypeVar("R", bound=Runs)


def sync(body: Callable[Concatenate[R, P], Generator[Any, Any, T]]) -> Callable[Concatenate[R, P], T]:
    """Make a body the method for threads; the object's ``_run`` carries it out."""

    @wraps(body)
    def method(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(Repeatable(body, self, *args, **kwargs))

    _copy_signature(method, body)
    return method


def twin(
    method: Callable[Concatenate[R, P], T], name: str | None = None
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make the coroutine method, by default named with an "a" in front, of a method made by ``sync``."""
    body = body_of(method)

    @wraps(body)
    async def async_method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        value: T = await self._arun(Repeatable(body, self, *args, **kwargs))
        return value

    _copy_signature(async_method, body)
    async_method.__doc__ = f"Async twin of ``{body.__name__}``."
    async_method.__name__ = name or f"a{body.__name__}"
    async_method.__qualname__ = body.__qualname__.removesuffix(body.__name__) + async_method.__name__
    return async_method


def body_of(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], Generator[Any, Any, T]]:
    """Return the body of a method made by ``sync``, for another body to ``yield from``."""
    return cast("Callable[Concatenate[R, P], Generator[Any, Any, T]]", inspect.unwrap(method))


def _copy_signature(method: Any, body: Callable[..., Any]) -> None:
    """Give a method the body's signature, with the value in place of the steps."""
    signature = inspect.signature(body, eval_str=True)
    value = get_args(signature.return_annotation)[-1]
    method.__signature__ = signature.replace(return_annotation=value)
    parameters = signature.parameters.values()
    method.__annotations__ = {item.name: item.annotation for item in parameters if item.annotation is not item.empty}
    method.__annotations__["return"] = value
