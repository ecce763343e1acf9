"""``leasequeue_enqueue``: a call from SQL writes what the same call in Python writes, or says why it does not."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError

from django_leasequeue import engine
from django_leasequeue.conf.options import Settings
from django_leasequeue.engine import NewJob, metadata
from django_leasequeue.engine.limits import MAX_KEY_BYTES, MAX_SPAN_MS, MAX_TAG_BYTES, MAX_UNIQUE_BYTES
from django_leasequeue.models import JobEvent, LiveJob, UniqueKey
from django_leasequeue.sql import function
from django_leasequeue.tasks.api import TASK_MAX_PRIORITY, TaskResultStatus
from django_leasequeue.testing import Harness
from tests.engine.helpers import kept_waiting, kinds, open_transaction, run
from tests.tasks import samples
from tests.tasks.helpers import claim, run_one
from tests.tasks.sql_calls import LATER, enqueue, on

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _queues(db: None) -> None:
    for name in ("default", "python", "sql"):
        engine.run(engine.create(name, preset="django"))


#: What differs between two calls: numbers, ids, and the times of the calls.
ROWS = """
SELECT to_jsonb(j) - '{seq,queue_id,created_at,expires_at,key,data,meta}'::text[], j.data::jsonb, j.meta::jsonb,
    round(extract(epoch FROM j.expires_at - j.created_at)), substr(j.key, 15, 1) || substr(j.key, 19, 1),
    to_jsonb(r) - '{seq,queue_id,position,ready_at,expires_at}'::text[], r.position = j.seq, r.ready_at = j.created_at,
    r.expires_at IS NOT DISTINCT FROM j.expires_at,
    to_jsonb(d) - '{seq,queue_id,expires_at}'::text[], d.expires_at IS NOT DISTINCT FROM j.expires_at,
    to_jsonb(e) - '{id,txid,queue_id,occurred_at,low,high,seqs}'::text[], e.low = j.seq, e.seqs = ARRAY[j.seq],
    e.occurred_at = j.created_at, e.txid = pg_current_xact_id()::text::bigint,
    to_jsonb(u) - '{seq,queue_id,free_at}'::text[], u.seq = j.seq, round(extract(epoch FROM u.free_at - j.created_at)),
    ARRAY(SELECT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id ORDER BY k.rank)
