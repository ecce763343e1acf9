"""Small parts by themselves: options, the buffer, the wake-up, what jobs see of their control."""

import gc
import os
import signal
import threading
from collections import Counter, deque
from itertools import cycle, islice
from typing import Any
from unittest.mock import MagicMock

import psycopg
import pytest

from django_leasequeue.engine.outage import passes
from django_leasequeue.exceptions import InvalidOption, PayloadTooLarge
from django_leasequeue.worker import JobAborted, JobControl, JobTimeout, load_options
from django_leasequeue.worker.acknowledger import Acknowledger
from django_leasequeue.worker.held import FLOW, JobBuffer, take_from
from django_leasequeue.worker.process import YOUNG, spare_collector
from django_leasequeue.worker.run import COMPLETED, Entry
from django_leasequeue.worker.supervisor import STOP, Supervisor
from django_leasequeue.worker.worker import node_name
from tests.worker.support import a_job


def test_options_and_names(settings: Any) -> None:
    settings.LEASEQUEUE = {"WORKER": {"CONCURRENCY": 3, "QUEUES": ["a", "b"], "POLL": 2}}
    options = load_options(concurrency=5, prefetch=None)
    assert (options.concurrency, options.queues, options.poll, options.prefetch) == (5, ("a", "b"), 2, 2_000)
    assert options.database == "default"
    assert not options.all_queues
    assert load_options(queues=("*",)).all_queues
    names = {node_name() for _ in range(100)}
    assert len(names) == 100
    assert max(len(name.encode()) for name in names) <= 112


def test_the_buffer_loses_no_job_and_no_thread() -> None:
    buffer, taken = JobBuffer(), []
    lock = threading.Lock()

    def work() -> None:
        parker = threading.Lock()
        parker.acquire()
        while True:
            try:
                job = buffer.jobs.popleft()
            except IndexError:
                if not buffer.park(parker):
                    return
                continue
            with lock:
                taken.append(job.seq)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    jobs = iter([a_job(seq) for seq in range(20_000)])
    sizes = cycle([1, 2, 3, 50, 1, 500])
    while some := list(islice(jobs, next(sizes))):
        buffer.put(some)
    while buffer.jobs:
        pass
    buffer.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert Counter(taken) == Counter(range(20_000))


def test_two_statements_do_not_meet_in_a_claim_with_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one settles jobs of it the other takes what is of other claims, and leaves the rest in its order."""
    state = MagicMock(ended=deque(), options=load_options(ack_batch=3))
    limited = [a_job(seq)._replace(flags=FLOW) for seq in range(5)]
    others = [a_job(seq, 2)._replace(flags=0) for seq in range(10, 12)]
    state.held = {job.seq: job for job in [*limited, *others]}
    state.ended.extend((COMPLETED, job, None, None, None) for job in [*limited, *others])
    acknowledger = Acknowledger(state)
    first, second = acknowledger._links
    settled: list[list[int]] = []

    def settle(entries: list[Entry], *_: object) -> None:
        settled.append([entry[1].seq for entry in entries])
        if len(settled) == 1:
            assert acknowledger._settle_some(second) is True
            assert acknowledger._settle_some(second) is True
            assert acknowledger._settle_some(second) is False

    monkeypatch.setattr(acknowledger, "_settle_bisecting", settle)
    monkeypatch.setattr("django_leasequeue.worker.acknowledger.tidy_connections", lambda: None)
    assert acknowledger._settle_some(first)
    assert settled == [[0, 1, 2], [10], [11], []]
    assert [entry[1].seq for entry in state.ended] == [3, 4]
    assert acknowledger._settle_some(second)
    assert settled[4:] == [[3, 4]]


def test_a_later_lease_of_a_job_is_not_mistaken_for_an_earlier_one() -> None:
    old, new = a_job(token=1), a_job(token=2)
    held = {1: new}
    assert not take_from(old, held)
    assert held == {1: new}
    assert take_from(new, held)
    assert not take_from(new, held)


@pytest.mark.parametrize(("error", "expected"), [
    (psycopg.OperationalError("connection refused"), True), (psycopg.InterfaceError("the connection is closed"), True),
    (psycopg.errors.AdminShutdown(), True), (psycopg.errors.DeadlockDetected(), True),
    (psycopg.errors.ReadOnlySqlTransaction(), True), (psycopg.errors.DiskFull(), True),
    (psycopg.errors.UndefinedTable(), False), (psycopg.errors.InvalidTextRepresentation(), False),
    (psycopg.DataError("a NUL"), False),
])  # fmt: skip
def test_which_errors_pass_by_themselves(error: psycopg.Error, expected: bool) -> None:
    assert passes(error) is expected


def test_errors_that_cause_each_other_do_not_pass_and_are_looked_at_once() -> None:
    first, second = LookupError(), LookupError()
    first.__cause__, second.__cause__ = second, first
    assert not passes(first)


def test_a_control_says_why_to_stop_and_the_first_reason_stays() -> None:
    for reason, error in (("stopping", JobAborted), ("timeout", JobTimeout)):
        control = JobControl(a_job(), "node")
        control.raise_if_aborted()
        assert (control.lost, control.reason, control.event.is_set()) == (False, "", False)
        control.abort(reason)
        control.abort("cancelled")
        assert (control.lost, control.reason, control.event.is_set()) == (True, reason, True)
        with pytest.raises(error, match=reason):
            control.raise_if_aborted()
    late = JobControl(a_job(), "node")
    late.abort("timeout")
    assert late.event.is_set(), "who asks for it only now"


def test_progress_is_coalesced_and_checked() -> None:
    control = JobControl(a_job(), "node")
    assert control.take_progress() is None
    control.set_progress(1)
    control.set_progress(None)
    assert control.take_progress() == [None]
    control.set_progress(changing := [1])
    changing.append(2)
    assert control.take_progress() == [[1]]
    assert control.take_progress() is None
    with pytest.raises(InvalidOption, match="must be JSON"):
        control.set_progress(object())
    with pytest.raises(PayloadTooLarge):
        control.set_progress("x" * 70_000)


@pytest.mark.parametrize(("before", "after"), [(700, YOUNG), (2 * YOUNG, 2 * YOUNG), (0, 0)])
def test_the_collector_of_a_worker_looks_less_often_unless_somebody_set_it(before: int, after: int) -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(before, *thresholds[1:])
    try:
        spare_collector()
        assert gc.get_threshold() == (after, *thresholds[1:])
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_a_stop_meets_a_process_that_has_just_ended() -> None:
    """Nobody reads its orders any more, and it is not reaped yet."""
    supervisor = Supervisor(load_options(queues=("work",), processes=2))
    reading, writing = os.pipe()
    os.close(reading)
    ended, alive = supervisor._children
    orders, alive_writing = os.pipe()
    ended.pid, ended.orders, alive.pid, alive.orders = 1, writing, 2, alive_writing
    try:
        supervisor._signalled(signal.SIGTERM, None)
        supervisor._pass_on_signals()
        assert os.read(orders, 1) == STOP
    finally:
        for descriptor in (writing, orders, alive_writing):
            os.close(descriptor)
