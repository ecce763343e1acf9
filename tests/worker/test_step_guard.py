"""The guard of atomic steps: what is not part of a step's transaction is refused, however it is written."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import connections, transaction
from django.test import override_settings

from django_leasequeue import Queue, engine
from django_leasequeue.engine import LeasedJob
from django_leasequeue.engine.jobs.steps import read_steps
from django_leasequeue.exceptions import InvalidOption, TransactionLeftOpen
from django_leasequeue.models import Job
from django_leasequeue.tasks import emit
from django_leasequeue.testing import Harness
from django_leasequeue.worker import JobControl
from tests.engine.helpers import NODE, claim, make, put
from tests.tasks.samples import add
from tests.worker.rude_tasks import closes_in_a_block, ends_by_hand

pytestmark = pytest.mark.django_db(transaction=True)


def execute(alias: str, sql: Any) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def atomically(alias: str) -> None:
    with transaction.atomic(using=alias), transaction.atomic(using=alias):
        execute(alias, "INSERT INTO auth_group (name) VALUES ('x')")


def locked(alias: str) -> None:
    with transaction.atomic(using=alias):
        list(Group.objects.using(alias).select_for_update())


#: Writes to the database of an alias, however they are put.
WRITES: dict[str, Callable[[str], object]] = {
    "orm": lambda alias: Group.objects.using(alias).create(name="x"),
    "insert": lambda alias: execute(alias, "INSERT INTO auth_group (name) VALUES ('x')"),
    "comment": lambda alias: execute(alias, "/* select */ INSERT INTO auth_group (name) VALUES ('x')"),
    "with": lambda alias: execute(
        alias, "WITH x AS (INSERT INTO auth_group (name) VALUES ('x') RETURNING id) SELECT * FROM x"
    ),
    "sequence": lambda alias: execute(alias, "SELECT setval('auth_group_id_seq', 9000)"),
    "analyze": lambda alias: execute(alias, "EXPLAIN ANALYZE INSERT INTO auth_group (name) VALUES ('x')"),
    "two": lambda alias: execute(alias, "SELECT 1; COMMIT; SELECT setval('auth_group_id_seq', 9000)"),
    "rolled": lambda alias: execute(alias, "ROLLBACK; INSERT INTO auth_group (name) VALUES ('x')"),
    "nested": lambda alias: execute(alias, "/* a /* b */ select */ INSERT INTO auth_group (name) VALUES ('x')"),
    "atomic": atomically,
    "queue": lambda alias: Queue("work", using=alias).enqueue(1),
    "many": lambda alias: Queue("work", using=alias).enqueue_many(range(150)),
    "event": lambda alias: engine.run(engine.create("another"), alias),
    "lock": locked,
}


@pytest.fixture
def job(far: str) -> LeasedJob:
    """A job in ``default``, whose steps may read ``far``."""
    make("work")
    engine.run(engine.create("work"), far)
    Group.objects.using(far).create(name="there")
    put(1)
    (job,) = claim()
    return job


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_atomic_step_writes_to_its_own_database_only(
    job: LeasedJob, far: str, write: Callable[[str], object]
) -> None:
    execute(far, "SELECT setval('auth_group_id_seq', 100)")
    with pytest.raises(InvalidOption, match="writes to the database 'far' or locks rows there"):
        JobControl(job, NODE).step("a", lambda: str(write(far)), atomic=True)
    with pytest.raises(InvalidOption, match="writes to the database 'far'"), JobControl(job, NODE).atomic_step("b"):
        write(far)
    assert not Group.objects.using(far).filter(name="x").exists()
    assert Job.objects.using(far).count() == 0
    assert execute(far, "SELECT last_value FROM auth_group_id_seq") == [(100,)]
    write(far)  # behind it all is as before


def test_it_may_read_the_others(job: LeasedJob, far: str) -> None:
    def read() -> list[Any]:
        groups = Group.objects.using(far)
        with transaction.atomic(using=far):
            found: list[Any] = [groups.count(), [group.name for group in groups.iterator()]]
        union = groups.filter(name="there").union(groups.filter(name="there"), all=True)
        waiting = Queue("work", using=far).counts().ready
        with transaction.atomic(using=far):
            execute(far, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            found.append(execute(far, "SHOW transaction_isolation"))
        found.append(execute(far, b"SELECT 3"))
        found.append(execute(far, "/* a /* b */ '; COMMIT */ (SELECT ';', 4) -- ; COMMIT"))
        found.append(execute(far, "SELECT E'\\'; COMMIT'; SELECT $a$;COMMIT$a$, 5 AS \"x;y\""))
        return [*found, waiting, len(union), execute(far, "(SELECT 1) UNION (SELECT 2)")]

    read_there: list[Any] = [1, ["there"], [["repeatable read"]], [[3]], [[";", 4]], [["'; COMMIT"]]]
    read_there += [0, 2, [[1], [2]]]
    assert JobControl(job, NODE).step("a", read, atomic=True) == read_there
    assert execute(far, "SHOW transaction_read_only") == [("off",)]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_step_that_leaves_a_copy_open_hangs_nowhere(job: LeasedJob, atomic: bool) -> None:
    with connections["default"].cursor() as cursor:
        left = cursor.copy("COPY auth_group (name) FROM STDIN")
        with pytest.raises(TransactionLeftOpen, match="a COPY or a statement"):
            JobControl(job, NODE).step("a", lambda: str(left.__enter__()), atomic=atomic)
        # Else the interpreter ends it, at a time of its own, and its error is a warning.
        with pytest.raises(psycopg.OperationalError, match="closed"):
            left.__exit__(None, None, None)
    assert engine.run(read_steps(job.seq)) == {}


def ended(how: str) -> None:
    execute("default", "INSERT INTO auth_group (name) VALUES ('x')")
    if how == "psycopg":
        connections["default"].connection.commit()
    else:
        execute("default", how)
    Group.objects.create(name="y")


ENDS = ("COMMIT", "ROLLBACK", "SELECT 1; COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN", "psycopg")


@pytest.mark.parametrize("how", ENDS)
def test_a_step_whose_transaction_was_ended_by_hand_is_not_done(job: LeasedJob, how: str) -> None:
    control = JobControl(job, NODE)
    with pytest.raises(InvalidOption, match="atomic step 'a' ended its transaction with SQL of its own"):
        control.step("a", lambda: ended(how), atomic=True)
    assert [group.name for group in Group.objects.all()] == [] if how == "ROLLBACK" else ["x"]
    assert engine.run(read_steps(job.seq)) == {}
    control.step("b", lambda: execute("default", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"), atomic=True)


@pytest.mark.parametrize(("rude", "error", "says"), [
    # Nor where a step behind it is in a transaction that is whole.
    (ends_by_hand, InvalidOption, "the atomic task tests.worker.rude_tasks.ends_by_hand ended its transaction"),
    (closes_in_a_block, TransactionLeftOpen, "left a transaction whose connection it closed"),
])  # fmt: skip
def test_a_task_that_ended_its_transaction_by_hand_or_closed_its_connection_has_not_ended(
    leasequeue: Harness, rude: Any, error: type[Exception], says: str
) -> None:
    rude.enqueue()
    (ran,) = leasequeue.drain()
    assert (ran.state, type(ran.error)) == ("failing", error)
    assert says in str(ran.error)


def test_a_step_that_closes_its_connection_says_so(job: LeasedJob) -> None:
    def closes() -> None:
        Group.objects.create(name="x")
        connections["default"].close()

    with pytest.raises(InvalidOption, match="the connection to 'default' was closed inside of a transaction"):
        JobControl(job, NODE).step("a", closes, atomic=True)
    assert (Group.objects.count(), engine.run(read_steps(job.seq))) == (0, {})


#: Writes of a block that is done.
IN_BLOCK = {
    **WRITES,
    "read write": lambda alias: execute(
        alias, "SET TRANSACTION READ WRITE; INSERT INTO auth_group (name) VALUES ('x')"
    ),
    "task": lambda _: add.enqueue(1, 2),
    "emit": lambda _: emit("paid"),
}
del IN_BLOCK["lock"]


@pytest.mark.parametrize("write", IN_BLOCK.values(), ids=IN_BLOCK)
def test_a_block_that_is_done_writes_nothing(job: LeasedJob, write: Callable[[str], object]) -> None:
    with JobControl(job, NODE).atomic_step("once"):
        pass
    engine.run(engine.nack([job.seq], NODE))
    (again,) = claim()
    before = Job.objects.count()
    with JobControl(again, NODE).atomic_step("once") as step:
        assert step.done
        with pytest.raises(InvalidOption, match=r"only if not step\.done"):
            write("default")
        assert Group.objects.count() == 0
    assert Job.objects.count() == before


def test_an_enqueue_that_would_wait_for_the_step_is_refused(far: str) -> None:
    """Its child is stored after the commit: a crash between both would lose it."""
    engine.run(engine.create("work"), far)
    engine.run(engine.enqueue("work", [engine.NewJob()]), far)
    (job,) = engine.run(engine.claim("work", NODE), far)
    with override_settings(LEASEQUEUE={"DATABASES": ["default", far], "ENQUEUE_AFTER_COMMIT_OF": far}):
        with pytest.raises(InvalidOption, match="writes to the database 'default'"):
            JobControl(job, NODE, far).step("a", lambda: add.enqueue(1, 2).id, atomic=True)
    assert not Job.objects.filter(task="tests.tasks.samples.add").exists()
