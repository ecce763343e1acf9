"""Floors: they only rise, and only when nothing can appear below them; no job is lost by them."""

from datetime import UTC, datetime, timedelta

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.leases.floor import ConnectionFloors, Proposals, QueueLook
from django_leasequeue.models import FloorKind, Lane, LiveJob, Queue, QueueFloor
from django_leasequeue.reaper.duties import mend_floors
from django_leasequeue.reaper.duty import DutyRun
from tests.support.rows import rows

from . import helpers
from .helpers import NODE, OTHER, claim, floors, make, one, open_transaction, own_connection, put, raise_floors, seqs

READY, DELAYED, CLAIM = (int(FloorKind.READY), 0), (int(FloorKind.DELAYED), 0), (int(FloorKind.CLAIM), 0)


def drain(count: int) -> list[int]:
    numbers = put(count)
    engine.run(engine.ack(seqs(claim(count)), NODE))
    return numbers


def micros(moment) -> int:
    return round(moment.timestamp() * 1_000_000)


def pass_time(clock) -> None:
    """Let some seconds pass, in which floors are raised."""
    for _ in range(3):
        clock.advance(seconds=3)
        raise_floors()


@pytest.mark.django_db(transaction=True)
class TestFloors:
    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None, clock) -> None:
        self.queue = make("work")

    @property
    def floor(self) -> int:
        return floors(self.queue).get(READY, 0)

    def test_moves_to_the_lowest_job_that_waits_or_behind_everything_though_somebody_reads(self) -> None:
        with open_transaction() as reader:
            reader.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            reader.connection.execute("SELECT count(*) FROM leasequeue_job")
            done = drain(10)
            for _ in range(3):
                engine.run(engine.advance_floors(Proposals()))
                assert self.floor == 0, "one look only proposes"
            raise_floors()
            assert self.floor > done[-1]
            waiting = put(3)
            raise_floors()
            assert self.floor == waiting[0]
        assert seqs(claim(9)) == waiting

    def test_waits_for_every_writing_transaction_that_was_open(self) -> None:
        """A slow transaction drew its number before the floor was proposed: its job is not to end up below."""
        drain(5)
        with open_transaction() as slow:
            (early,) = slow.run(engine.enqueue("work", [NewJob(data="slow")]))
            drain(5)
            for _ in range(3):
                raise_floors()
                assert self.floor <= early.seq
            slow.connection.commit()
        assert seqs(claim(9)) == [early.seq]
        engine.run(engine.ack([early.seq], NODE))
        raise_floors()
        assert self.floor > early.seq

    def test_waits_for_the_newest_transaction_of_all(self) -> None:
        """Nothing has ended since it began: it lies beyond every snapshot's end."""
        (back,) = put()
        one()
        engine.run(engine.nack([back], NODE))
        proposals = Proposals()
        with own_connection() as reaper, open_transaction() as slow:
            for _ in range(4):
                reaper.run(engine.advance_floors(proposals))
            (early,) = slow.run(engine.enqueue("work", [NewJob(data="slow")]))
            for _ in range(5):
                reaper.run(engine.advance_floors(proposals))
                assert self.floor <= early.seq
            slow.connection.commit()
        assert seqs(claim(9)) == [back, early.seq]

    def test_a_transaction_that_wrote_before_proposes_nothing(self) -> None:
        """Its id may be older than that of another, which drew a number below."""
        drain(5)
        proposals = Proposals()
        with open_transaction() as writer:
            writer.run(engine.enqueue("other", [NewJob()]))
            assert {floor.mark for floor in writer.run(engine.advance_floors(proposals))} == {None}
            assert proposals.parameters()["ids"] == "{}"

    def test_a_number_drawn_while_the_floor_was_proposed_is_not_passed(self) -> None:
        """Nothing waits: the floor may go to the next number, but not to one read after the snapshot it rests on."""
        drain(5)
        proposals = Proposals()
        engine.run(engine.advance_floors(proposals))
        with open_transaction() as slow:
            (early,) = slow.run(engine.enqueue("work", [NewJob()]))
            (seen,) = [floor for floor in engine.run(engine.advance_floors(proposals)) if floor.kind == FloorKind.READY]
            # As if that transaction had begun between the snapshot and the reading of the sequence.
            assert seen.head > early.seq
            assert seen.low <= early.seq

    def test_it_goes_on_rising_under_steady_nacks(self) -> None:
        """A job that is given back again and again stands in its old place, far below the floor."""
        proposals = Proposals()
        first = put()[0]
        before = -1
        for _ in range(10):
            assert one().seq == first
            engine.run(engine.nack([first], NODE))
            done = put(5)
            jobs = claim(6)
            assert seqs(jobs) == [first, *done]
            engine.run(engine.ack(done, NODE))
            engine.run(engine.nack([first], NODE))
            for _ in range(2):
                engine.run(engine.advance_floors(proposals))
            assert self.floor > before
            before = self.floor
        assert before > first + 40
        assert one().seq == first

    def test_expired_and_promoted_jobs_are_found_below_it(self, clock) -> None:
        expiring = put()[0]
        one()
        delayed = put()[0]
        one()
        engine.run(engine.nack([delayed], NODE, delay_ms=20_000))
        drain(5)
        raise_floors()
        assert self.floor > delayed
        clock.advance(seconds=40)
        assert seqs(claim(9, node=OTHER)) == [expiring, delayed]

    @pytest.mark.parametrize("how", ["nack", "expiry", "promotion", "redrive"])
    def test_what_goes_to_the_back_lies_above_it(self, clock, how: str) -> None:
        options = {"max_deliveries": 1, "exhaust_at": "release", "dead_letter": "self"} if how == "redrive" else {}
        engine.run(engine.configure("work", requeue="back", **options))
        (first,) = put()
        one()
        drain(5)
        if how == "promotion":
            engine.run(engine.nack([first], NODE, delay_ms=1_000))
        raise_floors()
        if how in ("nack", "redrive"):
            engine.run(engine.nack([first], NODE))
            engine.run(engine.redrive("work", [first]))
        clock.advance(seconds=60)
        engine.run(engine.sweep([self.queue]))
        engine.run(engine.promote([self.queue]))
        place = LiveJob.objects.get()
        assert (place.lane, place.position >= self.floor) == (Lane.FRESH, True)
        assert one().seq == first

    def test_every_queue_and_rank_has_its_own(self) -> None:
        other = make("other")
        put(queue="other")
        drain(5)
        raise_floors(other)
        assert (self.floor, floors(other)[READY] > 0) == (0, True), "of the queue that was asked for alone"
        low, high = helpers.enqueue(NewJob(priority=0), NewJob(priority=9))
        assert one().seq == high.seq
        raise_floors()
        assert floors(self.queue)[0, -9] > high.seq
        assert floors(self.queue)[READY] <= low.seq
        engine.run(engine.nack([high.seq], NODE))
        assert seqs(claim(9)) == [high.seq, low.seq]

    def test_its_rows_are_added_and_never_changed_and_those_that_were_passed_go(self) -> None:
        proposals, known = Proposals(), {}
        for _ in range(30):
            drain(2)
            engine.run(engine.advance_floors(proposals))
            for row in QueueFloor.objects.all():
                assert known.setdefault(row.pk, (row.kind, row.value)) == (row.kind, row.value)
        assert QueueFloor.objects.filter(kind=FloorKind.READY).count() < 5 < len(known)

    # Of due times: of delayed jobs and of claims.
    def test_those_of_delayed_jobs_never_pass_now(self, clock) -> None:
        helpers.enqueue(NewJob(delay_ms=3_600_000))
        pass_time(clock)
        assert 0 < floors(self.queue)[DELAYED] <= micros(clock.now)
        soon = helpers.enqueue(NewJob(delay_ms=1))[0].seq
        clock.advance(seconds=1)
        assert seqs(claim(9)) == [soon]

    def test_a_scheduled_job_and_a_claim_of_a_slow_transaction_are_found(self, clock) -> None:
        (early,) = put()
        with open_transaction() as slow:
            slow.run(engine.claim("work", NODE, lease_ms=500))
            (scheduled,) = slow.run(engine.enqueue("work", [NewJob(delay_ms=500)]))
            pass_time(clock)
            slow.connection.commit()
        assert seqs(claim(9, node=OTHER)) == [early, scheduled.seq]

    def test_short_and_shortened_leases_after_it_moved_expire_in_time(self, clock) -> None:
        numbers = put(2)
        shortened = one(lease_ms=600_000)
        pass_time(clock)
        assert 0 < floors(self.queue)[CLAIM] <= micros(clock.now)
        one(lease_ms=100)
        engine.run(engine.extend([shortened.seq], NODE, 100))
        clock.advance(seconds=0.2)
        assert sorted(seqs(claim(9, node=OTHER))) == numbers


