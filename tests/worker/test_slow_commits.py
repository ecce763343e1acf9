"""Atomic steps whose COMMIT takes its time: until it is through nobody takes the job out, and nothing else waits."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Ending, Failure, LeasedJob, Outcome, Release
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.leases.sweep import requeue_stale
from django_leasequeue.exceptions import LeaseLost
from django_leasequeue.models import DeadLetter, Job, JobState, JobStep
from django_leasequeue.tasks import chain, current, task
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from tests.engine.helpers import NODE, claim, kept_waiting, make, one, open_transaction, own_connection, put, run
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

#: Whose commits wait while a session has this lock.
GATE = 4711
AT_THE_GATE = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"


@pytest.fixture(autouse=True)
def _commits_of_groups_wait_at_the_gate(transactional_db: None) -> Iterator[None]:
    run(f"""
        CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON auth_group DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION slow_commit()""")
    yield
    run("DROP TRIGGER slow_commit ON auth_group; DROP FUNCTION slow_commit()")


@contextmanager
def at_the_gate(call: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """A call whose commit waits; the block's value lets it go on, and returns what the call did."""
    with own_connection() as gate:
        gate.connection.execute("SELECT pg_advisory_lock(%s)", [GATE])
        with ThreadResult(call) as called:
            try:
                eventually(lambda: gate.connection.execute(AT_THE_GATE, [GATE]).fetchone() == ())

                def goes_on() -> Any:
                    gate.connection.execute("SELECT pg_advisory_unlock_all()")
                    return called.value()

                yield goes_on
            finally:
                gate.connection.execute("SELECT pg_advisory_unlock_all()")


def committing(job: LeasedJob) -> AbstractContextManager[Callable[[], Any]]:
    """A step of a job that is being committed."""
    return at_the_gate(lambda: JobControl(job, NODE).step("charge", charge, atomic=True))


def charge() -> str:
    return Group.objects.create(name="charged").name


def charged() -> bool:
    return Group.objects.filter(name="charged").exists()


def seen(executor: ConnectionExecutor) -> bool:
    return executor.connection.execute("SELECT FROM auth_group WHERE name = 'charged'").fetchone() == ()


def cancels(job: LeasedJob, run: Any) -> bool:
    return bool(run(engine.cancel(job.queue, seqs=[job.seq], running=True)))


#: Each takes a leased job out, and says whether it has.
TAKING: dict[str, Callable[[LeasedJob, Any], bool]] = {
    "a cancel": cancels,
    "a purge": lambda job, run: run(engine.purge("work", states=["leased"])) > 0,
    "a failure": lambda job, run: _ok(
        job, run(engine.finish([Ending(job.seq, job.token, failure=Failure("E", "given up"))], NODE))
    ),
    "a retry": lambda job, run: _ok(
        job, run(engine.release([Release(job.seq, job.token, 0, Failure("E", "given up"))], NODE))
    ),
}  # fmt: skip


def _ok(job: LeasedJob, settled: engine.Settled) -> bool:
    return settled.outcomes[job.seq] is Outcome.OK


@pytest.mark.parametrize("beside", [0, 2], ids=["alone in its claim", "with others in its claim"])
@pytest.mark.parametrize("taking", TAKING)
def test_who_takes_a_job_out_waits_for_the_commit_of_its_step(taking: str, beside: int) -> None:
    make("work")
    put(1 + beside)
    job = claim(1 + beside)[0]
    with committing(job) as goes_on:
        with kept_waiting(lambda executor: (TAKING[taking](job, executor.run), seen(executor))) as taken:
            assert goes_on() == "charged"
            assert taken.result() == (True, True)
    assert not Job.objects.filter(seq=job.seq, state=JobState.LEASED).exists()


@pytest.mark.parametrize("taking", TAKING)
def test_a_step_waits_for_who_takes_its_job_out_and_leaves_nothing(taking: str) -> None:
    """Also where other jobs of its claim stay, so that the claim is changed and not deleted."""
    make("work")
    put(2)
    job = claim(2)[0]
    with open_transaction() as executor:
        assert TAKING[taking](job, executor.run)
        with ThreadResult(lambda: JobControl(job, NODE).step("charge", charge, atomic=True)) as step:
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            eventually(lambda: run(waits) == [(1,)])
            executor.connection.commit()
            with pytest.raises(LeaseLost):
                step.value()
    assert not charged()
    assert not JobStep.objects.exists()


