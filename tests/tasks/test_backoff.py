from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue.tasks import Backoff
from django_leasequeue.tasks.backoff import MAX_SECONDS, dump, fixed_delay, load, parse


@pytest.mark.parametrize(
    ("given", "attempt", "seconds"),
    [
        (7, 1, 7), (7, 9, 7), (0, 1, 0), (timedelta(minutes=2), 1, 120), ([1, 10, 60], 1, 1), ([1, 10, 60], 2, 10),
        ([1, 10, 60], 8, 60), (Backoff("fixed", base=4), 3, 4), (Backoff("fixed", base=400, max=100), 3, 100),
        (Backoff("linear", base=3, max=8), 2, 6), (Backoff("linear", base=3, max=8), 3, 8),
        (Backoff("exponential", base=5, max=900), 1, 10), (Backoff("exponential", base=5, max=900), 3, 40),
        (Backoff("exponential", base=5, max=900), 5_000, 900), ("exponential", 2, 20), (10**9, 1, MAX_SECONDS),
    ],
)  # fmt: skip
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
def test_what_using_sets_travels_as_json(given: Any) -> None:
    parsed = parse(given)
    assert load(dump(parsed)) == parsed


def test_a_function_does_not_travel() -> None:
    with pytest.raises(ValueError, match="@task"):
        dump(lambda error, result: 1)
