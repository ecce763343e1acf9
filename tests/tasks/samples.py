"""Tasks that the tests enqueue and run. They live in a module, because that is where a worker looks for them."""

import asyncio
import time
import uuid
from datetime import timedelta
from typing import Any

from django_leasequeue.tasks import FailForGood, LeaseQueueContext, RetryLater, current, task
from django_leasequeue.tasks.api import Task

#: What tasks were called with, newest last; the tests empty it.
calls: list[Any] = []


@task
def add(first: int, second: int = 0) -> int:
    calls.append((first, second))
    return first + second


@task
def sign_in(password: str, tries: int = 1, *, url: str = "", **more: str) -> int:
    return tries


@task(takes_context=True)
def renew(context: LeaseQueueContext, name: str, *tokens: str) -> str:
    return name


@task
def echo(value: Any = None) -> Any:
    return value


@task
async def aecho(value: Any = None) -> Any:
    calls.append(value)
    return value


@task(takes_context=True)
def with_context(context: LeaseQueueContext, word: str) -> list[Any]:
    calls.append(context)
    return [context.attempt, word, current() is context.control]


@task(takes_context=True)
async def awith_context(context: LeaseQueueContext, word: str) -> list[Any]:
    calls.append(context)
    return [context.attempt, word, current() is context.control]


@task(backoff=0, autoretry_for=(OSError, ValueError), dont_retry_for=UnicodeError)
def fail_with(name: str) -> None:
    if name == "UnicodeError":
        raise UnicodeError
    if name == "RetryLater":
        raise RetryLater
    raise {"KeyError": KeyError, "ValueError": ValueError, "ConnectionError": ConnectionError}[name]


@task
def fail(message: str = "it broke") -> None:
    raise ValueError(message)


@task
async def afail(message: str = "it broke") -> None:
    raise ValueError(message)


@task(max_attempts=2, backoff=7)
def fail_twice() -> None:
    raise ValueError("it broke")


@task(backoff=[1, 10])
def fail_in_steps() -> None:
    raise ValueError("it broke")


def by_message(exception: BaseException, task_result: Any) -> timedelta | int | None:
    if str(exception) == "break":
        raise RuntimeError("the backoff itself is broken")
    calls.append((exception, task_result))
    return {"wait": timedelta(minutes=1), "stop": None}.get(str(exception), 5)


@task(backoff=by_message)
def fail_by_message(message: str) -> None:
    raise ValueError(message)


@task
def fail_for_good() -> None:
    raise FailForGood("nothing to be done")


@task
def retry_later(seconds: float | None) -> None:
    raise RetryLater(seconds, "the other side is busy")


@task
def returns_object() -> Any:
    return object()


@task
def returns_nan() -> float:
    return float("nan")


@task(max_attempts=2, backoff=7, timeout=30)
def with_options() -> None:
    return None


@task
def sleeps() -> None:
    for _ in range(600):
        time.sleep(0.05)


@task
def naps(seconds: float) -> None:
    """Wait in C, where no timeout reaches it."""
    time.sleep(seconds)


@task
async def asleeps() -> None:
    await asyncio.sleep(30)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@task
def fail_unprintably() -> None:
    raise Unprintable


@task
def exits() -> None:
    raise SystemExit(3)


#: One of Django's own, without anything of ours; on the same backend.
@(
    lambda func: Task(
        func=func, priority=0, backend="default", queue_name="default", run_after=None, takes_context=False
    )
)
def plain(value: int) -> int:
    return value * 2


class Group:
    """A task need not be at the top of its module."""

    @staticmethod
    @task
    def nested(value: int) -> int:
        return value + 1


def _hidden(value: int) -> int:
    return value


#: Declared under another name than its function's: no worker finds it.
renamed = task(_hidden)

not_a_task = uuid.uuid4


def invoice_key(order: int, *, copy: bool = False) -> str | None:
    return None if copy else f"invoice-{order}"


@task(key=invoice_key)
def send_invoice(order: int, *, copy: bool = False) -> int:
    calls.append(order)
    return order


@task(key="index-{document}-{language}", unique_until="start", on_conflict="replace")
def index_document(document: int, language: str = "en", text: str = "") -> str:
    calls.append(text)
    return text


#: What callbacks of tasks were called with.
called: list[tuple[str, Any]] = []


def succeeded(result: Any) -> None:
    if result.return_value:
        raise {"exit": SystemExit, "break the callback": RuntimeError}[result.return_value]("a broken callback")
    called.append(("success", result))


def failed(result: Any) -> None:
    called.append(("failure", result))


@task(max_attempts=2, backoff=30, on_success=succeeded, on_failure=failed)
def calls_back(word: str) -> str:
    if word == "fail":
        raise ValueError(word)
    return word


@task(max_attempts=2, backoff=30, on_success=succeeded, on_failure=failed)
async def acalls_back(word: str) -> str:
    return calls_back.func(word)
