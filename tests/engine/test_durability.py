"""What a commit waits for: the engine relaxes its own as the queue says; a host's transaction is never touched."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction

from django_leasequeue import Queue, engine
from django_leasequeue.engine import Ending, Limited, NewJob
from django_leasequeue.engine.jobs.steps import keep_step
from django_leasequeue.engine.operation import BEGIN, Statements, operation
from django_leasequeue.queue.flush import CLAIM, END, RELEASE, Call, Claiming, flush
from django_leasequeue.queue.outcomes import ClaimedJob
from django_leasequeue.queue.serializers import JSON
from tests.engine.flow import ONE
from tests.engine.helpers import NODE, claim, enqueue, make, own_connection
from tests.engine.helpers import run as execute

pytestmark = pytest.mark.django_db(transaction=True)

#: A trigger that fires at commit and notes the setting that this commit obeys.
PROBE = """
CREATE TABLE commit_probe (setting text);
CREATE FUNCTION commit_probe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO commit_probe VALUES (current_setting('synchronous_commit')); RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER commit_probe AFTER INSERT ON leasequeue_leaseevent
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION commit_probe();
CREATE CONSTRAINT TRIGGER commit_probe AFTER INSERT ON leasequeue_jobstep
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION commit_probe();
"""

Commits = Callable[[], set[str]]


@operation
def together(operations: list[engine.Operation[Any]]) -> Statements[None]:
    """Run operations in one transaction."""
    yield BEGIN, {}
    for each in operations:
        yield from each


@pytest.fixture
def commits(transactional_db: None) -> Iterator[Commits]:
    """Returns the settings under which transactions committed since the last look."""

    def look() -> set[str]:
        return {setting for (setting,) in execute("DELETE FROM commit_probe RETURNING setting")}

    execute(PROBE)
    try:
        yield look
    finally:
        execute("DROP FUNCTION commit_probe CASCADE; DROP TABLE commit_probe")


@pytest.fixture(params=["django", "own"])
def run(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Callable[..., Any]]:
    """Both ways to run an operation outside of any transaction."""
    if request.param == "django":
        yield engine.run
        return
    with own_connection() as executor:
        yield executor.run


@pytest.fixture(params=["on", "off"])
def where(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Callable[..., Any]]:
    """Run an operation where the role or the database says so by default."""
    with own_connection() as executor:
        executor.connection.execute(f"SET synchronous_commit = {request.param}")
        yield executor.run


def calls() -> Generator[tuple[Any, str], Any]:
    """Each way to change jobs, sent what the one before answered, and what it writes."""
    (first,) = yield engine.enqueue("work", [NewJob()]), "writes"
    yield engine.enqueue("work", [NewJob()] * 150), "writes"
    yield engine.claim("work", NODE, 3), "leases"
    yield engine.extend([first.seq], NODE, 60_000), "leases"
    yield engine.nack([first.seq], NODE), "leases"
    (job,) = yield engine.claim("work", NODE), "leases"
    yield engine.ack([job.seq], NODE), "writes"
    (job,) = yield engine.claim("work", NODE), "leases"
    yield keep_step(job.seq, job.token, NODE, "step", "1", 1, 1), "steps"
    yield engine.finish([Ending(job.seq, result=1)], NODE), "writes"


@pytest.mark.parametrize(("durability", "durable", "writes", "leases"), [
    ("fsync", False, "on", "off"), ("fsync", True, "on", "on"), ("disk", False, "off", "off"),
    ("disk", True, "off", "on"), ("memory", False, "off", "off"), ("ephemeral", False, "off", "off"),
])  # fmt: skip
def test_each_call_obeys_the_queue(where, commits, durability: str, durable: bool, writes: str, leases: str) -> None:
    make("work", durability=durability, leases_durable=durable)
    commits()
    told, answer = calls(), None
    with suppress(StopIteration):
        while True:
            operation, kind = told.send(answer)
            answer = where(operation)
            assert commits() == {{"writes": writes, "leases": leases, "steps": "on"}[kind]}, operation


def test_the_strictest_queue_of_a_call_rules(where, commits: Commits) -> None:
    make("loose", durability="memory")
    make("strict", durability="fsync")
    for name in ("loose", "strict"):
        where(engine.enqueue(name, [NewJob()]))
    jobs = where(engine.claim(["loose", "strict"], NODE, 2))
    commits()
    where(engine.ack([job.seq for job in jobs], NODE))
    assert commits() == {"on"}


def test_the_setting_of_the_session_is_not_changed(run) -> None:
    make("work", durability="memory")
    run(engine.enqueue("work", [NewJob()]))
    run(engine.claim("work", NODE))
    assert execute("SHOW synchronous_commit") == [("on",)]


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("own", [False, True])
def test_the_transaction_of_the_host_keeps_its_own(commits: Commits, own: bool, setting: str) -> None:
    make("work", durability="memory" if setting == "on" else "fsync", leases_durable=setting == "off")
    commits()
    with own_connection() as executor, executor.connection.transaction() if own else transaction.atomic():
        run = executor.run if own else engine.run
        cursor = executor.connection.cursor() if own else connection.cursor()
        cursor.execute(f"SET LOCAL synchronous_commit = {setting}")
        told, answer = calls(), None
        with suppress(StopIteration):
            while True:
                answer = run(told.send(answer)[0])
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == (setting,)
        cursor.close()
    assert commits() == {setting}


@pytest.mark.parametrize(("names", "setting"), [
    (["strict", "loose"], "on"), (["loose", "strict"], "on"), (["loose", "strict", "loose"], "on"),
    (["loose", "other"], "off"),
])  # fmt: skip
def test_the_strictest_queue_of_an_operation_rules(run, commits: Commits, names: list[str], setting: str) -> None:
    for name in ("strict", "loose", "other"):
        make(name, durability="fsync" if name == "strict" else "memory")
    commits()
    run(together([engine.enqueue(name, [NewJob()]) for name in names]))
    assert commits() == {setting}
    commits()
    run(together([engine.claim(name, NODE) for name in set(names)] + [engine.enqueue("strict", [NewJob()])]))
    assert commits() == {"on"}
    run(engine.claim("strict", NODE))
    assert commits() == {"off"}, "nothing is left of the transaction before"


def test_a_flush_of_a_buffer_waits_for_the_disk_where_one_call_has_to(run, commits: Commits) -> None:
    make("work", durability="fsync")
    enqueue(NewJob(), NewJob())
    first, second = (ClaimedJob(job, NODE) for job in claim(2))
    commits()
    ack = Call(END, Ending(first.seq, first.token), first)
    nack = Call(RELEASE, engine.Release(second.seq, second.token, 0), second)
    run(flush(Queue("work", node=NODE), JSON, [ack, nack, Call(CLAIM, Claiming(1, None, None))]))
    assert commits() == {"on"}


def test_one_transaction_for_two_queues_waits_for_the_disk_where_one_of_them_has_to(run, commits: Commits) -> None:
    for name, durable in (("sure", True), ("swift", False)):
        make(name, leases_durable=durable)
        enqueue(NewJob(1, limit=Limited(name, ONE)), queue=name)
    commits()
    # Both are set free by the claim itself, so that it is one transaction.
    assert len(run(engine.claim(["swift", "sure"], NODE, 10))) == 2
    assert commits() == {"on"}
