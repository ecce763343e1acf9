"""Which queues a worker takes by names, patterns and exclusions, and in which order."""

import fnmatch
import random
import re
import time
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_leasequeue import engine
from django_leasequeue.management.commands.runworker import Command, _warn_of_no_backend
from django_leasequeue.models import Queue as QueueRow
from django_leasequeue.models import Worker
from django_leasequeue.tasks.api import tasks
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import load_options, queue_names
from django_leasequeue.worker.queue_names import MAX_PATTERNS, QueueChoice, QueueNames, fits
from tests.support.waiting import eventually
from tests.worker.support import NEVER, Threaded, results, working


def made(*names: str) -> None:
    for name in names:
        engine.run(engine.create(name, preset="django"))


def chosen(*queues: str, handler: Any = None, turns: int = 0) -> list[str]:
    """Return the queues of a worker in the order of a claim, after so many others."""
    threaded = Threaded(handler, queues=queues)
    link = threaded.worker._fetcher.link
    names = QueueNames(threaded.state, link)
    names.refresh()
    link.close()
    threaded.state.journal.close()
    for _ in range(turns):
        names.chunks()
    assert sorted(threaded.state.queues) == sorted(names.names)
    return [name for chunk in names.chunks() for name in chunk]


class TestFits:
    @pytest.mark.parametrize(
        ("name", "pattern", "expected"),
        [
            ("mail", "mail*", True), ("mail.bulk", "mail*", True), ("e-mail", "mail*", False),
            ("mail.bulk", "*bulk", True), ("mail.bulk.eu", "*.bulk.*", True), ("mail.eu", "mail.*.eu", False),
            ("aba", "ab*ba", False), ("abba", "ab*ba", True), ("", "*", True), ("a", "**", True),
            ("mail", "m?il*", False), ("mail", "[m]ail*", False), ("m.il", "m.i*", True), ("Mail", "mail*", False),
        ],
    )  # fmt: skip
    def test_only_the_asterisk_is_a_wildcard(self, name: str, pattern: str, expected: bool) -> None:
        assert fits(name, pattern) is expected

    def test_the_same_as_fnmatch_where_that_has_no_other_wildcard(self) -> None:
        draw = random.Random(7)
        for _ in range(5_000):
            name = "".join(draw.choices("ab", k=draw.randint(0, 6)))
            pattern = "".join(draw.choices("ab*", k=draw.randint(0, 5))) + "*"
            assert fits(name, pattern) is bool(re.match(fnmatch.translate(pattern), name)), (name, pattern)

    def test_no_pattern_takes_long(self) -> None:
        began = time.monotonic()
        assert not fits("a" * 255, "a*" * 120 + "b")
        assert time.monotonic() - began < 1


class TestInvalidOptions:
    @pytest.mark.parametrize(
        ("queues", "message"),
        [
            (("",), "queues takes names, patterns ('mail*') and exclusions ('-mail.bulk'), of letters, digits"),
            (("",), "one of them is ''"), (("mail", "-"), "one of them is '-'"), (("*", "--mail"), "'--mail'"),
            (("m?il",), "the wildcard '*', with at most 255 characters; one of them is 'm?il'"),
            (("x" * 256,), "at most 255 characters"), (("*", "-ü"), "one of them is '-ü'"), ((".*",), "'.*'"),
            (("mail", "a*", "-mail"), "queues takes 'mail' and excludes it as well: keep one of the two"),
            (("a*", "-a*"), "queues takes 'a*' and excludes it as well"),
            (("mail", "-bulk"), "queues excludes 'bulk', but only patterns can leave out a queue, and it has none"),
            (("*", *(f"-{n}" for n in range(MAX_PATTERNS))), "at most 100 patterns and exclusions; it has 101"),
        ],
    )  # fmt: skip
    def test_of_queues_are_refused_by_name(self, queues: tuple[str, ...], message: str) -> None:
        with pytest.raises(ImproperlyConfigured) as caught:
            load_options(queues=queues)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("limits", "message"),
        [
            ({"": 1}, "limits takes names and patterns ('mail*') of queues, of letters, digits"),
            ({"-mail": 1}, "one of them is '-mail'"),
            ({"mail": 0}, "runworker['LIMITS']['mail'] must be an integer, 1 to 100,000; it is 0"),
            ({"mail": "2"}, "runworker['LIMITS']['mail'] must be an integer"),
            ({f"{n}*": 1 for n in range(101)}, "limits takes at most 100 patterns and exclusions; it has 101"),
        ],
    )
    def test_of_limits_are_refused_by_name(self, limits: dict[str, Any], message: str) -> None:
        with pytest.raises(ImproperlyConfigured) as caught:
            load_options(limits=limits)
        assert message in str(caught.value)

    @pytest.mark.parametrize("text", ["heavy", "=2", "heavy=", "heavy=-1", "heavy=two", "heavy=²"])
    def test_of_a_limit_on_the_command_line_are_refused(self, text: str) -> None:
        with pytest.raises(CommandError, match=f"--limit: must be NAME=N, such as heavy=2; it is {text!r}"):
            Command().create_parser("manage.py", "runworker").parse_args(["--limit", text])

    def test_limits_on_the_command_line_add_up(self) -> None:
        given = ["--limit", "heavy=2", "--limit", "m*=1"]
        assert Command().create_parser("manage.py", "runworker").parse_args(given).limits == [
            ("heavy", 2),
            ("m*", 1),
        ]

    def test_only_exclusions_are_all_but_these(self) -> None:
        assert QueueChoice.of(("-a", "-b*")) == QueueChoice(("*",), ("a", "b*"))


