"""``LEASEQUEUE`` is read by one loader: what is wrong is told by the setting's name, at its use and by a check."""

import asyncio
import gc
import os
import re
import warnings
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_leasequeue
from django_leasequeue import Queue, conf
from django_leasequeue.conf import process
from django_leasequeue.conf.options import ApiOptions, Range, ReaperOptions, Settings, WorkerOptions
from django_leasequeue.engine import pool
from django_leasequeue.engine.limits import MAX_BATCH
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.notify import reply_channel
from django_leasequeue.tasks.results import _spare, new_end
from tests.support.environment import python
from tests.support.sections import sections

WRONG: list[tuple[Any, str]] = [
    ([], "LEASEQUEUE must be a dict; it is []."),
    ({"RETENTION": 3}, "LEASEQUEUE has no setting 'RETENTION'."),
    ({"max_page": 3}, "LEASEQUEUE has no setting 'max_page'. Did you mean 'MAX_PAGE'?"),
    ({7: 3}, "LEASEQUEUE has no setting 7."),
    ({"COUNT_CAP": "10"}, "LEASEQUEUE['COUNT_CAP'] must be an integer, 0 or more; it is '10'. The default is 100000."),
    ({"COUNT_CAP": True}, "LEASEQUEUE['COUNT_CAP'] must be an integer, 0 or more; it is True."),
    ({"MAX_PAGE": 2.0}, "LEASEQUEUE['MAX_PAGE'] must be an integer, 1 or more; it is 2.0."),
    ({"EVENT_RETENTION_DAYS": -1}, "LEASEQUEUE['EVENT_RETENTION_DAYS'] must be a number, 0 or more; it is -1."),
    ({"EVENT_RETENTION_DAYS": float("nan")}, "must be a number, 0 or more; it is nan."),
    ({"EVENT_RETENTION_DAYS": float("inf")}, "must be a number, 0 or more; it is inf."),
    ({"EVENT_PARTITIONS_AHEAD": 101}, "must be an integer, 1 to 100; it is 101."),
    ({"AUTO_CREATE": "yes"}, "LEASEQUEUE['AUTO_CREATE'] must be True or False; it is 'yes'."),
    ({"LISTEN_DSN": 5}, "LEASEQUEUE['LISTEN_DSN'] must be a text, a dict of texts or None; it is 5."),
    ({"LISTEN_DSN": {"far": None}}, "LEASEQUEUE['LISTEN_DSN']['far'] must be a text; it is None."),
    ({"ASYNC": "threads"}, "LEASEQUEUE['ASYNC'] must be 'auto', 'native' or 'thread'; it is 'threads'."),
    ({"DEFAULT_PRESET": "celery"}, "LEASEQUEUE['DEFAULT_PRESET'] must be 'topics', "),
    ({"QUEUES": ["mail"]}, "LEASEQUEUE['QUEUES'] must be a dict, each value a dict; it is ['mail']."),
    ({"QUEUES": {"mail": None}}, "LEASEQUEUE['QUEUES']['mail'] must be a dict; it is None."),
    ({"QUEUES": {5: {}}}, "LEASEQUEUE['QUEUES'] must have texts as keys; one is 5."),
    ({"RECURRING": {"report": []}}, "LEASEQUEUE['RECURRING']['report'] must be a dict; it is []."),
    ({"RECURRING": []}, "LEASEQUEUE['RECURRING'] must be a dict, each value a dict or None; it is []."),
    ({"SERIALIZERS": {"mine": 5}}, "LEASEQUEUE['SERIALIZERS']['mine'] must be a text or a list of texts; it is 5."),
    ({"SERIALIZERS": {"mine": ("dumps", 5)}}, "LEASEQUEUE['SERIALIZERS']['mine'][1] must be a text; it is 5."),
    ({"API": []}, "LEASEQUEUE['API'] must be a dict; it is []."),
    ({"API": {"ACESS": "open"}}, "LEASEQUEUE['API'] has no setting 'ACESS'. Did you mean 'ACCESS'?"),
    ({"API": {"RATE_PER_SECOND": 0}}, "['RATE_PER_SECOND'] must be an integer, 1 or more, or None; it is 0."),
    ({"API": {"ZAQAR": {"DEFAULT_PAGE": 0}}}, "LEASEQUEUE['API']['ZAQAR']['DEFAULT_PAGE'] must be an integer, 1 or"),
    ({"WORKER": {"QUEUES": "default"}}, "LEASEQUEUE['WORKER']['QUEUES'] must be a list of texts; it is 'default'."),
    ({"REAPER": {"INTERVALS": {"sweep": 0}}}, "LEASEQUEUE['REAPER']['INTERVALS']['sweep'] must be a number, 0.01 to"),
    ({"ADMIN": {"REDACT": 5}}, "LEASEQUEUE['ADMIN']['REDACT'] must be a text, a function or None; it is 5."),
    ({"LAKE": {"ARCHIVE": 1}}, "LEASEQUEUE['LAKE']['ARCHIVE'] must be True or False; it is 1."),
]


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_what_is_wrong_is_named_at_its_use_and_by_the_check(settings: Any, given: Any, text: str) -> None:
    settings.LEASEQUEUE = given
    with pytest.raises(ImproperlyConfigured, match=re.escape(text)):
        _ = conf.settings.DATABASE
    [problem] = conf.problems()
    assert text in str(problem)
    assert problem.hint


