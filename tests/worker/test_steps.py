"""Steps of running jobs: done once, kept over deliveries; those of a transaction exactly once."""

import asyncio
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.test import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import Failure, LeasedJob, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead.action import act
from django_leasequeue.exceptions import InvalidOption, LeaseLost, NotSerializable, PayloadTooLarge, WrittenByEngine
from django_leasequeue.models import DeadLetter, Job, JobStep
from django_leasequeue.tasks import current, task
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.engine.helpers import NODE, make, one, put
from tests.support.pages import run_page
from tests.support.threads import ThreadResult

NOT_JSON: Any = [
    ({"order": [1, datetime(2030, 1, 1, tzinfo=UTC)]}, "an object of type datetime at ['order'][1]"),
    ({(1, 2): 3}, "a key of type tuple"), ([{}, [float("nan")]], "nan at [1][0]"),
    (["a\x00"], "a str with U+0000 at [0]"), ({"a": "\ud800"}, "a str that is no text at ['a']"),
]  # fmt: skip


@task(max_attempts=3)
def returns_no_json(number: int, in_step: bool) -> Any:
    control = current()
    assert control is not None
    value = NOT_JSON[number][0]
    return control.step("look", lambda: value, retries=2) if in_step else value


@pytest.mark.django_db
@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("number", range(len(NOT_JSON)))
def test_what_is_not_json_fails_the_task_at_once_and_says_where(
    leasequeue: Harness, number: int, in_step: bool
) -> None:
    returns_no_json.enqueue(number, in_step)
    (ran,) = leasequeue.drain()
    assert (ran.state, isinstance(ran.error, NotSerializable)) == ("failed", True)
    assert NOT_JSON[number][1] in str(ran.error)
    assert ("the step 'look'" if in_step else "test_steps.returns_no_json") in str(ran.error)