def test_others_of_its_claim_go_on_and_its_lease_is_renewed(clock: Clock) -> None:
    make("work", leases_durable=False)
    put(4)
    job, acked, nacked, failed = claim(4)
    with committing(job) as goes_on:
        renewed = engine.run(engine.extend([job.seq, acked.seq, nacked.seq, failed.seq], NODE, 60_000))
        assert set(renewed.outcomes.values()) == {Outcome.OK}
        ends = [Ending(acked.seq, acked.token), Ending(failed.seq, failed.token, failure=Failure("E", "no"))]
        assert set(engine.run(engine.finish(ends, NODE)).outcomes.values()) == {Outcome.OK}
        assert engine.run(engine.nack([nacked.seq], NODE)).outcomes[nacked.seq] is Outcome.OK
        clock.advance(seconds=45)
        assert goes_on() == "charged"
    assert engine.run(engine.ack([job.seq], NODE, tokens=[job.token])).outcomes[job.seq] is Outcome.OK


@pytest.mark.parametrize("late_ack", ["reject", "accept"])
@pytest.mark.parametrize("end", [{}, {"exhaust_at": "release", "max_deliveries": 1, "dead_letter": "self"},
    {"exhaust_at": "release", "max_deliveries": 1, "dead_letter": "graves"}])  # fmt: skip
def test_a_sweep_passes_over_what_is_being_committed(clock: Clock, late_ack: str, end: dict[str, Any]) -> None:
    queue = make("work", late_ack=late_ack, **end)
    make("graves", type="log")
    put(2)
    job, other = one(), one()
    with committing(job) as goes_on:
        clock.advance(hours=1)
        assert [swept.seq for swept in engine.run(engine.sweep([queue]))] == [other.seq]
        assert engine.run(requeue_stale("work", 0)) == 0
        assert goes_on() == "charged"
    (swept,) = engine.run(engine.sweep([queue]))
    assert (swept.seq, swept.state) == (job.seq, "dead" if end else "ready")


def test_a_lease_that_ends_before_the_commit_begins_is_lost(clock: Clock) -> None:
    make("work")
    put(1)
    job = one()

    def late() -> None:
        charge()
        clock.advance(hours=1)

    with pytest.raises(LeaseLost):
        JobControl(job, NODE).step("charge", late, atomic=True)
    assert not charged()


@task(max_attempts=1)
def charging() -> None: ...


@task(atomic=True)
def charged_in_steps() -> str:
    control = current()
    assert control is not None
    return control.step("charge", charge, atomic=True)


@task
def refunding(outcome: Any) -> None:
    Group.objects.create(name=f"refunded what was charged: {charged()}")


def test_who_comes_after_a_dead_letter_sees_what_its_step_has_done(clock: Clock, leasequeue: Harness) -> None:
    chain(charging.s().on_failure(refunding.s())).enqueue()
    with committing(one("default")) as goes_on:
        clock.advance(hours=1)
        assert leasequeue.drain() == []
        assert not DeadLetter.objects.exists()
        goes_on()
    leasequeue.drain()
    assert set(Group.objects.values_list("name", flat=True)) == {"charged", "refunded what was charged: True"}


@pytest.mark.parametrize("beside", [0, 1], ids=["alone in its claim", "with others in its claim"])
def test_a_cancel_in_the_commit_of_an_atomic_task_with_steps_comes_too_late(beside: int) -> None:
    """The steps of such a task hold nothing: its end takes the job out, and would wait for who waits for them."""
    charged_in_steps.enqueue_many([()] * (1 + beside))
    job, *_ = claim(1 + beside, "default")
    with at_the_gate(lambda: TaskHandler().run(job, JobControl(job, NODE))) as goes_on:
        with kept_waiting(lambda executor: cancels(job, executor.run)) as cancel:
            assert (goes_on(), cancel.result()) == ('"charged"', False)
    assert charged()
