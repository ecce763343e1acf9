"""Large payloads, bodies and results: they stand in a storage, are read back everywhere, and go with their jobs."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.files.storage import Storage
from django.db import transaction
from django.test.utils import override_settings

from django_leasequeue import engine
from django_leasequeue.engine import Ending, NewJob
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.codec import Raw
from django_leasequeue.engine.dead.action import edit_and_retry
from django_leasequeue.engine.dead.filter import DeadFilter
from django_leasequeue.engine.dead.triage import dead_page, dead_rows
from django_leasequeue.engine.jobs import read as reads
from django_leasequeue.engine.jobs.cancel import cancel
from django_leasequeue.engine.jobs.enqueue import enqueue_staged
from django_leasequeue.engine.jobs.read import list_jobs
from django_leasequeue.engine.jobs.remove import purge
from django_leasequeue.engine.leases import settle
from django_leasequeue.engine.payloads import link_steps
from django_leasequeue.engine.store import MARK, Reference, StoredPart, is_reference
from django_leasequeue.engine.topics import log, messages
from django_leasequeue.exceptions import InvalidOption, LargePayloadLost, LargeStorageError, PayloadTooLarge
from django_leasequeue.models import JobResult, LargeObject, StoredJob
from tests.engine import helpers
from tests.engine.helpers import NODE, claim, counts, enqueue, make, one, put, run, state
from tests.large import BIG, FailingStorage, away, files, large_settings, reap
from tests.support.commands import tried
from tests.support.rows import rows

pytestmark = pytest.mark.django_db(transaction=True)
BODY = bytes(range(256)) * 20


def stored(seq: int, column: str = "data", table: str = "job") -> str:
    return str(run(f"SELECT {column}::text FROM leasequeue_{table} WHERE seq = %s", [seq])[0][0])


@pytest.fixture(autouse=True)
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path):
        make("work", dead_letter="self", max_deliveries=1, exhaust_at="release")
        yield tmp_path


def test_data_and_body_come_back_and_the_table_holds_a_reference(storage: Path) -> None:
    jobs = [NewJob("small"), NewJob(BIG), NewJob({"n": 1.0}, body=BODY), NewJob(BIG, body=BODY)]
    made = [each.seq for each in enqueue(*jobs)]
    assert [is_reference(stored(seq)) for seq in made] == [False, True, True, True]
    assert len(files(storage)) == 4
    assert not StoredJob.objects.exclude(body=None).exists()
    assert [(job.seq, job.data, job.body) for job in claim(10)] == [
        (seq, job.data, job.body) for seq, job in zip(made, jobs, strict=True)
    ]
    digest = json.loads(stored(made[1]))["$large"]["data"]["digest"]
    assert digest == hashlib.sha256(json.dumps(BIG, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize("count", [3, 150])
def test_some_among_small_ones_and_none_of_a_duplicate(storage: Path, count: int) -> None:
    enqueue(NewJob("x", key="a"))
    jobs = [NewJob(BIG + str(n) if n % 50 == 0 else n) for n in range(count)]
    enqueue(*jobs)
    assert len(files(storage)) == (count + 49) // 50
    assert enqueue(NewJob(BIG, key="a"))[0].status == "duplicate"
    reap(hours=7)
    assert len(files(storage)) == (count + 49) // 50
    assert [job.data for job in claim(200)] == ["x", *[job.data for job in jobs]]


def test_small_payloads_cost_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    fetch = engine.DjangoExecutor.fetch
    monkeypatch.setattr(engine.DjangoExecutor, "fetch", lambda *call: sent.append(call[1]) or fetch(*call))
    enqueue(NewJob("x"))
    assert sent == ["enqueue_one"]
    assert not LargeObject.objects.exists()


def test_switched_off_all_stays_in_the_database_and_large_ones_are_still_read(storage: Path) -> None:
    enqueue(NewJob(BIG))
    with override_settings(LEASEQUEUE={}):
        [answer] = enqueue(NewJob("x" + BIG, body=BODY))
        assert not is_reference(stored(answer.seq))
        assert [job.data for job in claim(2)] == [BIG, "x" + BIG]
    assert len(files(storage)) == 1


def test_a_client_cannot_forge_a_reference() -> None:
    [victim] = enqueue(NewJob(BIG))
    forged = stored(victim.seq)
    for data in (json.loads(forged), forged):
        [answer] = enqueue(NewJob(data))
        assert not stored(answer.seq).startswith(MARK)
        assert helpers.read_job(answer.seq).data == data  # type: ignore[union-attr]
    with pytest.raises(InvalidOption, match="reserved"):
        enqueue(NewJob("x", meta={"$large": 1}))
    jobs = claim(10)
    endings = [Ending(job.seq, job.token, result_json=forged, result_ttl_ms=60_000) for job in jobs]
    engine.run(engine.finish(endings, NODE))
    row = engine.run(helpers.read_result("work", seqs=[jobs[0].seq]))
    assert row.result_json == forged.strip()


def test_what_spark_stages_is_no_reference() -> None:
    [victim] = enqueue(NewJob(BIG))
    reference = stored(victim.seq)
    part = "00000000-0000-0000-0000-000000000001"
    insert = "INSERT INTO leasequeue_lakestage (part, queue, data) VALUES (%s, 'work', %s) RETURNING id"
    ((number,),) = run(insert, [part, reference])
    assert engine.run(enqueue_staged([part], number - 1, number)) == 1
    assert stored(StoredJob.objects.latest("seq").pk) == reference.strip()


def test_bounds_and_numbers_as_written() -> None:
    for size, options, said in (
        (2_000_000, {}, "MAX_BYTES"),
        (6_000, {"max_bytes": 5_000}, "5000 bytes"),
        (9_000, {"meta": {"much": "x" * 70_000}}, "65536 bytes"),
    ):
        with pytest.raises(PayloadTooLarge, match=said):
            enqueue(NewJob("x" * size, **options))
    assert not LargeObject.objects.exists()
    enqueue(NewJob("x" * 900_000), NewJob({"n": Raw("1e300")}, body=BODY))  # more than MAX_PAYLOAD_BYTES
    assert [one().data, one().data_json] == ["x" * 900_000, '{"n":1e300}']


def test_every_way_to_read_gives_the_payload() -> None:
    make("log", type="log")
    [job, record] = [enqueue(NewJob(BIG, body=BODY), queue=name)[0] for name in ("work", "log")]
    found = helpers.read_job(job.seq)
    assert (found.data, found.body) == (BIG, BODY)
    assert [(row.data, row.body) for row in engine.run(list_jobs("work")).jobs] == [(BIG, BODY)]
    page = engine.run(log.read("log"))
    assert [(row.seq, row.data, row.body) for row in page.records] == [(record.seq, BIG, BODY)]
    queue_id = found.queue_id
    assert [message.data for message in engine.run(messages.list_messages(queue_id))] == [BIG]
    assert [message.data for message in engine.run(messages.get_messages(queue_id, [job.seq]))] == [BIG]
    held = one()
    live = engine.run(messages.get_claim(queue_id, held.token))
    assert [message.data for message in live.messages] == [BIG]
    ending = Ending(job.seq, held.token, result=BIG, body=BODY, result_ttl_ms=60_000)
    assert helpers.outcomes(engine.run(engine.finish([ending], NODE))) == ["ok"]
    assert is_reference(stored(job.seq, "result", "jobresult"))
    row = engine.run(helpers.read_result("work", seqs=[job.seq]))
    assert (json.loads(row.result_json or ""), row.result_body, row.left_behind) == (BIG, BODY, False)


def test_pages_are_cut_where_large_payloads_make_them_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    make("log", type="log")
    monkeypatch.setattr(reads, "MAX_PAGE_BYTES", 3 * len(BIG))
    enqueue(*[NewJob(BIG) for _ in range(5)])
    enqueue(*[NewJob(BIG) for _ in range(5)], queue="log")
    first = engine.run(list_jobs("work"))
    assert (len(first.jobs), first.next is not None) == (2, True)
    second = engine.run(list_jobs("work", after=first.next))
    assert len({job.seq for job in first.jobs + second.jobs}) == 4
    page = engine.run(log.read("log", most_bytes=3 * len(BIG)))
    assert (len(page.records), page.more, page.cursor) == (2, True, page.records[-1].seq)


def test_a_claim_gives_no_more_than_fits_and_the_rest_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "MAX_CLAIM_BYTES", 3 * len(BIG))
    enqueue(*[NewJob(BIG) for _ in range(5)])
    sizes = [len(jobs) for jobs in iter(lambda: claim(5), [])]
    assert (sizes, counts()["leased"]) == ([2, 2, 1], 5)


class TestNothingIsLeftBehind:
    def test_after_a_rollback(self, storage: Path) -> None:
        with transaction.atomic():
            enqueue(NewJob(BIG))
            reap(hours=30)
            assert one().data == BIG, "an open transaction keeps its objects however long it takes"
            transaction.set_rollback(True)
        assert LargeObject.objects.get().seq is None
        reap()
        assert len(files(storage)) == 1
        with away():
            reap(hours=7)
        assert len(files(storage)) == 1, "while the storage is away it waits"
        reap(hours=7)
        assert files(storage) == []
        assert not LargeObject.objects.exists()

    def test_after_a_reaper_was_killed_between_removing_and_forgetting(self, storage: Path) -> None:
        [answer] = enqueue(NewJob(BIG))
        engine.run(cancel("work", seqs=[answer.seq]))
        engine.DjangoExecutor("default").fetch("large_left", {"after": 0, "size": 10})
        files(storage)[0].unlink()
        assert LargeObject.objects.get().seq == 0
        reap()
        assert not LargeObject.objects.exists()

    def test_a_producer_that_comes_too_late_is_refused(self) -> None:
        gone = rows(LargeObject).create(created_at=engine_clock.now(), size=1, storage="large", name="x", seq=0)
        reference = Reference(StoredPart(gone.pk, "large", "x", "", 1))
        with pytest.raises(LargeStorageError, match="Try again"):
            engine.run(link_steps({1: reference}))

    @pytest.mark.parametrize("end", ["ack", "ttl", "purge", "cancel", "drop", "result_ttl"])
    def test_with_the_job(self, clock: engine_clock.Clock, storage: Path, end: str) -> None:
        [answer] = enqueue(NewJob(BIG, body=BODY, ttl_ms=60_000))
        reap()
        assert len(files(storage)) == 2
        if end in ("ack", "result_ttl"):
            keep = 60_000 if end == "result_ttl" else None
            engine.run(engine.finish([Ending(answer.seq, one().token, result=BIG, result_ttl_ms=keep)], NODE))
            if keep:
                reap()
                assert len(files(storage)) == 3
                rows(JobResult).update(expires_at=engine_clock.now())
                engine.run(engine.expire_results())
        elif end == "ttl":
            clock.advance(hours=1)
            engine.run(engine.expire([StoredJob.objects.get().queue_id]))
        else:
            ways = {"purge": purge("work"), "cancel": cancel("work", seqs=[answer.seq]), "drop": engine.delete("work")}
            assert engine.run(ways[end])
        assert not StoredJob.objects.exists()
        reap()
        assert files(storage) == []
        assert not LargeObject.objects.exists()


class TestDeadLetters:
    def dead(self, queue: str = "work") -> int:
        [answer] = enqueue(NewJob(BIG, body=BODY, name="t"), queue=queue)
        engine.run(engine.nack([answer.seq], NODE, tokens=[one(queue).token]))
        return answer.seq

    def test_are_shown_retried_and_discarded(self, storage: Path) -> None:
        seq = self.dead()
        for path in files(storage):
            path.rename(path.with_suffix(".lost"))
        [row] = engine.run(dead_rows([seq], payload=True))
        assert "is not in the storage" in json.loads(row.data_json or "")["$lost"]
        for path in files(storage):
            path.rename(path.with_suffix(""))
        assert state(seq) == "dead"
        for [row] in (
            engine.run(dead_rows([seq], payload=True)),
            engine.run(dead_page(DeadFilter(), payload=True)).rows,
        ):
            assert json.loads(row.data_json or "") == BIG
        engine.run(engine.redrive("work", [seq]))
        reap()
        assert (one().data, len(files(storage))) == (BIG, 2)

    def test_in_a_topic_of_their_own_and_back_keep_their_objects(self, storage: Path) -> None:
        make("first", dead_letter="letters", max_deliveries=1, exhaust_at="release")
        self.dead("first")
        reap()
        page = engine.run(log.read("letters"))
        assert [(row.data, row.body) for row in page.records] == [(BIG, BODY)]
        [answer] = engine.run(engine.redrive("letters", [page.records[0].seq], to="first"))
        assert answer.state == "ready"
        assert answer.new_seq != page.records[0].seq
        reap()
        job = one("first")
        assert (job.data, job.body, len(files(storage))) == (BIG, BODY, 2)
        engine.run(engine.ack([job.seq], NODE))
        reap()
        assert files(storage) == []

    def test_edited_the_new_job_has_objects_of_its_own(self, storage: Path) -> None:
        seq = self.dead()
        [row] = engine.run(dead_rows([seq], payload=True))
        edited = engine.run(edit_and_retry("work", seq, data={"new": 1}, dead_at=row.dead_at))
        assert edited.seq is not None
        assert len(files(storage)) == 3
        rows(JobResult).update(expires_at=engine_clock.now())
        engine.run(engine.expire_results())
        reap()
        job = one()
        assert (job.data, job.body, len(files(storage))) == ({"new": 1}, BODY, 1)


class TestTrouble:
    def test_away_at_enqueue_or_renaming_is_an_error_and_nothing_is_added(self, storage: Path) -> None:
        with away(), pytest.raises(LargeStorageError, match="could not store") as caught:
            enqueue(NewJob(BIG))
        assert isinstance(caught.value.cause, OSError)
        with large_settings(storage, renames=True), pytest.raises(LargeStorageError, match="keep names"):
            enqueue(NewJob(BIG))
        assert files(storage) == []
        assert not StoredJob.objects.exists()

    def test_away_at_finish_is_an_error_and_the_job_is_still_held(self) -> None:
        put(1)
        job = one()
        with away(), pytest.raises(LargeStorageError):
            engine.run(engine.finish([Ending(job.seq, job.token, result=BIG)], NODE))
        assert state(job.seq) == "leased"

    def test_away_at_claim_the_job_comes_again_and_it_does_not_count(self, clock: engine_clock.Clock) -> None:
        enqueue(NewJob(BIG))
        with away(), pytest.raises(LargeStorageError):
            claim()
        assert counts()["delayed"] == 1
        enqueue(NewJob("small"))
        clock.advance(minutes=1)
        with away():
            assert [job.data for job in claim(5)] == ["small"]
        clock.advance(minutes=1)
        job = one()
        assert (job.data, job.deliveries) == (BIG, 1)

    @pytest.mark.parametrize("damage", [b"", b"x" * (len(BIG) + 2), b"y" * 10])
    def test_another_content_is_found_out_and_fails_the_attempt(self, storage: Path, damage: bytes) -> None:
        [answer] = enqueue(NewJob(BIG))
        files(storage)[0].write_bytes(damage)
        with pytest.raises(LargePayloadLost, match="SHA-256"):
            engine.run(list_jobs("work"))
        assert claim() == []
        assert state(answer.seq) == "dead"
        [row] = engine.run(dead_rows([answer.seq]))
        assert row.error_type == "django_leasequeue.exceptions.LargePayloadLost"


def test_objects_that_no_row_names_are_found_and_removed(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*options: str) -> tuple[str, int]:
        text, error = tried("leasequeue_verify", "--large", *options)
        return text, error.returncode if error else 0

    assert verify() == ("0 objects that no row names, 0 removed\n", 0)
    clock = engine_clock.Clock(engine_clock.now())
    with engine_clock.hold(clock):
        enqueue(NewJob(BIG), NewJob(BIG))
        kept, lost = LargeObject.objects.order_by("id")
        rows(LargeObject).filter(pk=lost.pk).delete()  # by a failover that has not seen the job
        assert verify()[1] == 0, "it may be on its way"
        clock.advance(days=2)
        assert verify() == (f"{lost.name}\n1 objects that no row names, 0 removed\n", 1)
        assert verify("--mend") == (f"{lost.name}\n1 objects that no row names, 1 removed\n", 0)
        assert verify() == ("0 objects that no row names, 0 removed\n", 0)
    assert [path.relative_to(storage).as_posix() for path in files(storage)] == [kept.name]
    monkeypatch.setattr(FailingStorage, "listdir", Storage.listdir)
    assert "cannot list its objects" in str(tried("leasequeue_verify", "--large")[1])