@pytest.mark.django_db(transaction=True)
class TestAServerThatLies:
    """A clock that goes back, a server that draws numbers once more, a floor that is wrong for whatever reason."""

    @pytest.fixture(autouse=True)
    def _queue(self, transactional_db: None, clock) -> None:
        self.queue = make("work", lease_ms=10_000)

    def test_jobs_that_are_due_after_the_clock_went_back_come(self, clock) -> None:
        put(run_at=clock.now + timedelta(seconds=1))
        pass_time(clock)
        engine.run(engine.promote([self.queue]))
        engine.run(engine.ack(seqs(claim(9)), NODE))
        pass_time(clock)
        clock.advance(hours=-1)
        late = put(run_at=clock.now + timedelta(seconds=1))
        pass_time(clock)
        assert engine.run(engine.promote([self.queue])) == 1
        assert seqs(claim(9)) == late

    def test_leases_that_end_after_the_clock_went_back_are_swept(self, clock) -> None:
        put(2)
        engine.run(engine.ack([one().seq], NODE))
        pass_time(clock)
        clock.advance(hours=-1)
        lost = one()
        for _ in range(2):
            pass_time(clock)
        engine.run(engine.sweep([self.queue]))
        assert seqs(claim(9)) == [lost.seq]

    def test_what_one_server_said_counts_for_nothing_on_another(self) -> None:
        """As after a failover to a standby that has not seen the last numbers."""
        proposals = Proposals()
        with own_connection() as gone:
            known = put(1)
            engine.run(engine.ack(seqs(claim(9)), NODE))
            lost = drain(5)
            for _ in range(2):
                gone.run(engine.advance_floors(proposals))
        rows(QueueFloor).delete()
        with own_connection() as standby:
            standby.connection.execute("SELECT setval('leasequeue_job_seq_seq', %s)", known)
            for _ in range(3):
                standby.run(engine.advance_floors(proposals))
            assert put(1) == lost[:1]
        assert seqs(claim(9)) == lost[:1]

    @pytest.mark.parametrize(("later", "seconds"), [(1, 0.0), (0, 31.0)], ids=["another server", "half a minute"])
    def test_what_a_claimer_forgets(self, later: int, seconds: float) -> None:
        now, start = 0.0, datetime(2030, 1, 1, tzinfo=UTC)
        floors = ConnectionFloors(lambda: now)
        look = QueueLook(self.queue, "work", "queue", True, 0, False, True, [0], [0], [50], 50, 10, 100, 7, start, None)
        for _ in range(3):
            floors.note([look])
        assert floors.parameters()["floors"] == "{50}"
        now = seconds
        floors.note([look._replace(started=start + timedelta(seconds=later), proposed=[1])])
        assert floors.parameters()["floors"] == "{}"

    @pytest.mark.parametrize("kind", [FloorKind.READY, FloorKind.DELAYED, FloorKind.CLAIM])
    def test_a_floor_above_a_waiting_job_is_lowered(self, clock, caplog, kind: FloorKind) -> None:
        ready = put(1)
        engine.run(engine.advance_floors(Proposals()))
        if kind == FloorKind.CLAIM:
            one()
        if kind == FloorKind.DELAYED:
            claim(9)
            ready = put(run_at=clock.now + timedelta(seconds=1))
        rows(QueueFloor).create(queue_id=self.queue, kind=kind, value=2**61, made_at=clock.now)
        assert claim(9) == []
        (mended,) = engine.run(engine.mend_floors())
        assert (mended.queue, mended.kind, mended.value) == ("work", kind, 2**61)
        assert engine.run(engine.mend_floors([self.queue])) == []
        rows(QueueFloor).create(queue_id=self.queue, kind=kind, value=2**61, made_at=clock.now)
        with own_connection() as reaper:
            mend_floors(DutyRun(reaper.connection, "default"))
        assert f"stood above a waiting row, at {2**61} above" in caplog.text
        assert Queue.objects.get().floors_mended == 2
        clock.advance(seconds=10.5)
        engine.run(engine.sweep([self.queue]))
        engine.run(engine.promote([self.queue]))
        assert ready[0] in seqs(claim(9))
