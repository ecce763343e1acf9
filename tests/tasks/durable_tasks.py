"""Tasks that sleep, wait for events, and write in transactions; those at the end into the table ``ledger``."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_leasequeue.exceptions import EventTimeout, JobFailed
from django_leasequeue.tasks import Limit, chain, current, get_workflow_result, group, step, task
from django_leasequeue.worker import JobControl


def meanwhile() -> None:
    """What a test lets happen while an atomic task runs."""


def control() -> JobControl:
    found = current()
    assert found is not None
    return found


def note(name: str) -> str:
    return Group.objects.create(name=name).name


def note_again(name: str) -> None:
    """Write another row in each call."""
    note(f"{name} {Group.objects.count()}")


@task
def sleeper(name: str = "before") -> str:
    before = control().step("before", note, name)
    control().sleep("cool off", hours=30)
    control().sleep("cool off", minutes=1)
    return before


@task(limit=Limit("one", concurrency=1))
def limited_sleeper(name: str) -> str:
    note_again(name)
    control().sleep("a moment", minutes=1)
    return name


@task(limit=Limit("kept", concurrency=1, rate=2, per=3_600, while_suspended=True))
def keeping_sleeper(name: str) -> str:
    control().sleep("a moment", minutes=1)
    control().sleep("a moment", minutes=1)
    return name


@task
def waiter(event: str, seconds: float | None = None) -> Any:
    return control().wait_for(event, timeout=None if seconds is None else timedelta(seconds=seconds))


@task
async def async_sleeper(event: str, seconds: float) -> Any:
    await control().asleep("a moment", seconds=seconds)
    return await control().await_for(event, timeout=60)


@task
def swallower() -> None:
    try:
        control().sleep("deep", hours=1)
    except BaseException:  # noqa: BLE001  (what hosts write)
        note_again("swallowed")


@task
def late_failure() -> None:
    control().sleep("deep", hours=1)
    raise ValueError("late")


@task
def sleeper_in_a_transaction() -> None:
    with transaction.atomic():
        control().sleep("deep", hours=1)


@task(atomic=True)
def booker(name: str, how: str = "") -> str:
    note(name)
    doubler.enqueue(1)
    if how == "fails":
        raise RuntimeError("no")
    if how == "late":
        meanwhile()
    return name


@step
def fetched(number: int) -> str:
    note_again(f"fetched {number}")
    return f"page {number}"


@step(name="fetch", retries=1)
async def afetched(number: int) -> str:
    return f"page {number}"


@task
def reader(count: int) -> list[str]:
    return [fetched(number) for number in range(count)]


@task
async def async_reader(count: int) -> list[str]:
    return [await afetched(number) for number in range(count)]


@task
def parent(number: int) -> Any:
    child = control().start(doubler.using(max_attempts=1).s(number))
    return control().wait_for_result(child, timeout=60)


@task
def parent_of_two(*numbers: int) -> list[int]:
    return [control().wait_for_result(control().start(doubler.s(number))) for number in numbers]


def versions() -> list[str]:
    """The steps that the code of ``changing`` has: tests change it."""
    return ["a", "b", "b"]


@task
def changing() -> list[str]:
    done = [control().step(name, str.upper, name) for name in versions()]
    control().sleep("nap", hours=1)
    return done


@task
def flow_parent(*numbers: int) -> Any:
    made = group([doubler.using(max_attempts=1).s(number) for number in numbers])
    id = control().step("flow", lambda: made.enqueue().id, atomic=True)
    return control().wait_for_result(get_workflow_result(id), timeout=60)


def refuse_negative(number: int) -> None:
    if number < 0:
        raise ValueError("negative")


@task
def doubler(number: int) -> int:
    refuse_negative(number)
    return 2 * number


def write(kind: str, number: int) -> int:
    """Write a row; slow enough to be killed in the middle."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger (kind, number) VALUES (%s, %s)", [kind, number])
        cursor.execute("SELECT pg_sleep(0.01)")
    return number


@task(atomic=True, max_attempts=10_000)
def booked(number: int) -> int:
    return write("task", number)


@task
def awaiting(number: int) -> None:
    job = control()
    assert job.wait_for(f"random:{number}", timeout=3_600) == number
    job.step("heard", write, "heard", number, atomic=True)


@task(max_attempts=10_000)
def ordered(number: int) -> int:
    job = control()
    job.step("charge", write, "plain", number)
    job.step("reserve", write, "atomic", number, atomic=True)
    child = job.start(booked.s(number))
    job.sleep("nap", seconds=0.3)
    said = job.wait_for(f"go:{number}", timeout=3_600)
    assert said == number
    assert job.wait_for_result(child) == number
    return job.step("mail", write, "last", number, atomic=True)


@task
def says(value: Any) -> Any:
    return value


@task
def hears(value: Any) -> int:
    return len(str(control().wait_for_result(control().start(says.s(value)))))


@task
def refunder(number: int = 4) -> str:
    """Give the money back if the parcel is not packed in time: once decided, that stays."""
    packed = control().start(doubler.using(queue_name="packing", max_attempts=1).s(number))
    try:
        control().wait_for_result(packed, timeout=5)
        made = control().step("ship", note, "shipped", atomic=True)
    except EventTimeout:
        made = control().step("refund", note, "refunded", atomic=True)
    except JobFailed:
        made = control().step("complain", note, "complained", atomic=True)
    control().sleep("a day", days=1)
    return made


@task
async def async_refunder() -> str:
    packed = await control().astart(doubler.using(queue_name="packing").s(4))
    try:
        await control().await_for_result(packed, timeout=5)
        made = await control().astep("ship", note, "shipped", atomic=True)
    except EventTimeout:
        made = await control().astep("refund", note, "refunded", atomic=True)
    await control().asleep("a day", days=1)
    return str(made)


@task
def replaced() -> None:
    control().replace(doubler.using(queue_name="packing").s(4))


@task
def waiter_in_a_transaction(id: str) -> Any:
    with transaction.atomic():
        return control().wait_for_result(doubler.get_result(id))


@task(max_attempts=10_000)
def packed(number: int) -> int:
    """Take as long as who waits has patience, about: which of the two is first is chance."""
    control().sleep("packing", seconds=number % 7 * 0.3)
    return number


@task(max_attempts=10_000)
def impatient(number: int) -> None:
    job = control()
    child = job.start(packed.s(number))
    try:
        kind = "shipped" if job.wait_for_result(child, timeout=number % 3 * 20) == number else "wrong"
    except EventTimeout:
        kind = "refunded"
    job.step(kind, write, kind, number, atomic=True)
    job.sleep("nap", seconds=0.3)
    assert job.wait_for_result(child) == number
    job.step("told", write, "told", number, atomic=True)


@task(max_attempts=10_000)
def cancelled(number: int) -> None:
    for place in range(20):
        control().step("pay", write, f"pay {place}", number, atomic=True)


@task(max_attempts=1)
def charged_once(number: int) -> None:
    for place in range(5):
        control().step("charge", write, f"charge {place}", number, atomic=True)


@task(max_attempts=10_000)
def undone(number: int) -> None:
    """Write down how many charges there are to be undone."""
    job = control()

    def counted() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ledger WHERE kind LIKE 'charge %%' AND number = %s", [number])
            return write(f"undone {cursor.fetchone()[0]}", number)

    job.step("undo", counted, atomic=True)


@task(max_attempts=10_000)
def risky(number: int) -> None:
    doubtful = chain(charged_once.s(number).on_failure(undone.si(number)))
    control().step("risk", lambda: doubtful.enqueue().id, atomic=True)
