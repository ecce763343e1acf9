"""The durable task of the soak: steps, atomic steps, sleeps and events, and what it says of each."""

from __future__ import annotations

import secrets
import time
from typing import Any

from django.db import connection

from django_leasequeue.exceptions import EventTimeout
from django_leasequeue.tasks import current, task
from django_leasequeue.worker.durable import Suspended

from .evidence import TIMEOUT, witness

#: The rows that atomic steps write: no constraint of the table stands in the way of a second one.
TABLE = "CREATE TABLE IF NOT EXISTS soak_effect (number bigint, place int); CREATE INDEX ON soak_effect (number)"
WRITE = "INSERT INTO soak_effect (number, place) VALUES (%s, %s)"
COUNT = "SELECT count(*) FROM soak_effect WHERE number = %s AND place = %s"

#: A part of a job: its kind (``plain``, ``atomic``, ``sleep``, ``event``), and how many seconds it takes.
Part = tuple[str, float]


def event(number: int, place: int) -> str:
    """Return the name of the event that a job waits for."""
    return f"soak:{number}:{place}"


@task
def durable(number: int, parts: list[Part]) -> int:
    """Do one part after the other."""
    control = current()
    assert control is not None
    claim = control.job.token

    def does(place: int, atomic: bool, seconds: float) -> str:
        value = secrets.token_hex(4)
        witness().say("did", number, place, claim, value)
        if atomic:
            with connection.cursor() as cursor:
                cursor.execute(WRITE, [number, place])
        time.sleep(seconds)
        return value

    for place, (kind, seconds) in enumerate(parts):
        witness().say("comes", number, place, claim, kind, seconds)
        value: Any = None
        try:
            if kind == "sleep":
                control.sleep(f"sleep {place}", seconds=seconds)
            elif kind == "event":
                value = control.wait_for(event(number, place), TIMEOUT)
            else:
                value = control.step(f"{kind} {place}", does, place, kind == "atomic", seconds, atomic=kind == "atomic")
        except Suspended:
            witness().say("suspended", number, place, claim)
            raise
        except EventTimeout:
            value = "timeout"
        witness().say("passed", number, place, claim, value)
        if kind == "atomic":
            with connection.cursor() as cursor:
                cursor.execute(COUNT, [number, place])
                witness().say("effect", number, place, claim, cursor.fetchone()[0])
    return number