@pytest.mark.parametrize(("backend", "warned"), [
    ("django_leasequeue.tasks.LeaseQueueBackend", 0), (f"{tasks.__name__}.backends.immediate.ImmediateBackend", 1),
])  # fmt: skip
def test_a_worker_that_will_get_no_tasks_says_so(settings: Any, caplog: Any, backend: str, warned: int) -> None:
    settings.TASKS = {"default": {"BACKEND": backend}}
    _warn_of_no_backend(load_options().handler)
    assert caplog.text.count("No alias of TASKS is") == warned
    _warn_of_no_backend("shop.handlers.Own")
    assert caplog.text.count("No alias of TASKS is") == warned


@pytest.mark.usefixtures("test_dsn")
class TestQueuesThatAreTaken:
    def test_those_of_a_pattern_and_no_others(self) -> None:
        made("mail", "mail.bulk", "mail.eu", "e-mail", "report")
        assert set(chosen("mail*")) == {"mail", "mail.bulk", "mail.eu"}
        assert set(chosen("mail*", "-mail.bulk")) == {"mail", "mail.eu"}
        assert set(chosen("*", "-mail*")) == set(chosen("-mail*")) == {"e-mail", "report"}

    def test_the_underscore_is_no_wildcard_as_it_is_of_like(self) -> None:
        made("a_1", "ab1")
        assert (chosen("a_*"), chosen("a*", "-a_*"), chosen("*", "-a_1")) == (["a_1"], ["ab1"], ["ab1"])

    def test_the_list_s_order_is_kept_and_the_queues_of_a_pattern_take_turns(self) -> None:
        made("urgent", "mail.a", "mail.b", "mail.c", "last")
        orders = [chosen("urgent", "mail.*", "last", turns=turns) for turns in range(3)]
        assert {(order[0], order[-1]) for order in orders} == {("urgent", "last")}
        assert {order[1] for order in orders} == {"mail.a", "mail.b", "mail.c"}

    def test_a_queue_stands_at_its_name_rather_than_at_a_pattern(self) -> None:
        made("a", "b", "slow", "urgent")
        for turns in range(3):
            order = chosen("urgent", "*", "slow", turns=turns)
            assert (order[0], {*order[1:3]}, order[3]) == ("urgent", {"a", "b"}, "slow")

    def test_a_name_is_taken_although_an_exclusion_fits(self) -> None:
        made("mail.vip", "mail.bulk", "report")
        assert chosen("mail.vip", "*", "-mail.*") == ["mail.vip", "report"]

    def test_a_missing_name_is_made_and_logged_and_a_pattern_makes_nothing(self, caplog: Any) -> None:
        caplog.set_level("INFO")
        for _ in range(2):
            assert chosen("mail.*", "fresh") == ["fresh"]
        assert caplog.text.count("The queue fresh is new") == 1
        assert list(QueueRow.objects.values_list("name", flat=True)) == ["fresh"]

    def test_a_pattern_of_a_worker_of_tasks_leaves_queues_with_other_consumers(self, settings: Any) -> None:
        settings.TASKS = {
            "default": {
                "BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "QUEUES": ["mail.tasks"], "OPTIONS": {}
            }
        }  # fmt: skip
        made("mail.tasks", "mail.raw", "raw")
        assert chosen("mail.*", handler=TaskHandler("")) == ["mail.tasks"]
        assert chosen("raw", "mail.*", handler=TaskHandler("")) == ["raw", "mail.tasks"], "a name is taken in any case"

    def test_a_new_one_is_found_at_its_notification(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue_names, "REREAD", NEVER)
        monkeypatch.setattr("django_leasequeue.worker.keeper.PRESENCE", 0.05)
        with working(queues=("mail*", "-mail.bulk"), poll=NEVER) as threaded:
            row = eventually(Worker.objects.first, "it has a row")
            assert row.queues == ["mail*", "-mail.bulk"], "without a queue the row says what it was told"
            for name in ("mail.bulk", "other", "mail.new"):
                engine.run(engine.enqueue(name, [engine.NewJob(key=name)]))
            eventually(lambda: results() == {"mail.new": 1}, "the one that fits is done")
            assert threaded.state.queues == ["mail.new"]
            eventually(lambda: Worker.objects.filter(queues=["mail.new"]), "its row says what it takes")
