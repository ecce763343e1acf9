"""Django's task signals and ours: who is told what, and that nobody can break anything."""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import TestCase

from django_leasequeue import engine
from django_leasequeue import signals as job_signals
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import LeaseLost
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks import LeaseQueueBackend, task
from django_leasequeue.tasks import signals as signals_module
from django_leasequeue.tasks.api import TASKS_LOGGER, InvalidTask, TaskResultStatus, task_signals
from tests.support.heard import connected, hearing
from tests.tasks import samples
from tests.tasks.helpers import claim, run_all, run_one

pytestmark = pytest.mark.django_db

Heard = list[tuple[str, Any]]


@pytest.fixture
def heard() -> Iterator[Heard]:
    told: Heard = []
    words = {getattr(task_signals, f"task_{word}"): word for word in ("enqueued", "started", "finished")}

    def receive(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        assert sender is LeaseQueueBackend
        told.append((words[signal], task_result))
        if words[signal] == "finished":
            told.append(("current", sys.exc_info()[1]))

    with ExitStack() as stack:
        for signal in words:
            stack.enter_context(connected(signal, receive))
        yield told


@pytest.fixture
def ours() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    with hearing({word: getattr(job_signals, word) for word in ("started", "completed", "failing", "failed")}) as told:
        yield told


def raise_it(**_: Any) -> None:
    raise RuntimeError("a broken receiver")


@pytest.mark.parametrize("task", [samples.echo, samples.aecho])
def test_the_life_of_a_task_that_succeeds(task: Any, heard: Heard, clock: Clock) -> None:
    result = task.using(priority=2).enqueue("word")
    run_one()
    assert [name for name, _ in heard] == ["enqueued", "started", "finished", "current"]
    enqueued, started, finished = (heard[number][1] for number in range(3))
    assert enqueued is result
    assert (started.id, started.status, started.worker_ids) == (result.id, TaskResultStatus.RUNNING, ["worker-1"])
    assert (finished.id, finished.status, finished.return_value) == (result.id, TaskResultStatus.SUCCESSFUL, "word")
    assert (finished.finished_at, finished.args, finished.task.priority) == (clock.now, ["word"], 2)
    assert heard[3][1] is None
    heard.clear()
    results = task.enqueue_many([(1,), (2,)])
    assert [told for _, told in heard] == results, "many calls are told one by one"


def test_a_task_is_finished_when_it_is_not_tried_again(heard: Heard, clock: Clock) -> None:
    samples.fail_twice.enqueue()
    run_one()
    clock.advance(minutes=1)
    run_one()
    assert [name for name, _ in heard] == ["enqueued", "started", "started", "finished", "current"]
    finished, current = heard[3][1], heard[4][1]
    assert (finished.status, finished.attempts) == (TaskResultStatus.FAILED, 2)
    assert [error.exception_class for error in finished.errors] == [ValueError, ValueError]
    # As in Django's own backends: error trackers look for the current exception.
    assert (type(current), str(current)) == (ValueError, "it broke")


@pytest.mark.django_db(transaction=True)
def test_a_task_whose_worker_died_at_its_last_attempt_is_not_told_as_finished(heard: Heard, clock: Clock) -> None:
    stalled: list[str] = []
    with connected(job_signals.stalled, lambda state, **_: stalled.append(state)):
        result = samples.echo.using(max_attempts=1).enqueue("word")
        claim(node="dies")
        clock.advance(minutes=10)
        assert claim() == []
    result.refresh()
    assert (result.status, stalled) == (TaskResultStatus.FAILED, ["dead"])
    assert [error.exception_class for error in result.errors] == [LeaseLost]
    assert "the lease expired" in result.errors[0].traceback
    assert [name for name, _ in heard] == ["enqueued"]


def test_broken_receivers_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        for signal in (
            task_signals.task_enqueued, task_signals.task_started, task_signals.task_finished,
            job_signals.started, job_signals.completed,
        ):  # fmt: skip
            stack.enter_context(connected(signal, raise_it))
        samples.echo.enqueue("word")
        samples.echo.enqueue_many([("word",)])
        assert [run_one(), run_one()] == ["completed", "completed"]
    assert not LiveJob.objects.exists()
    assert "a broken receiver" in caplog.text


def test_nobody_listening_costs_no_result_but_djangos_log_lines_are_written(monkeypatch: Any, caplog: Any) -> None:
    made: list[Any] = []
    real = signals_module.make_result
    monkeypatch.setattr(signals_module, "make_result", lambda *args, **more: made.append(args) or real(*args, **more))
    caplog.set_level(logging.DEBUG, TASKS_LOGGER)
    samples.echo.enqueue()
    samples.aecho.enqueue()
    assert [run_one(), run_one()] == ["completed"] * 2
    caplog.clear()
    result = samples.fail_for_good.enqueue()
    run_one()
    assert made == []
    lines = [record for record in caplog.records if record.name == TASKS_LOGGER]
    assert [record.levelno for record in lines] == [logging.DEBUG, logging.INFO, logging.ERROR]
    assert all(result.id in record.getMessage() for record in lines)
    assert [record.getMessage().rpartition("state=")[2] for record in lines[1:]] == ["RUNNING", "FAILED"]
    assert lines[2].exc_info is not None
    assert lines[2].exc_info[0] is samples.FailForGood


def test_our_signals_tell_every_attempt(heard: Heard, ours: list[tuple[str, dict[str, Any]]], clock: Clock) -> None:
    samples.echo.enqueue({"a": 1})
    run_one()
    samples.fail_twice.enqueue()
    run_one()
    clock.advance(minutes=1)
    run_one()
    samples.fail_for_good.enqueue()
    run_one()
    assert [name for name, _ in ours] == [
        "started", "completed", "started", "failing", "started", "failed", "started", "failed",
    ]  # fmt: skip
    completed, failing, failed = ours[1][1], ours[3][1], ours[5][1]
    assert completed["result"] == {"a": 1}
    assert (completed["queue"], completed["project"], completed["name"]) == ("default", "", "tests.tasks.samples.echo")
    assert (completed["key"], completed["seq"]) == (completed["job"].key, completed["job"].seq)
    assert ours[0][1]["node"] == "worker-1"
    assert failing["failure"].type == failed["failure"].type == "builtins.ValueError"
    assert failing["available_at"] > failing["job"].claimed_at
    ours.clear()
    heard.clear()
    engine.run(engine.enqueue("default", [NewJob(key="id-1", name="tests.tasks.samples.gone", max_deliveries=1)]))
    assert run_one() == "dead"
    assert (heard, [name for name, _ in ours]) == ([], ["failed"]), "a task that is not there is told to ours only"


class Async(TestCase):
    async def test_enqueued(self) -> None:
        told: list[Any] = []

        async def receive(task_result: Any, **_: Any) -> None:
            told.append(task_result)

        with connected(task_signals.task_enqueued, receive), connected(task_signals.task_enqueued, raise_it):
            result = await samples.aecho.aenqueue(1)
            many = await samples.aecho.aenqueue_many([(2,)])
        assert told == [result, *many]


@pytest.mark.parametrize(("task", "words"), [
    (samples.echo, ["started", "completed"]), (samples.aecho, ["started", "completed"]),
    (samples.fail, ["started", "failing", "started", "failed"]),
])  # fmt: skip
def test_the_sender_of_our_signals_is_the_task(task: Any, words: list[str], clock: Clock) -> None:
    told: list[tuple[str, str, str]] = []

    def hear(word: str) -> Any:
        return lambda sender, name, **_: told.append((word, sender.module_path, name))

    with ExitStack() as stack:
        for word in ("started", "completed", "failing", "failed"):
            stack.enter_context(connected(getattr(job_signals, word), hear(word), sender=task))
        task.using(priority=2, max_attempts=2, backoff=0).enqueue("word")
        samples.add.enqueue(1)
        samples.fail_for_good.enqueue()
        run_all()
    assert told == [(word, task.module_path, task.module_path) for word in words]


@pytest.mark.parametrize("task", [samples.calls_back, samples.acalls_back])
def test_callbacks_of_a_task_get_its_result_when_its_end_is_stored(task: Any, clock: Clock) -> None:
    done, failed = task.enqueue(""), task.enqueue("fail")
    run_one()
    run_one()
    assert [word for word, _ in samples.called] == ["success"], "the other one is tried again"
    clock.advance(minutes=1)
    run_one()
    found = [(word, result.id, result.status, result.attempts) for word, result in samples.called]
    assert found == [
        ("success", done.id, TaskResultStatus.SUCCESSFUL, 1),
        ("failure", failed.id, TaskResultStatus.FAILED, 2),
    ]
    assert samples.called[0][1].return_value == ""


@pytest.mark.parametrize("word", ["break the callback", "exit"])
def test_an_error_of_a_callback_is_logged_and_changes_nothing(word: str, caplog: pytest.LogCaptureFixture) -> None:
    result = samples.calls_back.enqueue(word)
    run_one()
    result.refresh()
    assert result.return_value == word
    assert "A callback of task tests.tasks.samples.calls_back raised" in caplog.text


@pytest.mark.parametrize("name", ["on_success", "on_failure"])
@pytest.mark.parametrize("callback", ["shop.tasks.tell", 5, lambda: None, samples.echo, samples.acalls_back.func])
def test_a_callback_that_takes_no_result_is_refused(name: str, callback: Any) -> None:
    with pytest.raises(InvalidTask, match=f"{name} must be a plain function that takes the task's result alone"):
        task(**{name: callback})(samples.echo.func)
