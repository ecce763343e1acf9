"""Tasks whose every effect is a row of the table ``ledger``: whoever counts them sees what ran twice, or not at all."""

from django.db import connection

from django_leasequeue.tasks import task
from tests.tasks.durable_tasks import control


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
