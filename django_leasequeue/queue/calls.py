"""One implementation for sync and async callers: a method that describes its work, called in two ways."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg
from django.db import Error as DjangoError
from django.db import InterfaceError, OperationalError

from .. import engine
from ..exceptions import StorageError
from ..outage import passes


class Runs(Protocol):
    """What has methods of this kind: it knows the database of its operations."""

    @property
    def using(self) -> str: ...


S = TypeVar("S", bound=Runs)
P = ParamSpec("P")
T = TypeVar("T")


_STORAGE = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise ``StorageError`` for what the database's connection or server does not let happen; the cause is kept."""
    try:
        yield
    except (DjangoError, psycopg.Error) as error:
        if not (passes(error) or isinstance(error, _STORAGE)):
            raise
        raise StorageError(f"The database could not do it: {error}", error) from error


def run(operation: engine.Operation[T], using: str) -> T:
    """Run an operation on Django's connection, in the caller's transaction if there is one.

    Raises:
        StorageError: the database could not be reached or broke off.
    """
    with storage_errors():
        return engine.run(operation, using)


async def arun(operation: engine.Operation[T], using: str) -> T:
    """See ``run``. It runs on an async connection of its own, not in a transaction of the caller."""
    with storage_errors():
        return await engine.arun(operation, using)


def call(plan: Callable[Concatenate[S, P], engine.Operation[T]]) -> Callable[Concatenate[S, P], T]:
    """Make a sync method of one that returns an operation: it runs it.

    ``twin`` makes the async method of the same plan, so both take the same arguments and do the same.
    """

    @wraps(plan)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(plan(self, *args, **kwargs), self.using)

    method.plan = plan  # type: ignore[attr-defined]  # twin reads it
    _describe(method, plan)
    return method


def twin(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make the async method that does what a method made by ``call`` does."""
    plan: Callable[Concatenate[S, P], engine.Operation[T]] = method.plan  # type: ignore[attr-defined]  # made by call

    @wraps(plan)
    async def async_method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await arun(plan(self, *args, **kwargs), self.using)

    _describe(async_method, plan)
    async_method.__name__ = f"a{method.__name__}"
    async_method.__qualname__ = method.__qualname__.removesuffix(method.__name__) + async_method.__name__
    async_method.__doc__ = f"Async twin of ``{method.__name__}``."
    return async_method


def _describe(method: Any, plan: Callable[..., Any]) -> None:
    """Let ``help`` show what the caller gets, not the operation that brings it."""
    signature = inspect.signature(plan)
    gets = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=gets)
