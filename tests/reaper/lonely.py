"""``python -m tests.reaper.lonely``: a reaper in a process of its own, with the duty that its argument names."""

import os
import signal
import sys
import time

import django

django.setup()

from django_leasequeue.conf.loglines import set_up_logging  # noqa: E402
from django_leasequeue.reaper import Duty, DutyRun, Reaper  # noqa: E402


def write(turn: DutyRun) -> None:
    """Write who leads, in a transaction: stopped in it, the process wakes up with a write to come."""
    with turn.transaction():
        turn.connection.execute("SELECT pg_sleep(0.05)")
        turn.connection.execute("INSERT INTO written (pid) VALUES (%s)", [os.getpid()])


def leave_child(turn: DutyRun) -> None:
    """Leave a child that keeps the sockets of this process."""
    write(turn)
    if not children:
        children.append(os.fork() or _sleep())


def _sleep() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    time.sleep(120)
    os._exit(0)


children: list[int] = []

if __name__ == "__main__":
    set_up_logging(as_json=False, verbosity=1)
    work = {"write": write, "leave_child": leave_child}[sys.argv[1]]
    Reaper(duties=[Duty("write", work, 0.05, fenced=True)]).run()
