"""What tests of the reaper share: reapers that run, and what the database knows of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django_leasequeue.reaper import Duty, Reaper, leader
from tests.engine.helpers import fetch, run


@contextmanager
def running(*reapers: Reaper) -> Iterator[None]:
    for each in reapers:
        each.start()
    try:
        yield
    finally:
        stopped = [each.stop(60) for each in reapers]
        assert all(stopped)


def some(count: int) -> list[Reaper]:
    """Reapers that have nothing to do."""
    return [Reaper(duties=[Duty("nothing", lambda turn: None, 0.05)]) for _ in range(count)]


def present() -> leader.Leader | None:
    return leader.Leader.of(fetch("reaper_look"))


def leaders() -> list[str]:
    """The reaper that leads."""
    found = present()
    return [] if found is None else [found.holder]


def backends() -> set[int]:
    """The server's processes of all reapers."""
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasequeue reaper'"
    return {pid for (pid,) in run(query)}
