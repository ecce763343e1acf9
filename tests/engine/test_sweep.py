"""What a sweep takes at once, and that it finds what was renewed in part."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.leases import sweep
from django_leasequeue.engine.topics import messages
from django_leasequeue.models import Claim

from .helpers import NODE, claim, one, put, seqs, state


@pytest.fixture
def claims(queue: int, clock) -> list[list[int]]:
    """Five claims of ten jobs that have expired, the oldest first."""
    put(50)
    taken = []
    for _ in range(5):
        taken.append(seqs(claim(10)))
        clock.advance(seconds=1)
    clock.advance(seconds=60)
    return taken


def test_one_statement_stops_after_so_many_jobs(queue, claims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CLAIMED_JOBS", 15)
    swept = engine.run(engine.sweep([queue], rounds=1))
    assert sorted(job.seq for job in swept) == claims[0] + claims[1], "whole claims, the oldest"
    assert Claim.objects.count() == 3


def test_a_sweep_goes_on_until_nothing_is_left(queue, claims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CLAIMED_JOBS", 1)
    swept = engine.run(engine.sweep([queue]))
    assert sorted(job.seq for job in swept) == sorted(seq for taken in claims for seq in taken)
    assert not Claim.objects.exists()


def test_a_renewed_claim_does_not_hide_its_job_that_has_run_out(queue, clock) -> None:
    put(2)
    first, second = claim(2)
    engine.run(engine.extend([first.seq], NODE, 5_000, tokens=[first.token]))
    clock.advance(seconds=6)
    assert engine.run(messages.renew_claim(queue, second.token, 600_000)) == 1
    assert [job.seq for job in engine.run(engine.sweep([queue]))] == [first.seq]
    assert state(second.seq) == "leased"
    clock.advance(seconds=599)
    assert one().seq == first.seq
    clock.advance(seconds=2)
    assert {job.seq for job in engine.run(engine.sweep([queue]))} == {second.seq}
