"""What a commit waits for: the engine relaxes its own as the queue says; a host's transaction is never touched."""

from collections.abc import Callable, Iterator
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


def change_jobs(run: Callable[..., Any], look: Callable[[str], None]) -> None:
    """Change jobs in each way; look after each with the kind of what it wrote."""

    def call(kind: str, operation: Any) -> Any:
        answer = run(operation)
        look(kind)
        return answer

    (first,) = call("writes", engine.enqueue("work", [NewJob()]))
    call("writes", engine.enqueue("work", [NewJob()] * 150))
    call("leases", engine.claim("work", NODE, 3))
    call("leases", engine.extend([first.seq], NODE, 60_000))
    call("leases", engine.nack([first.seq], NODE))
    (job,) = call("leases", engine.claim("work", NODE))
    call("writes", engine.ack([job.seq], NODE))
    (job,) = call("leases", engine.claim("work", NODE))
    call("steps", keep_step(job.seq, job.token, NODE, "step", "1", 1, 1))
    call("writes", engine.finish([Ending(job.seq, result=1)], NODE))


@pytest.mark.parametrize(("durability", "durable", "writes", "leases"), [
    ("fsync", False, "on", "off"), ("fsync", True, "on", "on"), ("disk", False, "off", "off"),
    ("disk", True, "off", "on"), ("memory", False, "off", "off"), ("ephemeral", False, "off", "off"),
])  # fmt: skip
@pytest.mark.parametrize("default", ["on", "off"])
def test_each_call_obeys_the_queue(
    commits: Commits, default: str, durability: str, durable: bool, writes: str, leases: str
) -> None:
    """Whatever the role or the database says by default; that stays as it is."""
    make("work", durability=durability, leases_durable=durable)
    commits()
    expected = {"writes": writes, "leases": leases, "steps": "on"}

    def look(kind: str) -> None:
        assert commits() == {expected[kind]}

    with own_connection() as executor:
        executor.connection.execute(f"SET synchronous_commit = {default}")
        change_jobs(executor.run, look)
        assert executor.connection.execute("SHOW synchronous_commit").fetchone() == (default,)


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("own", [False, True])
def test_the_transaction_of_the_host_keeps_its_own(commits: Commits, own: bool, setting: str) -> None:
    make("work", durability="memory" if setting == "on" else "fsync", leases_durable=setting == "off")
    commits()
    with own_connection() as executor, executor.connection.transaction() if own else transaction.atomic():
        run = executor.run if own else engine.run
        cursor = executor.connection.cursor() if own else connection.cursor()
        cursor.execute(f"SET LOCAL synchronous_commit = {setting}")
        change_jobs(run, lambda kind: None)
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
    assert execute("SHOW synchronous_commit") == [("on",)]


def test_a_flush_of_a_buffer_waits_for_the_disk_where_one_call_has_to(run, commits: Commits) -> None:
    make("work", durability="fsync")
    enqueue(NewJob(), NewJob())
    first, second = (ClaimedJob(job, NODE) for job in claim(2))
    commits()
    ack = Call(END, Ending(first.seq, first.token), first)
    nack = Call(RELEASE, engine.Release(second.seq, second.token, 0), second)
    run(flush(Queue("work", node=NODE), JSON, [ack, nack, Call(CLAIM, Claiming(1, None, None))]))
    assert commits() == {"on"}


def test_the_strictest_queue_of_a_call_rules(run, commits: Commits) -> None:
    for name, durable in (("sure", True), ("swift", False)):
        make(name, durability="fsync" if durable else "memory", leases_durable=durable)
        enqueue(NewJob(1, limit=Limited(name, ONE)), queue=name)
    commits()
    # Both are set free by the claim itself, so that it is one transaction.
    jobs = run(engine.claim(["swift", "sure"], NODE, 10))
    assert (len(jobs), commits()) == (2, {"on"})
    run(engine.ack([job.seq for job in jobs], NODE))
    assert commits() == {"on"}
