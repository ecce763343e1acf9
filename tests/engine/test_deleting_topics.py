"""A topic that is deleted if it is empty, while somebody writes to it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.topics.topics import write
from django_leasequeue.exceptions import InvalidOption, QueueNotFound
from django_leasequeue.models import StoredJob
from tests.engine.helpers import own_connection

ROUNDS = 80


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.django_db(transaction=True)
def test_what_was_written_is_never_deleted_with_an_empty_topic(kind: str, count: int) -> None:
    with own_connection() as writer, own_connection() as deleter, ThreadPoolExecutor(2) as threads:
        start = Barrier(2)

        def writes() -> bool:
            start.wait()
            try:
                writer.run(write("t", [NewJob(data=number) for number in range(count)]))
            except QueueNotFound:
                return False
            return True

        def deletes() -> bool:
            start.wait()
            try:
                return bool(deleter.run(engine.delete("t", if_empty=True)))
            except InvalidOption:
                return False

        both = set()
        for _ in range(ROUNDS):
            engine.run(engine.create("t", preset="topics", type=kind))
            writing, deleting = threads.submit(writes), threads.submit(deletes)
            written, deleted = writing.result(30), deleting.result(30)
            both.add((written, deleted))
            assert not (written and deleted), "what was answered with its numbers is gone"
            assert StoredJob.objects.count() == (count if written else 0)
            engine.run(engine.delete("t"))
        assert both <= {(True, False), (False, True)}
