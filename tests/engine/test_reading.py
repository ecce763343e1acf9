"""Readers of topics: all in order of its numbers, wherever its jobs stand; and none loses its place in a crash."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.engine.topics import log, topics
from django_leasequeue.engine.topics.log import Sealer
from django_leasequeue.exceptions import LogTruncated
from django_leasequeue.models import LiveJob, StoredJob
from tests.conftest import HOME
from tests.engine import servers
from tests.engine.helpers import NODE, claim, enqueue, make, own_connection, put, seqs
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

ROUNDS = 10
TOPICS = {
    "fast": {"type": "log", "durability": "disk"},
    "sure": {"type": "log", "durability": "fsync"},
    "jobs": {"type": "queue", "durability": "disk"},
}


class Crashing:
    """A server that crashes, and a reader of its topics that lives on."""

    def __init__(self, server: TemporaryServer) -> None:
        self.server = server
        self.seals = Sealer()
        self.cursors = dict.fromkeys(TOPICS, 0)
        self.read: dict[str, list[tuple[int, int]]] = {topic: [] for topic in TOPICS}
        self.number = 0
        #: What was written for sure: its commit waited for the disk.
        self.sure: list[int] = []
        self.connect()

    def connect(self) -> None:
        def attempt() -> list[psycopg.Connection[Any]] | None:
            with suppress(psycopg.OperationalError):
                return [psycopg.connect(self.server.url(), autocommit=True) for _ in range(3)]
            return None

        self.reader, self.writer, self.other = map(ConnectionExecutor, eventually(attempt, "the server is back"))

    def write(self, executor: ConnectionExecutor, topic: str, count: int) -> None:
        jobs = [NewJob(data=self.number + n) for n in range(1, count + 1)]
        self.number += count
        executor.run(engine.enqueue(topic, jobs, create=False))
        if topic == "sure" and executor is self.writer:
            self.sure += [job.data for job in jobs]

    def look(self, topic: str, size: int = 256) -> bool:
        """Read a page; say whether there was something."""
        page = self.reader.run(log.read(topic, after=self.cursors[topic], size=size, seals=self.seals))
        self.read[topic] += [(record.seq, record.data) for record in page.records]
        assert page.cursor >= self.cursors[topic]
        self.cursors[topic] = page.cursor
        return bool(page.records)

    def crash(self, way: str) -> None:
        if way == "stop":
            self.server.stop("immediate")
            self.server.start()
        else:
            pid = self.other.connection.info.backend_pid
            os.kill(pid, signal.SIGQUIT)
            with pytest.raises(psycopg.OperationalError):
                while True:
                    self.reader.connection.execute("SELECT 1")
                    time.sleep(0.001)
        self.close()
        self.connect()

    def close(self) -> None:
        for executor in (self.reader, self.writer, self.other):
            executor.connection.close()

    def there(self, topic: str) -> list[tuple[int, int]]:
        rows = self.reader.connection.execute(
            "SELECT j.seq, j.data::text::int FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id"
            " WHERE q.name = %s ORDER BY j.seq",
            [topic],
        )
        return rows.fetchall()


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryServer]:
    with TemporaryServer(HOME, migrated=True) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            # What a commit does not wait for stays in memory: a crash loses much.
            for option, value in {"wal_writer_delay": "10s", "wal_buffers": "16MB"}.items():
                connection.execute(f"ALTER SYSTEM SET {option} = '{value}'")
        server.stop()
        server.start()
        yield server


@pytest.fixture
def crashing(server: TemporaryServer) -> Iterator[Crashing]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for topic, options in TOPICS.items():
            ConnectionExecutor(connection).run(engine.delete(topic))
            ConnectionExecutor(connection).run(engine.create(topic, preset="topics", **options))
    crashing = Crashing(server)
    yield crashing
    crashing.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stop", "quit"])
def test_nothing_is_lost_and_nothing_comes_twice(crashing: Crashing, way: str) -> None:
    dice = random.Random(way)
    lost = 0
    for number in range(ROUNDS):
        # Numbers and transaction ids that were given out before the crash come again; one transaction is slow.
        for _ in range(150):
            crashing.writer.connection.execute("SELECT pg_current_xact_id()")
        crashing.other.connection.autocommit = False
        crashing.write(crashing.other, "fast", 5)
        crashing.write(crashing.writer, "fast", 5)
        crashing.look("fast")
        crashing.other.connection.commit()
        for topic in TOPICS:
            crashing.write(crashing.writer, topic, dice.randint(1, 60))
            if dice.random() < 0.7:
                crashing.look(topic, dice.choice([5, 256]))
        # A transaction that does not end before the crash, or just before: the numbers behind it wait for it.
        crashing.write(crashing.other, "fast", dice.randint(1, 20))
        for topic in dice.choices(list(TOPICS), k=4):
            crashing.write(crashing.writer, topic, dice.randint(30, 90))
            if dice.random() < 0.7:
                crashing.look(dice.choice(list(TOPICS)))
        if number % 2:
            crashing.other.connection.rollback()
            crashing.look("fast")
            crashing.write(crashing.writer, "fast", 40)
        before = sum(len(crashing.there(topic)) for topic in TOPICS)
        crashing.crash(way)
        lost += before - sum(len(crashing.there(topic)) for topic in TOPICS)
        for topic in TOPICS:
            # Nothing that was told has gone.
            assert set(crashing.read[topic]) <= set(crashing.there(topic)), (number, topic)
    for topic in TOPICS:
        crashing.write(crashing.writer, topic, 3)
        while crashing.look(topic):
            pass
        assert crashing.read[topic] == crashing.there(topic), topic
    assert {data for _, data in crashing.there("sure")} >= set(crashing.sure)
    assert lost > 100, "the crashes lost nothing: this test shows nothing"


def test_what_is_read_without_a_transaction_of_its_own_was_on_disk_before(crashing: Crashing) -> None:
    crashing.write(crashing.writer, "fast", 5)
    with crashing.reader.connection.transaction():
        assert not crashing.look("fast")
    assert crashing.look("fast")
    crashing.write(crashing.writer, "sure", 5)
    with crashing.reader.connection.transaction():
        assert crashing.look("sure")


@pytest.fixture
def promoted() -> Iterator[tuple[TemporaryServer, Callable[[], None], Callable[[], None]]]:
    """A server, a call that copies it to a standby, and one that lets the standby take over without what came since."""
    with TemporaryServer(HOME, migrated=True) as server:
        standby = server.data_dir.with_name("standby")

        def replicate() -> None:
            server.stop()
            server._copy(server.data_dir, standby)
            server.start()

        def promote() -> None:
            server.stop("immediate")
            shutil.rmtree(server.data_dir)
            standby.rename(server.data_dir)
            signal_file = server.data_dir / "standby.signal"
            signal_file.touch()
            shutil.chown(signal_file, server.data_dir.stat().st_uid, server.data_dir.stat().st_gid)
            server.start()
            with psycopg.connect(server.url(), autocommit=True) as connection:
                assert connection.execute("SELECT pg_promote()").fetchone() == (True,)

        yield server, replicate, promote


@pytest.mark.sample
@pytest.mark.slow
def test_a_standby_that_lacks_what_was_read_is_noticed(promoted: Any) -> None:
    """The cursor is beyond the head, then behind it: both are told, and a reader that was behind goes on in silence."""
    server, replicate, promote = promoted
    seals = Sealer()
    write = partial(servers.enqueue, server, queue="log")

    def read(place: log.LogPage, **options: Any) -> log.LogPage:
        where = {"after": place.cursor, "timeline": place.timeline, "seals": seals}
        page: log.LogPage = servers.run(server, log.read("log", **where, **options))
        return page

    servers.run(server, engine.create("log", preset="topics", type="log"))
    kept = write("a", "b")[-1]
    servers.note(server)
    servers.note(server)
    behind = servers.run(server, log.read("log", seals=seals))
    replicate()
    write("lost", "lost too")
    ahead = read(behind)
    assert [record.data for record in ahead.records] == ["lost", "lost too"]
    promote()
    for number in range(2):  # in the second round other records have the lost ones' numbers, and more
        with pytest.raises(LogTruncated, match=f"up to number {kept} is kept") as refused:
            read(ahead)
        assert (refused.value.kept, refused.value.timeline) == (kept, ahead.timeline + 1)
        while number == 0 and write("new")[-1] <= ahead.cursor:
            servers.note(server)
    again = read(ahead, reset=True)
    assert again.reset_to == kept
    assert {record.data for record in again.records} == {"new"}
    silent = read(behind)
    assert (silent.reset_to, silent.records, read(silent).records) == (None, again.records, [])


def read_all(topic: str, size: int, **options: object) -> list[int]:
    """Read a topic page by page; every page moves on."""
    found: list[int] = []
    with own_connection() as reader:
        seals, after, end = log.Sealer(), 0, time.monotonic() + 300
        while True:
            page = reader.run(log.read(topic, after=after, size=size, seals=seals, **options))
            found += [record.seq for record in page.records]
            if not page.more and page.cursor >= page.head_seq:
                return found
            # A transaction of PostgreSQL's own (autovacuum's ANALYZE) may hold the end back for a moment.
            assert page.cursor > after or (not page.more and time.monotonic() < end)
            after = page.cursor


@pytest.mark.parametrize("size", [1, 3, 50])
def test_jobs_in_every_place(transactional_db: None, size: int) -> None:
    dice = random.Random(size)
    make("work", requeue="back", max_deliveries=3, exhaust_at="release", dead_letter="self", priority_max=2)
    make("other", requeue="back")
    for turn in range(12):
        enqueue(*(NewJob(data=n, priority=dice.randint(0, 2)) for n in range(dice.randint(1, 9))))
        enqueue(*(NewJob(data=n, delay_ms=60_000) for n in range(dice.randint(0, 3))))
        put(3, "other")
        jobs = claim(dice.randint(1, 8))
        engine.run(engine.nack([job.seq for job in jobs if dice.random() < 0.6], NODE))
        if turn % 3 == 0:
            engine.run(engine.ack([job.seq for job in jobs[:2]], NODE))
    assert {0, 1, 2, 3} == set(LiveJob.objects.filter(queue__name="work").values_list("state", flat=True))
    assert StoredJob.objects.filter(queue__name="work", position__isnull=False).count() > 5
    there = list(StoredJob.objects.filter(queue__name="work").order_by("seq").values_list("seq", flat=True))
    assert read_all("work", size) == there
    state = engine.run(topics.state("work"))
    assert (state.earliest_seq, state.count) == (there[0], len(there))
    assert state.head_seq >= there[-1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [7, 1_000])
def test_more_delayed_and_dead_jobs_than_are_looked_at_by_their_time(transactional_db: None, size: int) -> None:
    make("work", max_deliveries=1, exhaust_at="release", dead_letter="self")
    make("other")
    enqueue(*(NewJob(data=n, delay_ms=60_000 - n) for n in range(1_100)))
    put(5)
    enqueue(*(NewJob(data=n, delay_ms=60_000) for n in range(50)), queue="other")
    dying = put(1_050)
    for _ in range(3):
        engine.run(engine.nack(seqs(claim(500)), NODE))
    put(5)
    there = list(StoredJob.objects.filter(queue__name="work").order_by("seq").values_list("seq", flat=True))
    assert LiveJob.objects.filter(seq__in=dying, state=3).count() == 1_050
    assert read_all("work", size) == there
    assert read_all("work", 100, skip_nodes=["nobody"]) == there


def test_a_page_of_many_that_were_moved(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    make("work", requeue="back")
    numbers = put(300)
    engine.run(engine.nack(seqs(claim(150)), NODE))
    assert seqs(claim(1)) == numbers[150:151]
    assert read_all("work", 20) == numbers
    assert engine.run(topics.state("work")).head_seq >= numbers[-1]
    assert engine.run(topics.drop("work", before=numbers[100])) == 100
    assert read_all("work", 50) == numbers[100:]


def test_what_a_cap_takes_away_first_is_the_oldest_wherever_it_stands(transactional_db: None) -> None:
    make("work", requeue="back", cap_records=10, max_deliveries=1, dead_letter="self", exhaust_at="release")
    numbers = put(3)
    engine.run(engine.nack(seqs(claim(1)), NODE))
    claim(1)
    later = [enqueue(NewJob(data=1, delay_ms=60_000))[0].seq, *put(6)]
    assert read_all("work", 5) == [*numbers, *later]
    fresh = put(2)
    assert read_all("work", 5) == read_all("work", 50) == [*numbers[2:], *later, *fresh]
