"""Time limits: of one attempt by task, call, queue and worker, its grace, and the deadline of all attempts together."""

import asyncio
import math
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Job
from django_leasequeue.tasks import DeadlineExceeded, FailForGood, chain, emit, task
from django_leasequeue.tasks.api import TaskResultStatus
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker import GiveUp, JobControl, Worker, load_options
from django_leasequeue.worker.held import Lease
from tests.tasks import durable_tasks, isolated_samples, samples
from tests.tasks.helpers import NODE, claim, drained, leased, run_one
from tests.worker.processes import error_of, work_off
from tests.worker.support import burst

pytestmark = pytest.mark.django_db

DEADLINE = "django_leasequeue.tasks.exceptions.DeadlineExceeded"


def last_error(result: Any) -> tuple[str, str]:
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    return result.errors[-1].exception_class_path, result.errors[-1].traceback


def test_a_call_overrides_its_task_that_its_queue_and_that_all_queues() -> None:
    options = load_options(timeout=60, timeouts={"imports": 600, "endless": 0})
    timeout = Worker(options).state.timeout
    plain, own = samples.add, samples.with_options
    assert timeout(leased(plain, 1)) == timeout(leased(samples.plain, 1)) == (60.0, None)
    assert timeout(leased(plain.using(queue_name="imports"), 1)) == (600.0, None)
    assert timeout(leased(plain.using(queue_name="endless"), 1)) == (None, None)
    assert timeout(leased(own.using(queue_name="imports"))) == (30.0, None)
    assert timeout(leased(own.using(queue_name="imports", timeout=5))) == (5.0, None)
    assert timeout(leased(own.using(timeout=0))) == timeout(leased(plain.using(timeout=0), 1)) == (None, None)
    assert task(timeout=0)(samples.add.func).timeout == 0


def test_without_limits_of_its_own_a_worker_asks_the_handler_alone() -> None:
    handler = TaskHandler()
    assert Worker(load_options(), handler=handler).state.timeout == handler.timeout


@pytest.mark.parametrize(("worker", "says"), [
    ({"TIMEOUT": -1}, r"LEASEQUEUE\['WORKER'\]\['TIMEOUT'\] must be a number, 0 to 86,400; it is -1"),
    ({"TIMEOUTS": {"imports": "long"}}, r"\['TIMEOUTS'\]\['imports'\] must be a number, 0 to 86,400; it is 'long'"),
])  # fmt: skip
def test_wrong_limits_of_the_worker_are_refused(worker: dict[str, Any], says: str, settings: Any) -> None:
    settings.LEASEQUEUE = {"WORKER": worker}
    with pytest.raises(ImproperlyConfigured, match=says):
        load_options()


def test_the_grace_is_the_tasks_or_the_calls_and_also_follows_a_limit_of_the_worker() -> None:
    timeout = Worker(load_options(timeout=60)).state.timeout
    limited = samples.add.using(timeout=10, timeout_grace=timedelta(seconds=5))
    assert timeout(leased(limited, 1)) == (10.0, 15.0)
    assert timeout(leased(limited.using(timeout_grace=0), 1)) == (10.0, math.inf)
    assert timeout(leased(samples.add.using(timeout_grace=5), 1)) == (60.0, 65.0)
    assert TaskHandler().timeout(leased(samples.add.using(timeout_grace=5), 1)) == (None, None)
    with_grace = task(timeout=10, timeout_grace=5)(samples.add.func)
    assert (with_grace.timeout, with_grace.timeout_grace) == (10.0, 5.0)


def test_a_result_has_the_limits_of_its_call() -> None:
    result = samples.add.using(timeout=5, timeout_grace=2, deadline=timedelta(minutes=1)).enqueue(1)
    found: Any = samples.add.get_result(result.id).task
    assert (found.timeout, found.timeout_grace, found.deadline) == (5.0, 2.0, 60.0)
    assert samples.add.get_result(samples.add.using(timeout=0).enqueue(1).id).task.timeout == 0


