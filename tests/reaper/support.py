"""What tests of the reaper share: reapers that run, and what the database knows of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django_leasequeue import engine
from django_leasequeue.engine.pool import connect
from django_leasequeue.reaper import Reaper, leader


@contextmanager
def running(*reapers: Reaper) -> Iterator[None]:
    for each in reapers:
        each.start()
    try:
        yield
    finally:
        stopped = [each.stop(60) for each in reapers]
        assert all(stopped)


def leaders() -> list[str]:
    """The reaper that leads."""
    with connect("default") as own:
        found = leader.Leader.of(engine.ConnectionExecutor(own).fetch("reaper_look", {}))
        return [] if found is None else [found.holder]


def backends() -> set[int]:
    """The server's processes of all reapers."""
    with connect("default") as own:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasequeue reaper'"
        return {pid for (pid,) in own.execute(query).fetchall()}