class Calls:
    """A function that gives one answer after the other, and counts its calls."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        answer = self.answers[min(self.count, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def start(**options: Any) -> LeasedJob:
    make("work", **options)
    put(1)
    return one()


def again(job: LeasedJob) -> LeasedJob:
    engine.run(engine.release([Release(job.seq, job.token, 0, Failure("E", "no"))], NODE))
    return one()


@pytest.mark.django_db
class TestPlain:
    def test_a_later_delivery_goes_on_behind_what_is_done(self) -> None:
        job = start()
        charge, pack, nothing = Calls({"id": 7}, "wrong"), Calls(RuntimeError("no"), ("a", 1)), Calls(None)
        control = JobControl(job, NODE)
        key = control.step_key("charge")
        assert control.step("charge", charge, 3, key="x") == {"id": 7}
        assert control.step("tell", nothing) is None
        with pytest.raises(RuntimeError):
            control.step("pack", pack)
        control = JobControl(again(job), NODE)
        assert control.step_key("charge") == key != control.step_key("pack")
        assert control.step("charge", charge) == {"id": 7}
        assert control.step("tell", nothing) is None
        assert control.step("pack", pack) == ["a", 1]
        assert (charge.count, nothing.count, pack.count) == (1, 1, 2)
        found = Job.objects.get().steps.order_by("done_at").values_list("name", "value", "delivery")
        assert list(found) == [("charge", {"id": 7}, 1), ("tell", None, 1), ("pack", ["a", 1], 2)]

    def test_the_same_name_again_is_another_step_and_one_may_be_tried_in_place(self) -> None:
        job = start()
        numbers = Calls(1, 2, 3, 4)
        control = JobControl(job, NODE)
        assert [control.step("page", numbers) for _ in range(3)] == [1, 2, 3]
        control = JobControl(again(job), NODE)
        assert [control.step("page", numbers) for _ in range(4)] == [1, 2, 3, 4]
        assert set(JobStep.objects.values_list("name", flat=True)) == {"page", "page#2", "page#3", "page#4"}
        assert control.step("mail", Calls(OSError(), OSError(), "sent"), retries=2) == "sent"
        stubborn = Calls(OSError("down"))
        with pytest.raises(OSError, match="down"):
            control.step("other", stubborn, retries=2)
        assert stubborn.count == 3

    @pytest.mark.parametrize("over", [False, True])
    def test_a_name_that_was_a_sleep_is_no_step(self, clock: Clock, over: bool) -> None:
        job, never = start(), Calls(1)
        with pytest.raises(Suspended):
            JobControl(job, NODE).sleep("pause", seconds=9)
        JobControl(job, NODE).step("charge", int)
        clock.advance(seconds=10)
        control = JobControl(again(job), NODE)
        if over:
            control.sleep("pause", seconds=9)
            control = JobControl(again(control.job), NODE)
        for call in (lambda: control.step("pause", never), lambda: control.sleep("charge", seconds=1)):
            with pytest.raises(InvalidOption, match="give it another name"):
                call()
        assert never.count == 0

    @pytest.mark.parametrize("kind", ["plain", "atomic", "block"])
    def test_who_has_lost_the_lease_keeps_nothing(self, clock: Clock, kind: str) -> None:
        job = start(lease_ms=1_000)
        clock.advance(seconds=2)
        taken, control = one(node="other"), JobControl(job, NODE)
        with pytest.raises(LeaseLost), control.atomic_step("late") if kind == "block" else nullcontext():
            create = partial(Group.objects.create, name="late")
            create() if kind == "block" else control.step("late", lambda: create().pk, atomic=kind == "atomic")
        assert Group.objects.count() == (1 if kind == "plain" else 0)
        assert JobControl(taken, "other").step("late", Calls("mine")) == "mine"

    @pytest.mark.parametrize("letters", ["self", "log", "queue"])
    @pytest.mark.parametrize("failure", [Failure("E", "no"), None])
    def test_a_dead_letter_that_is_retried_goes_on(self, letters: str, failure: Failure | None) -> None:
        """Wherever it was meanwhile, and also where no attempt has failed."""
        if letters != "self":
            make("letters", type=letters)
        job = start(max_deliveries=1, exhaust_at="release", dead_letter="self" if letters == "self" else "letters")
        done = Calls("done")
        control = JobControl(job, NODE)
        for name in ("a", "b", "c"):
            control.step(name, done)
        engine.run(engine.release([Release(job.seq, job.token, 0, failure)], NODE))
        dead = DeadLetter.objects.get()
        assert dead.queue.name == ("work" if letters == "self" else "letters")
        assert engine.run(engine.redrive(dead.queue.name, [dead.seq], to="work", from_step="x"))[0].state == "no_step"
        assert engine.run(act("retry", [dead.seq], from_step="x")).conflicts == [(dead.seq, "no_step")]
        assert engine.run(act("retry", [dead.seq], from_step="b")).done == 1
        control = JobControl(one(), NODE)
        for name in ("a", "b", "c"):
            assert control.step(name, done) == "done"
        assert done.count == 5
        assert list(JobStep.objects.order_by("number").values_list("name", flat=True)) == ["a", "b", "c"]


@pytest.mark.django_db(transaction=True)
async def test_in_a_coroutine() -> None:
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    job = await sync_to_async(start)()
    control = JobControl(job, NODE)
    assert await control.astep("fetch", fetch, 1) == 2
    assert await control.astep("plain", lambda: 3) == 3
    with pytest.raises(InvalidOption, match="is a coroutine"):
        await control.astep("both", fetch, 1, atomic=True)
    control = JobControl(await sync_to_async(again)(job), NODE)
    assert await control.astep("fetch", fetch, 5) == 2


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "options"), [
    ("", {}), ("n" * 201, {}), ("a#2", {}), (7, {}), ("a", {"retries": -1}), ("a", {"retries": 101}),
    ("a", {"backoff": -1}), ("a", {"backoff": "soon"}),
])  # fmt: skip
def test_what_is_refused_before_it_runs(name: Any, options: dict[str, Any]) -> None:
    function = Calls(1)
    control = JobControl(start(), NODE)
    with pytest.raises(InvalidOption):
        control.step(name, function, **options)
    assert function.count == 0


@pytest.mark.django_db
@override_settings(LEASEQUEUE={"MAX_RESULT_BYTES": 1_000})
def test_what_a_step_may_not_return() -> None:
    control = JobControl(start(), NODE)
    large = Calls("x" * 1_001)
    with pytest.raises(PayloadTooLarge, match="'large' returned more than 1000 bytes"):
        control.step("large", large, retries=3)
    with pytest.raises(InvalidOption, match="the step 'odd' returned"):
        control.step("odd", Calls({1, 2}))
    assert large.count == 1
    assert not JobStep.objects.exists()


@pytest.mark.django_db
def test_the_bound_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.steps.MAX_STEPS", 2)
    control = JobControl(start(), NODE)
    control.step("a", Calls(1))
    control.step("b", Calls(1))
    with pytest.raises(InvalidOption, match="at most 2 steps"):
        control.step("a", Calls(1))


@pytest.mark.django_db(transaction=True)
class TestAtomic:
    def test_its_rows_and_its_record_are_one(self) -> None:
        job = start()
        control = JobControl(job, NODE)

        def fails() -> None:
            Group.objects.create(name="lost")
            raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            control.step("reserve", fails, atomic=True)
        assert not Group.objects.exists()
        make("children")
        assert control.step("order", lambda: Group.objects.create(name="kept").name, atomic=True) == "kept"
        assert control.step("fan out", lambda: len(put(2, queue="children")), atomic=True) == 2
        control = JobControl(again(job), NODE)
        assert control.step("order", fails, atomic=True) == "kept"
        assert control.step("fan out", fails, atomic=True) == 2
        assert (Group.objects.count(), Job.objects.filter(queue__name="children").count()) == (1, 2)

    def test_as_a_block(self) -> None:
        job = start()
        with pytest.raises(RuntimeError), JobControl(job, NODE).atomic_step("reserve") as step:
            Group.objects.create(name="lost")
            raise RuntimeError
        with JobControl(job, NODE).atomic_step("reserve") as step:
            assert not step.done
            step.value = (Group.objects.create(name="kept").name,)
        assert step.value == ["kept"]
        again_control = JobControl(again(job), NODE)
        with again_control.atomic_step("reserve") as step:
            assert (step.done, step.value, Group.objects.count()) == (True, ["kept"], 1)
            with pytest.raises(InvalidOption, match=r"only if not step\.done"):
                Group.objects.create(name="twice")
        with again_control.atomic_step("reserve") as step:  # another one of that name
            assert (step.done, step.value) == (False, None)
        found = JobStep.objects.order_by("name").values_list("name", "value")
        assert list(found) == [("reserve", ["kept"]), ("reserve#2", None)]

    async def test_no_block_in_a_coroutine(self) -> None:
        job = await sync_to_async(start)()
        with pytest.raises(InvalidOption, match=r"await current\(\).astep\('a', function, atomic=True\)"):
            async with JobControl(job, NODE).atomic_step("a"):
                pass
        with pytest.raises(InvalidOption, match="block in a coroutine"), JobControl(job, NODE).atomic_step("a"):
            pass

    @pytest.mark.parametrize("atomic", [False, True])
    def test_two_who_do_it_at_the_same_time_get_one_answer(self, atomic: bool) -> None:
        """Who has hung past its lease, where late ones are accepted, and who took over: the second one waits."""
        job = start(late_ack="accept")
        entered, go = threading.Event(), threading.Event()
        quick: Any = lambda: Group.objects.create(name="second").name  # noqa: E731

        def slow() -> str:
            Group.objects.create(name="first")
            entered.set()
            assert go.wait(60)
            return "first"

        def first_one() -> Any:
            if not atomic:
                return JobControl(job, NODE).step("reserve", slow)
            with JobControl(job, NODE).atomic_step("reserve") as step:
                step.value = slow()
            return step.value

        with ThreadResult(first_one) as first:
            assert entered.wait(60)
            assert JobControl(job, NODE).step("reserve", quick, atomic=atomic) == "second"
            go.set()
            assert first.value() == "second"
        assert set(Group.objects.values_list("name", flat=True)) == ({"second"} if atomic else {"first", "second"})
        assert JobStep.objects.get().value == "second"


def test_the_model_is_read_only() -> None:
    with pytest.raises(WrittenByEngine, match=r"current\(\)\.step"):
        JobStep.objects.create(seq=1)


@pytest.mark.django_db
def test_the_page_about_steps(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    names = run_page("how-to/steps.md", monkeypatch)
    leasequeue.drain()
    names["result"].refresh()
    assert (names["result"].return_value, Group.objects.get().name) == ("payment-7", "reserved for order 7")
    assert set(JobStep.objects.values_list("name", flat=True)) == {"charge", "reserve"}
    for crash in (None, "flight", "$undo flight"):
        sys.modules["shop.test_trips"].test_a_trip_without_a_hotel(leasequeue, crash)