FROM leasequeue_queue q JOIN leasequeue_job j ON j.queue_id = q.id LEFT JOIN leasequeue_ready r ON r.seq = j.seq
LEFT JOIN leasequeue_delayed d ON d.seq = j.seq LEFT JOIN leasequeue_leaseevent e ON e.queue_id = q.id
LEFT JOIN leasequeue_uniquekey u ON u.queue_id = q.id
WHERE q.name = %s
"""
BIG = "ü" * 20_000
SAME: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "plain": ((7,), {}, {}),
    "no arguments": ((), {"first": None}, {}),
    "names": ((1,), {"second": 2}, {}),
    "priority": ((1,), {}, {"priority": 7}),
    "lowest": ((1,), {}, {"priority": -100}),
    "attempts": ((1,), {}, {"max_attempts": 3}),
    "expires": ((1,), {}, {"expires": timedelta(hours=2)}),
    "tags": ((1,), {}, {"tags": {"customer": 7, "release": "1.0", "trial": True, "low": -(2**63)}}),
    "later": ((1,), {}, {"run_after": LATER}),
    "later, tagged": ((1,), {}, {"run_after": LATER.replace(microsecond=0), "tags": {"a": "b"}, "priority": 3}),
    "long past": ((1,), {}, {"run_after": datetime(1999, 12, 31, 23, 59, tzinfo=UTC)}),
    "key": ((1,), {}, {"key": "invoice-7"}),
    "until its start": ((1,), {}, {"key": "invoice-7", "unique_until": "start"}),
    "for a minute": ((1,), {}, {"key": "invoice-7", "unique_for": timedelta(minutes=1)}),
    "for a week": ((1,), {}, {"key": "invoice-7", "unique_for": timedelta(days=7)}),
    "large": ((BIG,), {}, {}),
    "all": ((), {"first": [{"ü": None}]}, {
        "priority": 2, "run_after": LATER, "key": "k", "expires": timedelta(days=30), "tags": {"x": 1},
        "max_attempts": 9,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_it_writes_the_rows_of_the_same_call_in_python(name: str) -> None:
    args, kwargs, options = SAME[name]
    samples.add.using(queue_name="python", **options).enqueue(*args, **kwargs)
    enqueue(payload={"args": args, "kwargs": kwargs}, queue_name="sql", **options)
    (python,), (ours,) = (run(ROWS, [queue]) for queue in ("python", "sql"))
    assert ours == python


def test_a_worker_runs_it_and_its_id_leads_to_the_result() -> None:
    ids = [enqueue(payload=payload) for payload in ({"args": [2, 3]}, {"kwargs": {"first": 4}, "args": []})]
    results = [samples.add.get_result(each) for each in ids]
    assert [(result.status, result.args, result.kwargs) for result in results] == [
        (TaskResultStatus.READY, [2, 3], {}), (TaskResultStatus.READY, [], {"first": 4}),
    ]  # fmt: skip
    assert [run_one(), run_one(), run_one()] == ["completed", "completed", None]
    assert [result.wait() for result in results] == [5, 4]
    assert kinds(results[0].job.pk) == ["enqueued", "claimed", "acked"]  # type: ignore[union-attr]


def test_nulls_are_defaults_and_a_task_without_arguments_needs_none() -> None:
    names = ("queue_name", "priority", "run_after", "key", "unique_for", "unique_until", "expires", "tags",
             "max_attempts", "backend", "project")  # fmt: skip
    enqueue("tests.tasks.samples.echo", None, **dict.fromkeys(names))
    with connection.cursor() as cursor:
        cursor.execute("SELECT leasequeue_enqueue('tests.tasks.samples.echo')")
    assert list(LiveJob.objects.values_list("data", "meta", "rank")) == [(None, None, 0)] * 2


def test_a_backend_and_a_project_are_those_that_it_names() -> None:
    engine.run(engine.create("default", project="acme"))
    enqueue(payload={"args": [1]}, backend="second", project="acme")
    assert LiveJob.objects.get(queue__project="acme").meta == {"backend": "second"}


def test_the_worker_reads_what_codecs_would_have_written(settings: Any) -> None:
    settings.LEASEQUEUE = {"TASK_CODECS": ["uuid"]}
    found = UUID("0b0e2a1c-6f5c-4c86-9b1b-3c4f5a6b7c8d")
    payload = {"args": [{"$uuid": str(found)}]}
    result = samples.aecho.get_result(enqueue(samples.aecho.module_path, payload, max_attempts=1))
    run_one()
    assert samples.calls == [found]
    assert result.args == [found]


@pytest.mark.parametrize("payload", [
    "[" * 120 + "]" * 120, "1e5000", "[" * 3_000 + "]" * 3_000, f"{{\"a\": [-1{'0' * 500}]}}",
])  # fmt: skip
def test_what_python_cannot_read_is_refused(payload: str) -> None:
    with (
        pytest.raises(DatabaseError, match="99 levels and numbers of at most 400 digits"),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT leasequeue_enqueue('a.b', %s::jsonb)", [f'{{"args": [{payload}]}}'])


def test_its_bounds_are_those_of_python() -> None:
    text = function("add_task")
    bounds = [MAX_SPAN_MS, metadata.TAG_NAME, f"-100 AND {TASK_MAX_PRIORITY} ", f"> {metadata.MAX_TAGS}\n",
              f"1 AND {MAX_UNIQUE_BYTES} ", f"1 AND {MAX_TAG_BYTES}\n", f"<= {MAX_KEY_BYTES} ",
              f"> {Settings().MAX_PAYLOAD_BYTES} "]  # fmt: skip
    assert [bound for bound in bounds if str(bound) not in text] == []


def test_its_arguments_are_public() -> None:
    ((found,),) = run("SELECT pg_get_function_arguments('leasequeue_enqueue'::regproc)")
    assert found.split(", ") == [
        "task text",
        "payload jsonb DEFAULT '{}'::jsonb",
        "queue_name text DEFAULT 'default'::text",
        "priority integer DEFAULT 0",
        "run_after timestamp with time zone DEFAULT NULL::timestamp with time zone",
        "key text DEFAULT NULL::text",
        "unique_for interval DEFAULT NULL::interval",
        "unique_until text DEFAULT NULL::text",
        "expires interval DEFAULT NULL::interval",
        "tags jsonb DEFAULT NULL::jsonb",
        "max_attempts integer DEFAULT NULL::integer",
        "backend text DEFAULT 'default'::text",
        "project text DEFAULT ''::text",
    ]


def test_it_is_a_part_of_the_callers_transaction() -> None:
    with transaction.atomic():
        enqueue(payload={"args": [1]}, key="k", run_after=LATER)
        transaction.set_rollback(True)
    assert (LiveJob.objects.count(), UniqueKey.objects.count(), JobEvent.objects.count()) == (0, 0, 0)


def test_the_callers_search_path_is_as_it_was() -> None:
    run("SET LOCAL search_path = public, pg_temp")
    enqueue()
    with pytest.raises(DatabaseError, match="task must be"), transaction.atomic():
        enqueue(None)
    assert run("SHOW search_path") == [("public, pg_temp",)]


class TestAKey:
    def test_that_is_taken_gives_the_id_of_the_job_that_has_it_whoever_made_it(self) -> None:
        first = samples.add.using(key="invoice-7").enqueue(1)
        assert enqueue(payload={"args": [2]}, key="invoice-7") == first.id
        mine = enqueue(payload={"args": [2]}, key="mine")
        again = samples.add.using(key="mine").enqueue(3)
        assert (again.id, again.created, again.args) == (mine, False, [2])
        assert LiveJob.objects.count() == 2

    def test_is_free_when_its_job_has_ended_or_started(self) -> None:
        ids = {enqueue(payload={"args": [1]}, key="end")}
        claim()
        assert enqueue(payload={"args": [1]}, key="end") in ids
        started = enqueue(payload={"args": [1]}, key="start", unique_until="start")
        assert enqueue(payload={"args": [1]}, key="start") == started
        claim()
        assert enqueue(payload={"args": [1]}, key="start") != started

    def test_holds_for_its_time_though_its_job_has_ended(self, leasequeue: Harness) -> None:
        first = enqueue(payload={"args": [1]}, key="k", unique_for=timedelta(days=7))
        leasequeue.drain()
        assert enqueue(payload={"args": [1]}, key="k") == first
        run("UPDATE leasequeue_uniquekey SET free_at = clock_timestamp()")
        assert enqueue(payload={"args": [1]}, key="k") != first

    def test_of_a_job_without_a_task_is_the_same_key(self) -> None:
        (job,) = engine.run(engine.enqueue("default", [NewJob(key="k", unique_until="start")]))
        assert enqueue(key="k") == "k"
        claim()
        assert enqueue(payload={"args": [1]}, key="k") != "k"
        assert not LiveJob.objects.filter(key="k").exists()
        assert UniqueKey.objects.get().seq > job.seq

    @pytest.mark.django_db(transaction=True)
    def test_one_of_two_callers_at_a_time_makes_the_job(self) -> None:
        with open_transaction() as first:
            mine = on(first, key="k")
            with kept_waiting(lambda second: on(second, key="k")) as answer:
                first.connection.commit()
            assert answer.result(60) == mine
        assert LiveJob.objects.count() == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no task": ({"task": None}, "task must be the path of a task, such as 'shop.tasks.send_receipt'; it is NULL."),
    "a word": ({"task": "add"}, "task must be the path of a task, .* it is 'add'"),
    "spaces": ({"task": "a. b"}, "it is 'a. b'"),
    "a long path": ({"task": "a." + "b" * 1_100}, "task must be"),
    "a list": ({"payload": [7]}, r'payload must be {"args": \[...\], "kwargs": {...}}, each optional; it is \[7\].'),
    "arguments": ({"payload": {"order": 7}}, 'payload must be .* it is {"order": 7}'),
    "inputs": ({"payload": {"inputs": {}}}, "payload must be"),
    "args": ({"payload": {"args": {"a": 1}}}, "payload must be"),
    "kwargs": ({"payload": {"args": [1], "kwargs": [1]}}, "payload must be"),
    "priority": ({"priority": 101}, "priority must be an integer from -100 to 100; it is 101."),
    "far": ({"run_after": "9000-01-01 00:00+00"}, "run_after must be a time before the year 9000; it is 9000"),
    "infinity": ({"run_after": "infinity"}, "run_after must be .* it is infinity"),
    "long ago": ({"run_after": "0044-03-15 BC"}, "run_after must be"),
    "no key": ({"key": ""}, "key must be 1 to 512 bytes of text; it is ''."),
    "a long key": ({"key": "ü" * 257}, "key must be 1 to 512 bytes"),
    "until what": ({"unique_until": "end"}, "unique_for and unique_until are about a key: give key as well."),
    "for what": ({"unique_for": timedelta(1)}, "unique_for and unique_until are about a key"),
    "both": ({"key": "k", "unique_until": "end", "unique_for": timedelta(1)}, "give one of them"),
    "until": ({"key": "k", "unique_until": "noon"}, "unique_until must be 'start' or 'end'; it is 'noon'."),
    "for": ({"key": "k", "unique_for": timedelta(0)}, "unique_for must be .* it is 00:00:00"),
    "expires": ({"expires": timedelta(days=-1)}, "expires must be a millisecond to a hundred years; it is -1 day"),
    "expires late": ({"expires": "101 years"}, "expires must be"),
    "tags": ({"tags": ["a"]}, r"tags must be an object of at most 16 names, such as .*; it is \[\"a\"\]."),
    "many tags": ({"tags": {f"t{n}": n for n in range(17)}}, "tags must be an object of at most 16 names"),
    "the name of a tag": ({"tags": {"a__b": 1}}, 'tags: a name is a letter .*; there is "a__b": 1.'),
    "a tag's text": ({"tags": {"a": ""}}, 'there is "a": ""'),
    "a long tag": ({"tags": {"a": "b" * 257}}, "a text of 1 to 256 bytes"),
    "a tag's number": ({"tags": {"a": 1.5}}, 'there is "a": 1.5'),
    "a large number": ({"tags": {"a": 2**63}}, "an integer of 64 bits"),
    "a tag's object": ({"tags": {"a": {}}}, 'there is "a": {}'),
    "a tag of nothing": ({"tags": {"a": None}}, 'there is "a": null'),
    "attempts": ({"max_attempts": 0}, "max_attempts must be an integer from 1; it is 0."),
    "backend": ({"backend": ""}, "backend must be an alias in TASKS; it is ''."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_it_does_not_take(name: str) -> None:
    options, said = WRONG[name]
    with pytest.raises(DatabaseError, match=said) as caught, transaction.atomic():
        enqueue(**options)
    diagnosis = caught.value.__cause__.diag  # type: ignore[union-attr]
    assert (diagnosis.sqlstate, "how-to/enqueue-from-sql.md" in diagnosis.message_hint) == ("22023", True)
    assert not LiveJob.objects.exists()


def test_a_payload_that_is_too_large() -> None:
    with pytest.raises(DatabaseError, match="payload must have at most 1048576 bytes; it has 10485") as caught:
        enqueue(payload={"args": ["x" * 1_048_576]})
    assert caught.value.__cause__.diag.sqlstate == "54000"  # type: ignore[union-attr]


def test_a_queue_that_is_missing_and_queues_that_hold_no_tasks() -> None:
    engine.run(engine.create("log", preset="topics", type="log"))
    engine.run(engine.create("capped", preset="django", cap_records=5))
    for name, project, state, said in [
        ("gone", "", "42704", "There is no queue 'gone'."),
        ("default", "acme", "42704", "There is no queue 'default' in project 'acme'."),
        ("log", "", "42809", "queue_name must be a queue without a cap; 'log' is a log."),
        ("capped", "", "42809", "'capped' is one with a cap."),
    ]:  # fmt: skip
        with pytest.raises(DatabaseError, match=said) as caught, transaction.atomic():
            enqueue(queue_name=name, project=project)
        assert caught.value.__cause__.diag.sqlstate == state  # type: ignore[union-attr]
    assert not LiveJob.objects.exists()