def test_all_that_is_wrong_is_told_at_once(settings: Any) -> None:
    settings.LEASEQUEUE = {"MAX_PAGE": 0, "API": {"PROXIES": -1, "MAX_DEPTH": 0}}
    with pytest.raises(ImproperlyConfigured) as raised:
        _ = conf.settings.DATABASE
    assert [line.split(" must")[0] for line in str(raised.value).splitlines()] == [
        "LEASEQUEUE['MAX_PAGE']", "LEASEQUEUE['API']['PROXIES']", "LEASEQUEUE['API']['MAX_DEPTH']",
    ]  # fmt: skip


def test_what_is_given_and_what_is_not(settings: Any) -> None:
    settings.LEASEQUEUE = {
        "API": {"AUTHENTICATION_CLASSES": ["a.B"], "RATE_PER_SECOND": None, "ZAQAR": {"DEFAULT_PAGE": 3}},
        "REAPER": {"INTERVALS": {"sweep": 10, "samples": None}}, "STATEMENT_TIMEOUT": 5,
        "SERIALIZERS": {"pair": ["pickle.dumps", "pickle.loads"]}, "ADMIN": {"REDACT": len},
    }  # fmt: skip
    api = conf.settings.API
    assert (api.AUTHENTICATION_CLASSES, api.ZAQAR.DEFAULT_PAGE, api.ZAQAR.MAX_CLAIM_TTL) == (("a.B",), 3, 43_200)
    assert api.MAX_DEPTH == ApiOptions().MAX_DEPTH
    assert ReaperOptions({"sweep": 10.0, "samples": None}) == conf.settings.REAPER
    assert isinstance(conf.settings.STATEMENT_TIMEOUT, float)
    assert conf.settings.SERIALIZERS == {"pair": ("pickle.dumps", "pickle.loads")}
    assert conf.settings.ADMIN.REDACT is len
    assert WorkerOptions() == conf.settings.WORKER


def test_they_are_read_again_when_a_test_changes_them_and_nobody_does_in_passing(settings: Any) -> None:
    settings.LEASEQUEUE = {"MAX_PAGE": 5}
    assert conf.settings.MAX_PAGE == 5
    settings.LEASEQUEUE = {"COUNT_CAP": 5}
    assert (conf.settings.MAX_PAGE, conf.settings.COUNT_CAP) == (1_000, 5)
    with pytest.raises(FrozenInstanceError):
        conf.settings.API.MAX_DEPTH = 5  # type: ignore[misc]


def test_limits_that_the_engine_has_as_well() -> None:
    """The settings import nothing of the engine."""
    options = conf.keys(WorkerOptions)
    assert options["ACK_BATCH"][1].__metadata__ == (Range(1, MAX_BATCH),)
    assert list(get_args(conf.keys(Settings)["DEFAULT_PRESET"][1])) == list(PRESETS)


@pytest.mark.parametrize("kind", sections().values())
def test_the_defaults_are_right_by_the_loaders_own_rules(kind: type[Any]) -> None:
    given = {key: conf.default(item) for key, (item, hint) in conf.keys(kind).items() if not is_dataclass(hint)}
    assert conf.read(kind, given, "LEASEQUEUE") == kind()


# What a process keeps


ROOT = Path(django_leasequeue.__file__).parent


def test_a_forked_child_begins_with_none_of_them() -> None:
    """Also where another thread held the lock: it does not come along, and would never let go."""
    made: process.Shared[str, int] = process.Shared()
    assert made.get("pid", lambda _: os.getpid()) == os.getpid()
    queue = Queue("any")
    names = {queue.node, reply_channel()}
    new_end()
    ends = set(_spare)
    assert ends, "some are drawn ahead"
    reading, writing = os.pipe()
    with made._lock:
        # Python warns of forks where other threads run.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()
        if not child:
            told = 1
            try:
                fresh = made.get("pid", lambda _: os.getpid()) == os.getpid()
                others = not {queue.node, reply_channel()} & names and not {new_end() for _ in ends} & ends
                os.write(writing, b"y" if fresh and others else b"n")
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
