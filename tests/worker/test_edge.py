"""A job's edge: what a task leaves on its connections reaches no other task."""

import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from django_leasequeue.worker import edge
from tests.support.waiting import eventually
from tests.worker import rude_tasks as rude
from tests.worker.processes import TASKS, completed, error_of, finished, starting, work_off

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LEFT = ("block", "generator", "closed", "begin", "failed", "copy", "autocommit")
HARMLESS = ("pipeline", "wrapper", "read_only", "isolation", "session", "raw")


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


@pytest.mark.sample
@pytest.mark.parametrize("keeps", [{}, {"RUDE_MAX_AGE": "1"}, {"RUDE_POOL": "1"}], ids=["closed", "kept", "pool"])
@pytest.mark.parametrize("implementation", ["binary", "python"])
def test_what_a_task_leaves_fails_the_task_and_no_other(
    subprocess_env: dict[str, str], keeps: dict[str, str], implementation: str
) -> None:
    rudes = [(rude.leave.enqueue(how), rude.write.enqueue(f"after {how}")) for how in (*LEFT, *HARMLESS)]
    atomic = rude.leave_in_atomic.enqueue()
    # In C psycopg waits for the server without a look at the timeout, and the process is replaced.
    timed = [rude.wait_in_query.enqueue()] if implementation == "python" else []
    raised = rude.raise_in_loop.enqueue()
    last = rude.write.enqueue("last"), rude.close_of_others.enqueue("closes"), rude.write.enqueue("very last")
    log = work_off({**subprocess_env, "PSYCOPG_IMPL": implementation, **keeps}, "--concurrency", "1")
    assert completed(*(innocent for _, innocent in rudes), *last)
    assert groups() == {*(f"after {how}" for how in (*LEFT, *HARMLESS)), "last", "closes", "very last"}
    assert {error_of(left) for left, _ in rudes[: len(LEFT)]} == {"TransactionLeftOpen"}
    assert completed(*(left for left, _ in rudes[len(LEFT) :]))
    assert [error_of(result) for result in (atomic, raised)] == ["TransactionLeftOpen", "ValueError"]
    assert [error_of(result) for result in timed] == ["JobTimeout"] * len(timed)
    assert "A job left its connection unclean, which was closed: an open transaction on 'default'" in log
    assert "tests.worker.rude_tasks.leave" in log
    spoils = (
        "read_only",
        "another isolation level",
        "SET default_transaction_read_only",
        "a closed connection of psycopg",
    )
    for left in spoils:
        assert f"A job left its connection unclean, which was closed: {left} on 'default'" in log
    assert "Part of the worker broke" not in log


def test_an_isolated_task_that_leaves_a_transaction_open_fails(subprocess_env: dict[str, str]) -> None:
    results = rude.leave_in_isolation.enqueue("begin"), rude.aleave_in_isolation.enqueue("block")
    work_off(subprocess_env)
    assert [error_of(result) for result in results] == ["TransactionLeftOpen"] * 2
    assert groups() == set()


@pytest.mark.parametrize("leaves", [
    lambda: transaction.atomic().__enter__(), lambda: transaction.set_autocommit(False),
], ids=["block", "autocommit"])  # fmt: skip
def test_a_callback_loses_what_it_leaves_open_and_no_work_of_the_next(transactional_db: None, leaves: Any) -> None:
    edge.call_apart(leaves, "A callback")
    edge.call_apart(lambda: Group.objects.create(name="of the next"), "A callback")
    connection.close()
    assert groups() == {"of the next"}


def test_a_callback_within_an_open_block_leaves_it_as_it_is(transactional_db: None) -> None:
    with transaction.atomic():
        edge.call_apart(lambda: Group.objects.create(name="of the callback"), "A callback")
    assert groups() == {"of the callback"}


def test_a_block_that_was_left_ends_no_transaction_of_others(transactional_db: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(transaction.Atomic, "__exit__", edge._leave_own_block)
    generator, again = rude.names(), transaction.atomic()
    next(generator)
    again.__enter__()
    edge.drop(connection)
    with again:  # a decorator's block is used again and again
        Group.objects.create(name="kept")
        generator.close()
        assert connection.in_atomic_block
        again_elsewhere = threading.Thread(target=again.__exit__, args=(ValueError, None, None))
        again_elsewhere.start()
        again_elsewhere.join()
    assert groups() == {"kept"}
    connections.close_all()


def test_a_block_that_a_thread_of_a_task_has_left_ends_no_transaction_of_others(
    transactional_db: None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transaction.Atomic, "__exit__", edge._leave_own_block)
    generator = rude.names()

    def begin() -> None:
        next(generator)
        connection.close()  # as when the thread ends

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    with transaction.atomic():
        Group.objects.create(name="kept")
        generator.close()
        assert connection.in_atomic_block
    assert groups() == {"kept"}


def test_a_mark_for_rollback_reaches_no_other_task(transactional_db: None) -> None:
    connection.ensure_connection()
    connection.needs_rollback = True
    assert edge.spoiled(connections["default"]) == "needs_rollback"
    connection.needs_rollback = False


def test_transactions_of_coroutines_stay_apart(subprocess_env: dict[str, str]) -> None:
    through, back = rude.across.enqueue("through", 1.0, fails=False), rude.across.enqueue("back", 1.0, fails=True)
    left = [(rude.aleave.enqueue(how), rude.awrite.enqueue(f"beside {how}")) for how in LEFT]
    log = work_off(subprocess_env, "--async-concurrency", "40")
    assert completed(through, back, *(innocent for _, innocent in left))
    assert {error_of(result) for result, _ in left} == {"TransactionLeftOpen"}
    assert groups() == {"through", *(f"beside {how}" for how in LEFT)}
    assert "tests.worker.rude_tasks.aleave" in log


def test_the_end_of_a_coroutine_closes_no_connection_that_another_reads(subprocess_env: dict[str, str]) -> None:
    Group.objects.bulk_create(Group(name=f"{number}") for number in range(20))
    reading = rude.read.enqueue(20, 0.1)
    others = [rude.awrite.enqueue(f"other {number}") for number in range(10)]
    work_off(subprocess_env, "--async-concurrency", "4")
    assert completed(reading, *others)


def test_a_coroutine_does_not_wait_for_the_sync_part_of_another(subprocess_env: dict[str, str], tmp_path: Path) -> None:
    blocking = rude.block.enqueue(str(tmp_path))
    with starting(subprocess_env) as start:
        worker = start(*TASKS)
        eventually((tmp_path / "blocks").exists, "it blocks the thread of sync parts")
        quick = [rude.nothing.enqueue() for _ in range(3)]
        eventually(lambda: finished(*quick), "the others end")
        (tmp_path / "go on").touch()
        eventually(lambda: finished(blocking), "it ends")
        worker.ends()
    assert completed(blocking, *quick)


@pytest.mark.parametrize("code", [0, 3, -1], ids=["exit", "exit-3", "interrupt"])
def test_an_exit_in_a_child_of_a_coroutine_fails_its_attempt_only(subprocess_env: dict[str, str], code: int) -> None:
    exits = [rude.exit_in_child.enqueue(how, code) for how in ("gather", "group")]
    beside = [rude.asleep.enqueue(1.5) for _ in range(3)]
    log = work_off(subprocess_env)
    assert completed(*beside)
    assert {error_of(result) for result in exits} == {"KeyboardInterrupt" if code < 0 else "SystemExit"}
    assert len({result.return_value for result in beside}) == 1
    assert "the loop continues" in log
