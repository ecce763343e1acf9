"""Tasks with steps that are undone; what they do is a row in ``Group``, and their undo removes it."""

import os
from typing import Any

from django.contrib.auth.models import Group

from django_leasequeue.tasks import FailForGood, group, step, task
from tests.tasks.durable_tasks import control

#: What undo functions did, in order; those named in ``broken`` raise.
done: list[str] = []
broken: set[str] = set()
#: What is found of a trip that was undone.
UNDONE = (["mail", "car", "hotel", "flight"], ["look"])


def book(name: str) -> str:
    return Group.objects.create(name=name).name


def booked() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def found() -> tuple[list[str], list[str]]:
    """Return what was done, and what is booked."""
    return done, booked()


def look() -> str:
    return Group.objects.get_or_create(name="look")[0].name


async def abook(name: str) -> str:
    return (await Group.objects.acreate(name=name)).name


def unbook(name: str) -> None:
    if name in broken:
        raise ConnectionError(f"{name} cannot be undone now")
    done.append(name)
    Group.objects.filter(name=name).delete()


async def aunbook(name: str) -> object:
    done.append(name)
    return object()  # what an undo returns is not kept


def fail(how: str) -> None:
    if how == "sleeps":
        control().sleep("a day", days=1)
    elif how == "for good":
        raise FailForGood("no")
    elif how:
        raise ValueError(how)


@task(max_attempts=2, backoff=60)
def trip(how: str = "for good") -> str:
    job = control()
    job.step("look", look)
    job.step("flight", book, "flight", undo=unbook)
    job.step("hotel", book, "hotel", atomic=True, undo=unbook)
    with job.atomic_step("car", undo=unbook) as car:
        if not car.done:
            car.value = book("car")
    job.step("mail", done.append, "mail")
    fail(how)
    return "booked"


@task
def becomes(workflow: bool) -> None:
    control().replace(group([trip.s("sleeps")]) if workflow else trip.s("sleeps"))


@step(undo=unbook)
def flight() -> str:
    return book("decorated flight")


@task(max_attempts=1)
def decorated_trip(how: str = "wrong") -> None:
    flight()
    fail(how)


@task(max_attempts=2, backoff=0)
async def async_trip() -> None:
    await control().astep("flight", abook, "coroutine", undo=aunbook)
    await control().astep("hotel", book, "hotel", atomic=True, undo=unbook)
    raise FailForGood("no")


@task(max_attempts=1)
def unserializable_trip() -> Any:
    control().step("flight", book, "flight", undo=unbook)
    return object()


@task(isolate=True, max_attempts=3, autoretry_for=[ValueError])
def isolated_trip() -> None:
    control().step("flight", book, "isolated", undo=unbook)
    os._exit(1)


@task
def slow_trip() -> None:
    control().step("flight", book, "slow", atomic=True, undo=unbook)
    control().event.wait(60)
    control().raise_if_aborted()


@task(atomic=True, max_attempts=1)
def atomic_trip() -> None:
    control().step("flight", book, "flight", undo=unbook)