class TestDeadline:
    def test_an_attempt_gets_the_time_that_is_left_if_its_timeout_is_longer(self, clock: Clock) -> None:
        handler = TaskHandler()
        samples.add.using(deadline=60).enqueue(1)
        samples.add.using(deadline=60, timeout=30).enqueue(1)
        clock.advance(seconds=20)
        free, short = claim(size=2)
        assert (handler.timeout(free), handler.timeout(free, 10.0)) == ((40.0, None), (10.0, None))
        assert (handler.timeout(short), handler.timeout(short, 10.0)) == ((30.0, None), (30.0, None))
        engine.run(engine.release([engine.Release(job.seq, job.token, 0) for job in (free, short)], NODE))
        clock.advance(seconds=25)
        assert [handler.timeout(job) for job in claim(size=2)] == [(15.0, None)] * 2

    @pytest.mark.parametrize("called", [samples.add, samples.aecho])
    def test_nothing_starts_after_it(self, called: Any, leasequeue: Harness) -> None:
        result = called.using(deadline=timedelta(minutes=1)).enqueue(1)
        leasequeue.advance(seconds=60)
        assert drained(leasequeue) == ["failed"]
        assert samples.calls == []
        kind, says = last_error(result)
        assert kind == DEADLINE
        assert "The deadline of 60 s was over before this attempt could start." in says

    @pytest.mark.parametrize("called", [samples.add, samples.aecho])
    def test_a_job_that_its_worker_has_claimed_ahead_does_not_start_after_it_either(self, called: Any) -> None:
        handler, job = TaskHandler(), leased(called.using(deadline=10), 1)
        control = JobControl(job, NODE)
        control.lease = Lease(time.monotonic() - 11, 60)
        with pytest.raises(DeadlineExceeded) as caught:
            asyncio.run(handler.arun(job, control)) if handler.is_async(job) else handler.run(job, control)
        assert (samples.calls, handler.failed(job, caught.value)[1]) == ([], GiveUp())

    def test_it_counts_from_when_a_delayed_task_may_start(self, leasequeue: Harness) -> None:
        now = leasequeue.clock.now
        late = samples.add.using(deadline=60)
        kept = [late.using(run_after=when).enqueue(1) for when in (3_600, now + timedelta(hours=1))]
        # A time that has passed gives it no less.
        kept.append(late.using(run_after=now - timedelta(hours=1)).enqueue(1))
        assert drained(leasequeue) == ["completed"]
        leasequeue.advance(hours=1, seconds=59)
        assert drained(leasequeue) == ["completed"] * 2
        lost = [late.using(run_after=when).enqueue(1) for when in (3_600, leasequeue.clock.now + timedelta(hours=1))]
        leasequeue.advance(hours=1, seconds=61)
        assert drained(leasequeue) == ["failed"] * 2
        assert [last_error(result)[0] for result in lost] == [DEADLINE] * 2
        assert all(result.refresh() is None and result.status == TaskResultStatus.SUCCESSFUL for result in kept)

    @pytest.mark.parametrize("called", [samples.fail.using(backoff=40), samples.afail.using(backoff=[40])])
    def test_a_retry_that_would_start_after_it_is_none(self, called: Any, leasequeue: Harness) -> None:
        start = leasequeue.clock.now
        result = called.using(deadline=60, max_attempts=5).enqueue()
        assert drained(leasequeue, advance=True) == ["failing", "failed"]
        assert leasequeue.clock.now == start + timedelta(seconds=40), "at once"
        kind, says = last_error(result)
        assert kind == DEADLINE
        assert "The next attempt would start after the deadline of 60 s." in says
        assert "ValueError: it broke" in says
        assert issubclass(result.errors[-1].exception_class, FailForGood)

    @pytest.mark.parametrize("called", [samples.fail, samples.afail])
    def test_the_backoff_of_the_queue_is_known_too(self, called: Any, leasequeue: Harness) -> None:
        options = {"backoff": "linear", "backoff_base_ms": 30_000, "max_deliveries": 9}
        engine.run(engine.create("linear", preset="django", **options))
        engine.run(engine.create("at-once", preset="django", backoff="none", max_deliveries=3))
        limited = called.using(deadline=60)
        result, tried = [limited.using(queue_name=name).enqueue() for name in ("linear", "at-once")]
        assert drained(leasequeue, advance=True) == ["failing", "failing", "dead", "failing", "failed"]
        assert last_error(result)[0] == DEADLINE
        assert last_error(tried)[0] == "builtins.ValueError", "its last attempt was before the deadline"

    def test_the_delay_that_a_task_asks_for_counts(self, leasequeue: Harness) -> None:
        results = [samples.retry_later.using(deadline=60, max_attempts=3).enqueue(delay) for delay in (59, 61)]
        assert drained(leasequeue) == ["failing", "failed"]
        assert last_error(results[1])[0] == DEADLINE

    def test_a_task_that_sleeps_or_waits_ends_at_it(self, leasequeue: Harness) -> None:
        start = leasequeue.clock.now
        asleep = durable_tasks.sleeper.using(deadline=timedelta(hours=1)).enqueue()
        waits = durable_tasks.waiter.using(deadline=timedelta(hours=1)).enqueue("never")
        heard = durable_tasks.waiter.using(deadline=timedelta(hours=1)).enqueue("heard")
        assert drained(leasequeue) == ["suspended"] * 3
        emit("heard", 1)
        assert drained(leasequeue, advance=True) == ["completed", "failed", "failed"]
        assert timedelta(hours=1) <= leasequeue.clock.now - start < timedelta(hours=1, seconds=1)
        assert [last_error(result)[0] for result in (asleep, waits)] == [DEADLINE] * 2
        heard.refresh()
        assert heard.return_value == 1

    def test_a_dead_letter_that_is_retried_has_it_anew(self, clock: Clock) -> None:
        result = samples.fail.using(deadline=60, max_attempts=1).enqueue()
        assert run_one() == "dead"
        clock.advance(hours=1)
        assert Job.objects.filter(key=result.id).retry() == 1
        (job,) = claim()
        assert TaskHandler().timeout(job) == (60.0, None)

    def test_of_a_step_of_a_workflow_it_counts_from_its_first_start(self, leasequeue: Harness) -> None:
        start = leasequeue.clock.now
        first = samples.add.using(run_after=timedelta(hours=1)).s(1, 2)
        result: Any = chain(first, samples.fail.using(deadline=60, backoff=40).si()).enqueue()
        assert drained(leasequeue, advance=True) == ["completed", "failing", "failed"]
        assert leasequeue.clock.now == start + timedelta(hours=1, seconds=40)
        assert last_error(samples.fail.get_result(result.members()[1].id))[0] == DEADLINE

    def test_of_a_task_that_calls_reschedule_it_counts_from_its_first_start(self, leasequeue: Harness) -> None:
        debounced = samples.add.using(deadline=60, key="sum", on_conflict="reschedule", run_after=50)
        result = debounced.enqueue(1)
        for _ in range(3):
            leasequeue.advance(seconds=40)
            assert (drained(leasequeue), debounced.enqueue(1).id) == ([], result.id)
        assert drained(leasequeue, advance=True) == ["completed"]


