"""The life cycle of leases against a small model: whatever the order of calls, the engine and the model agree."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.engine.clock import Clock, hold
from django_leasequeue.engine.upkeep.verify import snapshot, verify
from django_leasequeue.models import Claim, FloorKind, JobState, Lane, LiveJob, Ready

from .helpers import floors, own_connection, raise_floors

NODES = st.sampled_from(["alice", "bob"])
SIZES = st.integers(1, 4)
MS = st.sampled_from([0, 400, 1_000, 5_000])
LEASES = st.sampled_from([100, 1_000, 5_000, 60_000])
HOW = st.sampled_from(["finish", "fail", "release", "unstarted", "extend", "extend"])
STATES = {int(state): state.label for state in JobState}


@dataclass
class Modelled:
    seq: int
    rank: int
    position: int
    state: str
    key: str | None = None
    limit: int = 0
    deliveries: int = 0
    available_at: datetime | None = None
    expires_at: datetime | None = None
    ttl_until: datetime | None = None
    node: str | None = None
    claim: int | None = None
    deadline: datetime | None = None
    tokens: list[tuple[str, int]] = field(default_factory=list)

    def facts(self) -> tuple[Any, ...]:
        return (
            self.state, self.rank, self.position, self.deliveries, self.available_at, self.expires_at, self.node,
            self.claim, self.deadline,
        )  # fmt: skip


class LifeCycle(RuleBasedStateMachine):
    """One queue with options of its own an example; the clock stands still unless a rule moves it."""

    number = 0

    def __init__(self) -> None:
        super().__init__()
        self.holding = hold(Clock(datetime(2030, 1, 1, tzinfo=UTC)))
        self.clock = self.holding.__enter__()
        LifeCycle.number += 1
        self.queue = f"machine-{LifeCycle.number}"
        self.jobs: dict[int, Modelled] = {}
        self.gone: set[int] = set()
        self.paused = False

    def teardown(self) -> None:
        self.holding.__exit__(None, None, None)

    @property
    def now(self) -> datetime:
        return self.clock.now

    def run(self, operation: Any) -> Any:
        return engine.run(operation)

    @initialize(
        requeue=st.sampled_from(["original", "back"]),
        order=st.sampled_from(["desc", "asc", "none"]),
        limit=st.integers(0, 3),
        exhaust_at=st.sampled_from(["claim", "release"]),
        dead_letter=st.sampled_from([None, "self"]),
        late_ack=st.sampled_from(["reject", "accept"]),
        dedup_until=st.sampled_from(["terminal", "claimed"]),
    )
    def make(self, limit: int, order: str, **options: Any) -> None:
        self.options = {"max_deliveries": limit, "priority_order": order, **options}
        self.run(engine.create(self.queue, lease_ms=2_000, **self.options))
        self.queue_id = self.run(engine.get(self.queue)).id
        for priority in (0, 5, 0):
            self.enqueue(2, priority, 0, None, None, None)
        self.claim("alice", 3, None, None)

    # What the model does by itself.

    def waiting(self, state: str) -> list[Modelled]:
        return sorted(
            (job for job in self.jobs.values() if job.state == state), key=lambda job: (job.rank, job.position)
        )

    def limit_of(self, job: Modelled) -> int:
        """A job's own limit holds in every queue, the queue's where it keeps dead letters."""
        if job.limit >= 0:
            return job.limit
        return 0 if self.options["dead_letter"] is None else int(self.options["max_deliveries"])

    def used_up(self, job: Modelled, exhaust_at: str) -> bool:
        return self.options["exhaust_at"] == exhaust_at and 1 <= self.limit_of(job) <= job.deliveries

    def to_the_back(self, jobs: list[Modelled]) -> None:
        """New positions are the database's; the model only asks that they are new, and behind all others.

        A job that died meanwhile keeps its place.
        """
        if self.options["requeue"] != "back":
            return
        jobs = [job for job in jobs if job.state == "ready"]
        last = max((job.position for job in self.jobs.values()), default=0)
        found = dict(LiveJob.objects.filter(pk__in=[job.seq for job in jobs]).values_list("seq", "position"))
        for job in jobs:
            if job.seq in found:  # else it was over, too, and went at once
                assert found[job.seq] > last
                job.position = found[job.seq]

    def release(self, job: Modelled, *, delay: int = 0, dies: bool) -> None:
        job.node = job.claim = job.deadline = None
        if dies:
            job.state, job.expires_at = "dead", None
        elif delay:
            job.state, job.available_at = "delayed", self.now + timedelta(milliseconds=delay)
        else:
            job.state = "ready"

    def sweep_model(self) -> list[Modelled]:
        late = [job for job in self.waiting("leased") if job.deadline is not None and job.deadline < self.now]
        for job in late:
            self.release(job, dies=self.used_up(job, "release"))
        self.to_the_back(late)
        return late

    def promote_model(self) -> list[Modelled]:
        due = [job for job in self.waiting("delayed") if job.available_at is not None and job.available_at <= self.now]
        due.sort(key=lambda job: (job.available_at, job.seq))
        for job in due:
            job.state, job.available_at = "ready", None
        self.to_the_back(due)
        if self.options["requeue"] == "back":
            places = [job.position for job in due if LiveJob.objects.filter(pk=job.seq).exists()]
            assert places == sorted(places), "at the back in the order of their due times"
        return due

    def expire_model(self) -> list[int]:
        over = [
            job.seq
            for job in self.jobs.values()
            if job.state != "leased" and job.expires_at is not None and job.expires_at <= self.now
        ]
        self.forget(over)
        return over

    def forget(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.jobs[seq]
        self.gone.update(seqs)

    # What a caller may do.

    @rule(
        count=st.integers(1, 4), priority=st.integers(-1, 10), delay=MS, key=st.sampled_from([None, None, "a", "b"]),
        limit=st.sampled_from([None, None, 0, 1, 2]), ttl=st.sampled_from([None, None, 3_000, 60_000]),
    )  # fmt: skip
    def enqueue(
        self, count: int, priority: int, delay: int, key: str | None, limit: int | None, ttl: int | None
    ) -> None:
        taken = next((job for job in self.jobs.values() if key is not None and job.key == key), None)
        job = NewJob(priority=priority, delay_ms=delay, key=key, max_deliveries=limit, ttl_ms=ttl)
        answers = self.run(engine.enqueue(self.queue, [job] * count))
        for index, answer in enumerate(answers):
            if key is not None and (taken or index):
                assert answer.status == "duplicate"
                assert answer.seq == (taken.seq if taken else answers[0].seq)
                continue
            assert answer.status == "queued"
            assert answer.seq > max([*self.jobs, *self.gone], default=0)
            clamped = min(max(priority, 0), 9)
            self.jobs[answer.seq] = Modelled(
                answer.seq,
                {"desc": -clamped, "asc": clamped, "none": 0}[str(self.options["priority_order"])],
                answer.seq,
                "delayed" if delay else "ready",
                key,
                -1 if limit is None else limit,
                available_at=self.now + timedelta(milliseconds=delay) if delay else None,
                expires_at=None if ttl is None else self.now + timedelta(milliseconds=ttl),
            )
            self.jobs[answer.seq].ttl_until = self.jobs[answer.seq].expires_at

    @rule(node=NODES, size=SIZES, lease=st.none() | LEASES, grace=st.sampled_from([None, 2_000]))
    def claim(self, node: str, size: int, lease: int | None, grace: int | None) -> None:
        jobs = self.run(engine.claim(self.queue, node, size, lease_ms=lease, grace_ms=grace))
        if self.paused:
            assert jobs == []
            return
        self.sweep_model()
        self.promote_model()
        over = self.expire_model()
        if over and LiveJob.objects.filter(pk__in=over).exists():
            self.run(engine.expire([self.queue_id]))  # what was leased until now goes at the next look
        ready = self.waiting("ready")
        if any(self.used_up(job, "claim") for job in ready[:size]):
            for job in ready:
                if self.used_up(job, "claim"):
                    self.release(job, dies=True)
        expected = self.waiting("ready")[:size]
        note(f"claimed {[job.seq for job in jobs]}")
        assert [job.seq for job in jobs] == [job.seq for job in expected]
        for job, mine in zip(jobs, expected, strict=True):
            mine.deliveries += 1
            mine.state, mine.node, mine.claim = "leased", node, job.token
            mine.deadline = self.now + timedelta(milliseconds=lease or 2_000)
            assert (job.deliveries, job.deadline, job.rank) == (mine.deliveries, mine.deadline, mine.rank)
            assert (node, job.token) not in mine.tokens
            mine.tokens.append((node, job.token))
            if mine.ttl_until is not None:
                mine.expires_at = max(mine.ttl_until, mine.deadline + timedelta(milliseconds=grace or 0))
            if self.options["dedup_until"] == "claimed":
                mine.key = None

    def outcome(self, job: Modelled, node: str, token: int | None) -> str:
        if job.state != "leased":
            return "not_held"
        if token is not None and job.claim != token:
            return "stale_token"
        if job.node != node:
            return "not_held"
        if job.deadline is not None and job.deadline < self.now and self.options["late_ack"] == "reject":
            return "expired"
        return "ok"

    def seen(self) -> list[int]:
        """The jobs that were claimed at least once."""
        return sorted(seq for seq, job in self.jobs.items() if job.tokens)

    @precondition(lambda self: self.seen())
    @rule(data=st.data(), how=HOW, ms=MS, lease=LEASES)
    def settle_in_time(self, data: st.DataObject, how: str, ms: int, lease: int) -> None:
        self.settle(data, how, ms, lease)

    @precondition(lambda self: self.seen())
    @rule(data=st.data(), how=HOW, ms=MS, lease=LEASES, late=st.sampled_from([100, 101, 2_000, 2_001]))
    def settle_late(self, data: st.DataObject, how: str, ms: int, lease: int, late: int) -> None:
        self.clock.advance(milliseconds=late)
        self.settle(data, how, ms, lease)

    def settle(self, data: st.DataObject, how: str, ms: int, lease: int) -> None:
        """By the holder or a late one, with the token of this or an earlier delivery, or with none."""
        job = self.jobs[data.draw(st.sampled_from(self.seen()))]
        node, token = data.draw(st.sampled_from(job.tokens))
        token = data.draw(st.sampled_from([token, token, None]))
        expected = self.outcome(job, node, token)
        note(f"{how} {job.seq} by {node} with {token}: {expected}")
        if how in ("finish", "fail"):
            failure = Failure("Broken") if how == "fail" else None
            settled = self.run(engine.finish([Ending(job.seq, token, failure=failure)], node))
        elif how == "extend":
            settled = self.run(engine.extend([job.seq], node, lease, tokens=None if token is None else [token]))
        else:
            release = Release(job.seq, token, ms)
            settled = self.run(engine.release([release], node, unstarted=how == "unstarted"))
        assert settled.outcomes == {job.seq: expected}
        if expected == "ok":
            getattr(self, f"{how}_model")(job, ms=ms, lease=lease)

    def finish_model(self, job: Modelled, **_: int) -> None:
        self.forget([job.seq])

    fail_model = finish_model

    def release_model(self, job: Modelled, *, ms: int, **_: int) -> None:
        self.release(job, delay=ms, dies=self.used_up(job, "release"))
        if not ms:
            self.to_the_back([job])

    def unstarted_model(self, job: Modelled, *, ms: int, **_: int) -> None:
        self.release(job, delay=ms, dies=False)
        job.deliveries -= 1
        if not ms:
            self.to_the_back([job])

    def extend_model(self, job: Modelled, *, lease: int, **_: int) -> None:
        job.deadline = self.now + timedelta(milliseconds=lease)
        if job.ttl_until is not None:
            grace = timedelta(milliseconds=Claim.objects.get(token=job.claim, seqs__contains=[job.seq]).grace_ms)
            job.expires_at = max(job.ttl_until, job.deadline + grace)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
        takes = job.state in ("ready", "delayed")
        assert self.run(engine.cancel(self.queue, seqs=[job.seq])) == ([(job.seq, job.key)] if takes else [])
        if takes:
            self.forget([job.seq])

    @precondition(lambda self: any(job.state == "dead" for job in self.jobs.values()))
    @rule(delay=MS)
    def redrive(self, delay: int) -> None:
        dead = [job for job in self.jobs.values() if job.state == "dead"][:2]
        answers = self.run(engine.redrive(self.queue, [job.seq for job in dead], delay_ms=delay))
        assert [answer.seq for answer in answers] == [job.seq for job in dead]
        last = max((job.position for job in self.jobs.values()), default=0)
        for job in dead:
            self.release(job, delay=delay, dies=False)
            job.deliveries = 0
            job.position = LiveJob.objects.get(pk=job.seq).position
            assert job.position > last

    @rule(ms=st.sampled_from([1, 100, 1_000, 2_001, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(milliseconds=ms)

    @rule(duty=st.sampled_from(["sweep", "promote", "expire", "floors"]))
    def reap(self, duty: str) -> None:
        if duty == "sweep":
            swept = self.run(engine.sweep([self.queue_id]))
            assert {(job.seq, job.state) for job in swept} == {(job.seq, job.state) for job in self.sweep_model()}
        elif duty == "promote":
            assert self.run(engine.promote([self.queue_id])) == len(self.promote_model())
        elif duty == "expire":
            assert self.run(engine.expire([self.queue_id])) == len(self.expire_model())
        else:
            self.clock.advance(seconds=1.1)
            raise_floors(self.queue_id)

    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.run(engine.pause(self.queue, paused=paused))

    @rule(size=SIZES, work=st.booleans())
    def more(self, size: int, work: bool) -> None:
        """Keeps the queue busy: half of the steps would else meet an empty one."""
        if work:
            self.enqueue(size, size, 0, None, None, None)
        self.claim("bob", size, None, None)

    # What must hold after every step.

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        found = {
            job.seq: (
                STATES[job.state], job.rank, job.position, job.deliveries, job.available_at, job.expires_at, job.node,
                job.claim, job.deadline,
            )
            for job in LiveJob.objects.filter(queue__name=self.queue)
        }  # fmt: skip
        assert found == {seq: job.facts() for seq, job in self.jobs.items()}

    @invariant()
    def no_ready_job_lies_below_its_floor(self) -> None:
        found = floors(self.queue_id) if self.jobs else {}
        fresh = Ready.objects.filter(queue_id=self.queue_id, lane=Lane.FRESH)
        for rank, position in fresh.values_list("rank", "position"):
            assert position >= found.get((FloorKind.READY, rank), 0)

    @invariant()
    def the_sweep_can_find_every_lease(self) -> None:
        rows = Claim.objects.filter(queue_id=self.queue_id)
        claims = {(claim.token, seq): claim for claim in rows for seq in claim.seqs}
        leased = self.waiting("leased")
        assert len(claims) == len(leased)
        for job in leased:
            claim = claims[job.claim, job.seq]
            assert (claim.deadline, claim.node) == (job.deadline, job.node)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_engine_does_what_the_model_does() -> None:
    long = os.environ.get("LEASEQUEUE_LONG_TESTS")
    run_state_machine_as_test(
        LifeCycle,
        settings=settings(
            max_examples=int(long) if long else 25,
            stateful_step_count=50,
            derandomize=not long,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate] + ([Phase.shrink] if long else []),
            suppress_health_check=list(HealthCheck),
        ),
    )
    with own_connection() as executor, snapshot(executor.connection) as reader:
        found = reader.run(verify())
    assert found.differences == []
