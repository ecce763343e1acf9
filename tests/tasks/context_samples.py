"""The context that a host's tasks carry here: who asked. Functions that capture and restore it, and tasks that tell."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from django_leasequeue.tasks import RetryLater, current_workflow, task
from tests.tasks.durable_tasks import control

#: Who asks: what is captured and restored.
user: ContextVar[str | None] = ContextVar("user", default=None)
#: Names of tasks whose context was captured, and what the runs have entered and left.
captured: list[str] = []
entered: list[str] = []
left: list[str] = []


def capture(task: Any) -> dict[str, Any] | None:
    captured.append(task.name)
    name = user.get()
    return None if name is None else {"user": name, "token": "t-1"}


@contextmanager
def restore(context: dict[str, Any]) -> Iterator[None]:
    entered.append(context["user"])
    token = user.set(context["user"])
    try:
        yield
    finally:
        user.reset(token)
        left.append(context["user"])


class Swallowing(AbstractContextManager[None]):
    def __init__(self, context: dict[str, Any]) -> None: ...

    def __exit__(self, *error: object) -> bool:
        return True


class FailingExit(AbstractContextManager[None]):
    def __init__(self, context: dict[str, Any]) -> None: ...

    def __exit__(self, *error: object) -> NoReturn:
        raise KeyError("exit")


def fail_to_capture(task: Any) -> NoReturn:
    raise LookupError("no user")


def fail_to_restore(context: dict[str, Any]) -> NoReturn:
    raise LookupError("no such user")


def no_manager(context: dict[str, Any]) -> None: ...


def wrong(task: Any) -> Any:
    """Return what the task is named for: no context."""
    return {"add": ["a list"], "plain": {1: 2}, "echo": {"at": object()}, "with_options": {"é": "é" * 5_000}}[task.name]


@task
def tell(*_: Any) -> str | None:
    return user.get()


@task
async def atell(*_: Any) -> list[str | None]:
    return [user.get(), await sync_to_async(user.get)()]


@task(isolate=True)
def tell_isolated() -> str | None:
    return user.get()


@task(isolate=True)
async def atell_isolated() -> str | None:
    return user.get()


@task(atomic=True)
def write(*_: Any) -> str | None:
    return Group.objects.create(name=str(user.get())).name


@task(backoff=0, max_attempts=3, autoretry_for=(RetryLater,))
def try_twice() -> list[Any]:
    if control().job.deliveries == 1:
        raise RetryLater(0, f"for {user.get()}")
    return [control().job.deliveries, user.get()]


@task(max_attempts=1)
def fail() -> None:
    raise ValueError(f"for {user.get()}")


@task
def sleep() -> list[str | None]:
    before = control().step("who", user.get)
    control().sleep("a while", minutes=1)
    return [before, user.get()]


@task
def start() -> list[Any]:
    return [control().wait_for_result(control().start(each.s())) for each in (tell, atell)]


@task
def replace_it() -> Any:
    control().replace(tell.s())


@task
def grow() -> None:
    workflow = current_workflow()
    workflow.add(tell.s())
    workflow.enqueue()