@pytest.mark.slow  # it waits for timeouts
@pytest.mark.django_db(transaction=True)
def test_a_running_attempt_is_timed_out_at_the_deadline() -> None:
    # From the first start on: the worker may take long to begin.
    limited: Any = {"deadline": 2, "on_conflict": "reschedule", "max_attempts": 3, "backoff": 0}
    results = [each.using(key=each.name, **limited).enqueue() for each in (samples.sleeps, samples.asleeps)]
    burst(TaskHandler(), queues=("default",))
    for result in results:
        kind, says = last_error(result)
        assert (kind, result.attempts) == (DEADLINE, 1)
        assert "The deadline of 2 s was over before the task ended." in says
        assert "JobTimeout" in says


@pytest.mark.slow  # worker processes that wait for timeouts
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_limits_hold_in_worker_processes(subprocess_env: dict[str, str], tmp_path: Path) -> None:
    once = samples.sleeps.using(max_attempts=1)
    default, longer = once.enqueue(), samples.naps.using(timeout=0).enqueue(0.6)
    hangs = samples.naps.using(max_attempts=1, timeout_grace=0.2).enqueue(600)
    ends = samples.naps.using(deadline=0.4, timeout=0, timeout_grace=0.2, backoff=0).enqueue(600)
    killed = isolated_samples.report.using(deadline=0.4, timeout=0, backoff=0).enqueue(str(tmp_path))
    work_off(subprocess_env, "--queues", "default", "--timeout", "0.3", "--timeout-grace", "3600")
    assert [error_of(result) for result in (default, hangs, ends)] == ["JobTimeout", "HardTimeout", "DeadlineExceeded"]
    assert error_of(killed) == "DeadlineExceeded"
    longer.refresh()
    assert longer.status == TaskResultStatus.SUCCESSFUL
