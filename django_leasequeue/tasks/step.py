"""The decorator ``step``: a function that is a step wherever a task calls it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar, overload

from .context import running

P = ParamSpec("P")
T = TypeVar("T")


@overload
def step(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def step(
    *, name: str | None = ..., atomic: bool = ..., retries: int = ..., backoff: float = ...
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    atomic: bool = False,
    retries: int = 0,
    backoff: float = 0.0,
) -> Any:
    """Make a function a step of the task that calls it; outside of a task it is a plain function.

    Args:
        function: what it does, a coroutine function too; left out when the decorator has arguments.
        name: of the step; ``None``: that of the function.
        atomic: run it inside ``transaction.atomic()`` of the job's database.
        retries: how often it is tried again in place when it raises.
        backoff: seconds between two tries.
    """

    def make(inner: Callable[..., Any]) -> Callable[..., Any]:
        called = name or inner.__name__
        options: dict[str, Any] = {"atomic": atomic, "retries": retries, "backoff": backoff}

        if iscoroutinefunction(inner):

            @wraps(inner)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                control = running.get()
                if control is None:
                    return await inner(*args, **kwargs)
                return await control.astep(called, lambda: inner(*args, **kwargs), **options)

            return arun

        @wraps(inner)
        def run(*args: Any, **kwargs: Any) -> Any:
            control = running.get()
            if control is None:
                return inner(*args, **kwargs)
            return control.step(called, lambda: inner(*args, **kwargs), **options)

        return run

    return make if function is None else make(function)
