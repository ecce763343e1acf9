"""Unique jobs: a key that holds as its job says, and what becomes of the job that has it."""

from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import LiveJob, StoredJob, UniqueKey

from .helpers import NODE, claim, enqueue, kinds, make, one, state

pytestmark = pytest.mark.django_db


def ask(key: str = "k", **fields: Any) -> tuple[int, str, str]:
    """Enqueue a unique job; return (seq, status, state)."""
    fields.setdefault("unique_until", None if "unique_for_ms" in fields else "end")
    (answer,) = enqueue(NewJob(key=key, **fields))
    return answer.seq, answer.status.value, answer.state


def end(**ending: Any) -> int:
    job = one()
    assert engine.run(engine.finish([Ending(job.seq, job.token, **ending)], NODE)).ok == [job.seq]
    return job.seq


@pytest.mark.parametrize("until", ["start", "end"])
def test_until_its_start_or_end(queue: int, until: str) -> None:
    first, *_ = ask(unique_until=until)
    assert ask(unique_until=until) == (first, "duplicate", "ready")
    running = one()
    if until == "end":
        assert ask(unique_until=until) == (first, "duplicate", "leased")
        engine.run(engine.ack([running.seq], NODE, tokens=[running.token]))
    second, status, _ = ask(unique_until=until)
    assert (status, second != first) == ("queued", True)
    # The one that is given back has started: it does not get its key again.
    engine.run(engine.nack([running.seq], NODE, tokens=[running.token]))
    assert ask(unique_until=until) == (second, "duplicate", "ready")


def test_for_a_time(clock) -> None:
    make("work")
    first, *_ = ask(unique_for_ms=10_000)
    assert end(result="done") == first
    clock.advance(seconds=9)
    assert ask(unique_for_ms=10_000) == (first, "completed", "completed")
    # A call without a word of its own is told the same.
    assert enqueue(NewJob(key="k"))[0].seq == first
    clock.advance(seconds=1)
    second, status, _ = ask(unique_for_ms=10_000)
    assert (status, second != first) == ("queued", True)
    clock.advance(seconds=10)
    assert ask(unique_for_ms=10_000)[1] == "queued"
    assert LiveJob.objects.count() == 2


def test_replace(queue: int) -> None:
    first, *_ = ask(data=1)
    second, status, _ = ask(data=2, on_conflict="replace")
    assert (status, second != first) == ("queued", True)
    assert state(first) is None
    assert kinds(first)[-1] == "cancelled"
    assert one().data == 2
    assert ask(data=3, on_conflict="replace") == (second, "duplicate", "leased")


@pytest.mark.parametrize("conflict", ["replace", "reschedule", None])
def test_a_dead_letter_that_somebody_retried_stays(conflict: str | None) -> None:
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    first, *_ = ask(data=1)
    dead = one()
    engine.run(engine.release([Release(dead.seq, dead.token, failure=Failure("E", "no"))], NODE))
    engine.run(engine.redrive("work", [first]))
    assert ask(data=2, delay_ms=60_000, on_conflict=conflict) == (first, "duplicate", "ready")
    assert one().data == 1


def test_reschedule(clock) -> None:
    make("work")
    first, *_ = ask(data=1, delay_ms=5_000)
    assert ask(data=2, delay_ms=60_000, on_conflict="reschedule") == (first, "duplicate", "delayed")
    clock.advance(seconds=59)
    engine.run(engine.promote([StoredJob.objects.get().queue_id]))
    assert claim() == []
    assert ask(on_conflict="reschedule") == (first, "duplicate", "ready")
    assert ask(delay_ms=60_000, on_conflict="reschedule") == (first, "duplicate", "delayed")
    clock.advance(seconds=61)
    engine.run(engine.promote([StoredJob.objects.get().queue_id]))
    assert one().data == 1


def test_a_plain_job_with_the_key_is_replaced(queue: int) -> None:
    (plain,) = enqueue(NewJob(key="k", data=1))
    second, status, _ = ask(data=2, on_conflict="replace")
    assert status == "queued"
    assert state(plain.seq) is None
    assert UniqueKey.objects.get().seq == second


def test_bad_keys(queue: int) -> None:
    for key in ("", "é" * 257, "a\x00b"):
        with pytest.raises(InvalidOption):
            ask(key)
    with pytest.raises(InvalidOption):
        enqueue(NewJob(unique_until="end"))
    assert not StoredJob.objects.exists()
    assert not UniqueKey.objects.exists()
