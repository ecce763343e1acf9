"""What a process has but once: what it remembers, what its threads and event loops share, what a fork leaves behind."""

import asyncio
import gc
import os
import warnings
from pathlib import Path

import django_leasequeue
from django_leasequeue import Queue, conf
from django_leasequeue.conf import process
from django_leasequeue.engine import pool
from django_leasequeue.notify import reply_channel
from tests.support.environment import python

ROOT = Path(django_leasequeue.__file__).parent


def test_a_forked_child_begins_with_none_of_them() -> None:
    """Also where another thread held the lock: it does not come along, and would never let go."""
    made: process.Shared[str, int] = process.Shared()
    assert made.get("pid", lambda _: os.getpid()) == os.getpid()
    queue = Queue("any")
    names = {queue.node, reply_channel()}
    reading, writing = os.pipe()
    with made._lock:
        # Python warns of forks where other threads run.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()
        if not child:
            told = 1
            try:
                fresh = made.get("pid", lambda _: os.getpid()) == os.getpid()
                os.write(writing, b"y" if fresh and not {queue.node, reply_channel()} & names else b"n")
                told = 0
            finally:
                os._exit(told)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"y"
    os.waitpid(child, 0)
    assert {queue.node, reply_channel()} == names


def test_an_event_loop_has_its_own_and_takes_it_along() -> None:
    shared: process.PerLoop[list[int]] = process.PerLoop(list)

    async def use(number: int) -> list[int]:
        shared.get().append(number)
        assert shared.get() is shared.get()
        assert (asyncio.get_running_loop(), [number]) in shared.items()
        return shared.get()

    assert [asyncio.run(use(1)), asyncio.run(use(2))] == [[1], [2]]
    gc.collect()
    assert shared.items() == []

    async def pop() -> tuple[list[int] | None, list[int] | None]:
        shared.get().append(3)
        return shared.pop(), shared.pop()

    assert asyncio.run(pop()) == ([3], None)


def test_async_calls_go_where_settings_and_switch_say(settings, monkeypatch) -> None:
    settings.LEASEQUEUE = {}
    assert (conf.settings.ASYNC, pool.in_thread()) == ("auto", True), "the pytest plugin has switched"
    for switched in (True, False):
        monkeypatch.setattr(process.switches, "django_connection", switched)
        for mode, threaded in (("auto", switched), ("native", False), ("thread", True)):
            settings.LEASEQUEUE = {"ASYNC": mode}
            assert pool.in_thread() is threaded, (switched, mode)


def test_djangos_test_tools_alone_change_nothing() -> None:
    """What runs under a test runs as it does in production; the package's own test tools set the switches."""
    script = (
        "import django; from django.conf import settings; settings.configure(); django.setup();"
        "from django.test.utils import setup_test_environment; setup_test_environment();"
        "from django_leasequeue.engine import pool; assert not pool.in_thread();"
        "from django_leasequeue.testing import plugin; plugin.pytest_runtest_setup(); assert pool.in_thread()"
    )
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = python("-c", script, env={**environment, "PYTHONPATH": str(ROOT.parent)})
    assert done.returncode == 0, done.stderr
