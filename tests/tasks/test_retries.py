"""When a failed task is tried again, and not; and which calls expire."""

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.tasks import Backoff, task
from django_leasequeue.tasks.api import InvalidTask, TaskResultDoesNotExist
from django_leasequeue.tasks.backoff import MAX_SECONDS, dump, fixed_delay, load, parse
from tests.tasks import samples
from tests.tasks.helpers import NODE, claim, run_one

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("name", "ends"), [
    ("ValueError", "failing"), ("ConnectionError", "failing"), ("RetryLater", "failing"),
    ("UnicodeError", "failed"), ("KeyError", "failed"),
])  # fmt: skip
def test_exceptions_that_are_tried_again_and_those_that_are_not(name: str, ends: str) -> None:
    samples.fail_with.using(max_attempts=3).enqueue(name)
    assert run_one() == ends


@pytest.mark.parametrize(("options", "says"), [
    ({"autoretry_for": (5,)}, "autoretry_for takes exception classes"),
    ({"dont_retry_for": "ValueError"}, "dont_retry_for takes exception classes"),
    ({"expires": 0}, "expires must be more than 0"), ({"expires": -1}, "expires must be a number of seconds from 0"),
    ({"expires": 1e300}, "expires must be 0.001 to"),
])  # fmt: skip
def test_what_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        task(**options)(samples.echo.func)  # type: ignore[call-overload]


def test_a_call_that_is_not_started_in_time_is_removed(clock: Clock) -> None:
    short = samples.echo.using(expires=timedelta(minutes=1))
    started, late, kept = short.enqueue(1), short.enqueue(2), samples.echo.enqueue(3)
    (running,) = claim()
    clock.advance(seconds=61)
    (job,) = claim()
    assert (running.key, job.key) == (started.id, kept.id)
    assert engine.run(engine.finish([engine.Ending(running.seq, running.token)], NODE)).ok == []
    with pytest.raises(TaskResultDoesNotExist):
        late.refresh()


@pytest.mark.parametrize(("given", "attempt", "seconds"), [
    (7, 1, 7), (7, 9, 7), (0, 1, 0), (timedelta(minutes=2), 1, 120), ([1, 10, 60], 1, 1), ([1, 10, 60], 2, 10),
    ([1, 10, 60], 8, 60), (Backoff("fixed", base=4), 3, 4), (Backoff("fixed", base=400, max=100), 3, 100),
    (Backoff("linear", base=3, max=8), 2, 6), (Backoff("linear", base=3, max=8), 3, 8),
    (Backoff("exponential", base=5, max=900), 1, 10), (Backoff("exponential", base=5, max=900), 3, 40),
    (Backoff("exponential", base=5, max=900), 5_000, 900), ("exponential", 2, 20), (10**9, 1, MAX_SECONDS),
])  # fmt: skip
def test_the_delay_before_the_next_attempt(given: Any, attempt: int, seconds: float) -> None:
    assert fixed_delay(parse(given), attempt) == seconds


@pytest.mark.parametrize(("kind", "low", "high"), [("exp_full_jitter", 0, 40), ("exp_equal_jitter", 20, 40)])
def test_jitter_stays_within_its_bounds_and_varies(kind: str, low: float, high: float) -> None:
    delays = [fixed_delay(Backoff(kind, base=5, max=900), 3) for _ in range(500)]
    assert all(low <= delay <= high for delay in delays)
    assert max(delays) - min(delays) > (high - low) / 2


@pytest.mark.parametrize(
    "wrong", ["fibonacci", -1, float("nan"), float("inf"), True, [], [1, -1], ["a"], {}, object(), b"abc"]
)
def test_what_is_no_backoff_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        parse(wrong)


@pytest.mark.parametrize("wrong", [{"base": -1}, {"max": "long"}, {"base": float("nan")}])
def test_a_policy_with_wrong_numbers_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        Backoff("linear", **wrong)


@pytest.mark.parametrize("given", [7, 2.5, [1, 2], "linear", Backoff("exp_full_jitter", base=1, max=2)])
def test_what_using_sets_travels_as_json_but_no_function(given: Any) -> None:
    parsed = parse(given)
    assert load(dump(parsed)) == parsed
    with pytest.raises(ValueError, match="@task"):
        dump(lambda error, result: 1)
