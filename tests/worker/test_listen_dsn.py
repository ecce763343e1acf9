"""``LISTEN_DSN`` and queues in two databases: each has its listener and its reaper, wherever the setting leads."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.enums import JobState
from django_leasequeue.models import LiveJob
from django_leasequeue.notify import Listener
from django_leasequeue.notify.alarms import Alarm
from django_leasequeue.reaper import Reaper
from tests.reaper.support import running
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

BOTH = ("default", "far")


def both(near: str, far: str) -> dict[str, str]:
    return {"default": near, "far": far}


#: The setting for the connection strings of both, which aliases have the mark of a pooler, and who hears notifications.
SET: dict[str, tuple[Callable[[str, str], Any], tuple[str, ...], tuple[str, ...]]] = {
    "one for each": (both, (), BOTH),
    "one for each behind poolers": (both, BOTH, BOTH),
    "one of them behind poolers": (lambda near, far: {"far": far}, BOTH, ("far",)),
    "one that only polls": (lambda near, far: both(near, ""), (), ("default",)),
    "a text": (lambda near, far: near, (), BOTH),
    "a text behind poolers": (lambda near, far: near, BOTH, ("default",)),
    "all poll": (lambda near, far: "", (), ()),
    "the other's": (lambda near, far: both(near, near), (), ("default",)),
}


@pytest.mark.parametrize("way", SET)
def test_each_database_has_a_reaper_that_promotes_and_wakes_who_waits(
    way: str, far: str, far_server: TemporaryServer, test_database_url: str, clock: engine_clock.Clock, monkeypatch: Any
) -> None:
    given, pooled, hearing = SET[way]
    for alias in pooled:
        monkeypatch.setitem(connections[alias].settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    monkeypatch.setattr("django_leasequeue.notify.session.PROOF", 0.5)
    dsn = given(test_database_url, far_server.url())
    with override_settings(LEASEQUEUE={**settings.LEASEQUEUE, "LISTEN_DSN": dsn}):
        reapers = {alias: Reaper(alias) for alias in BOTH}
        for alias in BOTH:
            engine.run(engine.create("mail", preset="django"), alias)
        with running(*reapers.values()):
            eventually(lambda: all(each.leading for each in reapers.values()), "each database has a leader", 20)
            for alias in BOTH:
                promoted(alias, clock, hears=alias in hearing)


def promoted(alias: str, clock: engine_clock.Clock, *, hears: bool) -> None:
    """A delayed job becomes ready when its time has come, and its waiter is woken at once if notifications reach it."""
    alarm, found = Alarm(), engine.run(engine.get("mail"), alias)
    with closing(Listener(alias)) as listener, closing(listener.watch([found.id], alarm.wake)) as watch:
        assert (watch.wait_ready(), watch.live) == (hears, hears)
        eventually(lambda: not hears or not listener._unsettled(), "nothing else wakes it")
        alarm.wait(0)
        job = engine.NewJob(data=1, delay_ms=60_000)
        engine.run(engine.enqueue("mail", [job]), alias)
        clock.advance(minutes=2)
        assert not hears or alarm.wait(20)
        eventually(LiveJob.objects.using(alias).filter(state=JobState.READY).exists, "the job is ready", 20)
