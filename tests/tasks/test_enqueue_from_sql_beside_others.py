"""``leasequeue_enqueue`` beside others: deletions of its queue, roles, a worker that waits; what its page shows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.db.utils import DatabaseError

from django_leasequeue import engine
from django_leasequeue.engine.operation import Rows
from django_leasequeue.exceptions import QueueBusy
from django_leasequeue.models import JobEvent, LiveJob
from django_leasequeue.testing import Harness
from tests.engine.helpers import kept_waiting, kinds, open_transaction, own_connection, run
from tests.support.documents import blocks
from tests.support.pages import run_page
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.tasks.sql_calls import LATER, enqueue, on
from tests.worker.processes import TASKS, completed, starting

pytestmark = pytest.mark.django_db
PAGE = "how-to/enqueue-from-sql.md"


@pytest.fixture(autouse=True)
def _queues(db: None) -> None:
    for name in ("default", "sql"):
        engine.run(engine.create(name, preset="django"))


@pytest.mark.django_db(transaction=True)
class TestADeletionOfItsQueue:
    def test_waits_for_the_transaction_and_takes_its_job(self) -> None:
        with open_transaction() as writer, own_connection() as deleter:
            job, usual = on(writer, queue_name="sql"), deleter.fetch

            def fetch(name: str, params: Mapping[str, Any]) -> Rows:
                if name == "queue_writers":
                    writer.connection.commit()
                return usual(name, params)

            deleter.fetch = fetch  # type: ignore[method-assign]
            assert deleter.run(engine.delete("sql"))
        assert not LiveJob.objects.filter(key=job).exists()
        assert kinds(JobEvent.objects.values_list("seq", flat=True).distinct().get()) == ["enqueued", "cancelled"]

    def test_is_refused_while_the_transaction_stays_open(self) -> None:
        with open_transaction() as writer:
            on(writer, queue_name="sql")
            with pytest.raises(QueueBusy):
                engine.run(engine.delete("sql"))
            writer.connection.commit()
        assert LiveJob.objects.count() == 1

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_keeps_a_call_waiting(self, end: str) -> None:
        with open_transaction() as deleter:
            deleter.connection.execute("SELECT 1")
            deleter.run(engine.delete("sql"))
            with kept_waiting(lambda other: on(other, queue_name="sql")) as answer:
                getattr(deleter.connection, end)()
            if end == "commit":
                with pytest.raises(psycopg.errors.UndefinedObject, match="There is no queue 'sql'"):
                    answer.result(60)
            else:
                assert samples.add.get_result(answer.result(60))
        assert LiveJob.objects.count() == (end == "rollback")

    def test_refuses_a_snapshot_that_still_shows_the_queue(self) -> None:
        with open_transaction() as writer:
            writer.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            writer.connection.execute("SELECT 1 FROM leasequeue_queue")
            assert engine.run(engine.delete("sql"))
            with pytest.raises(psycopg.errors.SerializationFailure):
                on(writer, queue_name="sql")


class TestThePage:
    @pytest.fixture(autouse=True)
    def _shop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine.run(engine.create("mail", preset="django"))
        run("CREATE ROLE legacy; CREATE TABLE shop_order (id bigint PRIMARY KEY, status text NOT NULL)")
        run("INSERT INTO shop_order VALUES (7, 'new'), (8, 'paid'), (9, 'sent')")
        run_page(PAGE, monkeypatch)
        for block in blocks(PAGE):
            if block.language == "sql":
                run(block.text)

    def test_what_it_shows_makes_jobs_that_run(self, leasequeue: Harness) -> None:
        run("UPDATE shop_order SET status = 'paid'")
        run("UPDATE shop_order SET status = 'new'; UPDATE shop_order SET status = 'paid'")
        found = LiveJob.objects.order_by("seq").values_list("queue__name", "data", "meta", "max_deliveries")
        receipts = {"args": [7]}, {"args": [9]}, {"args": [8]}
        assert list(found.filter(meta__has_key="$tags")) == [
            ("default", each, {"$tags": {"order": each["args"][0]}}, None) for each in receipts
        ]
        first, later = found.exclude(meta__has_key="$tags"), found.filter(queue__name="mail").get()
        assert (first.first() or ())[:2] == ("default", {"args": [7]})
        assert (later[1], later[3]) == ({"kwargs": {"order_id": 8}}, 3)
        assert [ran.state for ran in leasequeue.drain()] == ["completed"] * 4

    def test_the_rights_are_enough_for_a_call_without_a_key(self) -> None:
        with as_role("legacy"):
            ids = [
                enqueue(payload={"args": [1]}, priority=9, tags={"a": 1}),
                enqueue(run_after=LATER, queue_name="mail"),
            ]
        assert LiveJob.objects.filter(key__in=ids).count() == 2
        with pytest.raises(DatabaseError, match="permission denied"), as_role("legacy"):
            enqueue(key="k")

    def test_a_role_with_a_function_of_the_owner_can_enqueue_its_task_alone(self) -> None:
        run("CREATE ROLE guest; GRANT USAGE ON SCHEMA public TO guest; GRANT EXECUTE ON FUNCTION send_receipt TO guest")
        with as_role("guest"):
            ((made,),) = run("SELECT send_receipt(11)")
        assert LiveJob.objects.get(key=made).data == {"args": [11]}
        with pytest.raises(DatabaseError, match="permission denied for table leasequeue_queue"), as_role("guest"):
            enqueue()


@contextmanager
def as_role(name: str) -> Iterator[None]:
    with transaction.atomic():
        run(f"SET LOCAL ROLE {name}")
        yield
        run("RESET ROLE")


@pytest.mark.slow  # a worker process starts
@pytest.mark.sample
@pytest.mark.django_db(transaction=True)
def test_it_wakes_a_worker_that_waits(subprocess_env: dict[str, str]) -> None:
    with starting(subprocess_env) as start:
        worker = start(*TASKS, "--queues", "default", "--poll", "600")
        listens = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        eventually(lambda: run(listens) != [(0,)], "it waits")
        result = samples.add.get_result(enqueue(payload={"args": [20, 22]}))
        eventually(result.outcome, "it runs")
        assert completed(result)
        worker.ends()
    assert result.return_value == 42
