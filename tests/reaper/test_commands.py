"""The commands about queues: declared ones against the database, how they are doing, and what deserves attention."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from django_leasequeue import engine
from django_leasequeue.engine import LimitValues, NewJob
from django_leasequeue.engine.flow.declared import Limited
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.engine.queues import declared
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import FloorKind, LeaseEvent, Queue, QueueFloor, RecurringTask, Worker
from django_leasequeue.reaper import Reaper, status
from django_leasequeue.reaper.concerns import BOUNDS
from tests.engine.helpers import claim, enqueue, make, open_transaction, put
from tests.support.commands import said, tried
from tests.support.rows import rows

pytestmark = pytest.mark.usefixtures("transactional_db")


def declare(settings: Any, tasks: Any = None, **queues: Any) -> None:
    settings.LEASEQUEUE = {"QUEUES": queues}
    settings.TASKS = tasks or {}


def command(*arguments: str) -> str:
    return said("leasequeue_queues", *arguments)


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        command(*arguments)
    return str(error.value)


def test_an_unknown_preset_is_refused(settings) -> None:
    declare(settings, mail={"preset": "celery"})
    with pytest.raises(InvalidOption, match="not a preset"):
        declared.drift("default")
    assert "not a preset" in refused("sync")


def test_missing_queues_are_made_and_named_options_are_set(settings) -> None:
    declare(settings, mail={"preset": "codeq", "lease_ms": 5_000}, plain={}, old={"max_deliveries": 4})
    make("old", preset="zaqar", lease_ms=70_000)
    found = {str(item) for item in declared.drift("default")}
    assert found == {"mail: missing", "plain: missing", "old: max_deliveries 0 -> 4"}
    assert len(declared.apply("default")) == 3
    assert declared.apply("default") == []
    mail, plain, old = (Queue.objects.get(name=name) for name in ("mail", "plain", "old"))
    assert (mail.requeue, mail.lease_ms) == ("back", 5_000)
    assert (plain.dead_letter, plain.lease_ms) == ("self", 60_000), "the default preset"
    assert (old.max_deliveries, old.lease_ms, old.durability) == (4, 70_000, "fsync"), "the rest stays"


def test_a_declared_type_that_differs_is_left_and_named(settings) -> None:
    make("plain")
    declare(settings, plain={"type": "log"}, fresh={})
    (blocked, _) = declared.apply("default")
    assert blocked.blocked is not None
    assert Queue.objects.get(name="plain").type == "queue"
    assert Queue.objects.filter(name="fresh").exists()
    assert refused("sync") == "Left as they are: plain."


def test_what_a_task_backend_declares(settings) -> None:
    backend = {
        "BACKEND": "django_leasequeue.tasks.LeaseQueueBackend",
        "QUEUES": ["mail", "plain"],
        "OPTIONS": {"project": "shop", "queues": {"mail": {"lease_ms": 9_000, "preset": "codeq"}}},
    }
    declare(settings, {"default": backend}, mail={"lease_ms": 1_000})
    declared.apply("default")
    assert Queue.objects.get(project="shop", name="mail").lease_ms == 9_000
    assert Queue.objects.get(project="", name="mail").lease_ms == 1_000
    engine.run(engine.configure("plain", project="shop", lease_ms=80_000))
    assert declared.drift("default") == [], "nothing is named for it"
    engine.run(engine.configure("mail", project="shop", preset="codeq", lease_ms=9_000, requeue="original"))
    assert [str(item) for item in declared.drift("default")] == ["shop/mail: requeue 'original' -> 'back'"]
    declared.apply("default")
    assert declared.drift("default") == []


def test_sync(settings) -> None:
    declare(settings, mail={"lease_ms": 5_000})
    text, error = tried("leasequeue_queues", "sync", "--dry-run")
    assert error is not None
    assert (text, str(error), error.returncode) == ("would make mail: missing\n", "1 queues differ.", 1)
    assert not Queue.objects.exists()
    assert command("sync") == "make mail: missing\n"
    assert command("sync") == "The database is as the settings declare.\n"
    assert command("sync", "--dry-run") == "The database is as the settings declare.\n"
    command("set", "mail", "lease_ms=7000")
    assert command("sync") == "change mail: lease_ms 7000 -> 5000\n"


def test_list() -> None:
    make("alpha")
    make("beta", type="log")
    make("other", project="shop")
    put(3, queue="alpha")
    claim(1, queue="alpha")
    put(2, queue="beta")
    lines = command("list").splitlines()
    assert [line.split()[:7] for line in lines] == [
        ["name", "type", "ready", "delayed", "in", "flight", "dead"],
        ["alpha", "queue", "2", "0", "1", "0", "0"],
        ["beta", "log", "0", "0", "0", "0", "2"],
    ]
    assert command("list", "--prefix", "b").count("\n") == 2
    assert command("list", "--after", "alpha", "--size", "1").count("beta") == 1
    assert [row["queue"] for row in json.loads(command("list", "--project", "shop", "--json"))] == ["other"]
    assert command("list", "--project", "nobody").startswith("name")
    engine.run(engine.pause("alpha"))
    assert "paused" in command("list")


def test_show_tells_counts_and_options() -> None:
    make("mail", preset="codeq")
    put(2, queue="mail")
    text = command("show", "mail")
    assert "ready: 2\n" in text
    assert '  requeue = "back"  (default "original")\n' in text
    answer = json.loads(command("show", "mail", "--json"))
    assert (answer["ready"], answer["config"]["lease_ms"]) == (2, 300_000)


def test_a_queue_that_is_not_there_is_refused() -> None:
    make("mail")
    for word in ("show", "pause"):
        assert "There is no queue 'letters'" in refused(word, "letters")
    assert "in project 'shop'" in refused("show", "mail", "--project", "shop")


def test_pause_and_resume() -> None:
    make("mail")
    put(1, queue="mail")
    assert command("pause", "mail") == "mail is paused\n"
    assert claim(1, queue="mail") == []
    assert command("resume", "mail") == "mail goes on\n"
    assert len(claim(1, queue="mail")) == 1


def test_set() -> None:
    make("mail", metadata={"a": 1})
    text = command("set", "mail", "lease_ms=60000", "dead_letter=self", "log_enqueued=false", 'metadata={"b": 2}')
    assert "lease_ms: 30000 -> 60000\n" in text
    assert 'dead_letter: null -> "self"\n' in text
    queue = Queue.objects.get()
    assert (queue.lease_ms, queue.dead_letter, queue.log_enqueued, queue.metadata) == (60_000, "self", False, {"b": 2})
    command("set", "mail", "dead_letter=none")
    assert Queue.objects.get().dead_letter is None
    command("set", "--preset", "codeq", "mail", "lease_ms=1000")
    assert (Queue.objects.get().requeue, Queue.objects.get().lease_ms) == ("back", 1_000)


@pytest.mark.parametrize(("arguments", "text"), [
    (["mail"], "Nothing to change"), (["mail", "lease_ms"], "is not OPTION=VALUE"),
    (["mail", "lease=5"], "'lease' is not an option"), (["mail", "lease_ms=soon"], "lease_ms must be an integer"),
    (["mail", "type=log"], "cannot change"), (["letters", "lease_ms=5000"], "There is no queue 'letters'"),
])  # fmt: skip
def test_set_refuses(arguments, text) -> None:
    make("mail")
    assert text in refused("set", *arguments)
    assert Queue.objects.get().lease_ms == 30_000


def worker(clock: Any, node: str = "w1", seen: int = 0, **fields: Any) -> Worker:
    now = clock.now
    return rows(Worker).create(
        node=node, host="h", pid=1, queues=["work"], concurrency=8, running=[{"seq": 1}], completed=5, started_at=now,
        seen_at=now - timedelta(seconds=seen), **fields,
    )  # fmt: skip


def test_all_is_well(reaper: Reaper, clock) -> None:
    make("work")
    put(3)
    claim(1)
    RecurringTask.objects.create(
        name="report", schedule="@daily", task="x", next_tick_at=clock.now + timedelta(hours=1)
    )
    reaper.tick()
    clock.advance(minutes=1)
    worker(clock, seen=20)
    found = status.read_status("default")
    assert found.problems == []
    assert found.leader is not None
    assert [(row.queue, row.ready, row.in_flight) for row in found.queues] == [("work", 3, 0)]
    assert (found.workers[0].running, found.workers[0].seen) == (1, 20.0)
    assert found.log.free >= 3
    text = said("leasequeue_status", "--check")
    for part in ("leads from local, term 1", "work", "w1", "20 s ago", "last claim", "report", "@daily"):
        assert part in text
    assert "To look at" not in text


def test_what_deserves_attention(clock) -> None:
    make("work")
    put(1)
    worker(clock, seen=31)
    late = {"schedule": "@daily", "task": "x", "next_tick_at": clock.now - timedelta(seconds=90)}
    RecurringTask.objects.create(name="late", **late)
    RecurringTask.objects.create(name="off", enabled=False, **late)
    rows(LeaseEvent).create(id=10**12, txid=1, occurred_at=clock.now, queue_id=1, low=1, high=1, seqs=[1], kind=1)
    text = "\n".join(status.read_status("default").problems)
    for part in (
        "No reaper leads",
        "Worker w1 was not seen for 31 s.",
        "Nobody claims from work (last claim: never), and jobs are ready.",
        "Recurring task late is 1 min 30 s overdue",
        "1 events of the lease log are in its default partition",
    ):
        assert part in text
    shown, error = tried("leasequeue_status", "--check")
    assert error is not None
    assert ("To look at:" in shown, "5 things deserve attention" in str(error), error.returncode) == (True, True, 1)
    said("leasequeue_status")


def test_a_transaction_that_is_open_for_long() -> None:
    make("work")
    with open_transaction() as other:
        other.connection.execute("SET application_name = 'reporting'")
        other.run(engine.enqueue("work", [engine.NewJob()]))
        assert "A transaction of reporting (pid" in "\n".join(
            status.read_status("default", bounds=BOUNDS._replace(transaction=-1)).problems
        )


def test_a_queue_that_no_worker_serves_or_that_waits_too_long(reaper: Reaper, clock) -> None:
    make("a")
    make("orphaned", project="shop")
    make("slow")
    put(3, queue="orphaned", project="shop", name="shop.tasks.send")
    put(2, queue="slow")
    reaper.tick()
    worker(clock, seen=0)
    rows(Worker).update(queues=["slow"])
    start = "Start `manage.py runworker --queues orphaned --project shop`."
    assert status.read_status("default", size=1).problems == [
        f"No worker listens to shop/orphaned, and tasks are ready. {start}"
    ]
    clock.advance(minutes=31)
    rows(Worker).update(seen_at=clock.now)
    found = "\n".join(status.read_status("default", size=1).problems)
    assert "Jobs of slow have been ready for 31 min: its workers do not keep up." in found
    assert "Jobs of slow" not in said("leasequeue_status", "--waiting", "3600")
    with pytest.raises(CommandError, match="take 0 to"):
        said("leasequeue_status", "--late", "-1")
    with pytest.raises(CommandError, match="--size must be"):
        said("leasequeue_status", "--size", "0")
    assert len(status.read_status("default", size=2).queues) == 2


def test_projects_and_json(reaper: Reaper, clock) -> None:
    make("work")
    make("work", project="shop")
    put(2, project="shop")
    reaper.tick()
    text = said("leasequeue_status")
    assert "Projects (newest samples)" in text
    answer = json.loads(said("leasequeue_status", "--json", "--project", "shop"))
    assert [row["ready"] for row in answer["queues"]] == [2]
    assert {row["project"]: row["ready"] for row in answer["totals"]} == {"": 0, "shop": 2}
    assert answer["leader"]["address"]


def test_limits_that_jobs_wait_for(clock) -> None:
    make("work")
    free = NewJob(limit=Limited("b", LimitValues("free", concurrency=9)))
    enqueue(*[NewJob(limit=Limited("a", LimitValues("one", concurrency=1))) for _ in range(3)], free)
    assert len(claim(9)) == 2
    (line,) = status.read_status("default").limits
    assert line == status.LimitLine("one", "1 at a time", keys=1, waiting=2, taken=1)
    assert "Limits that jobs wait for" in said("leasequeue_status")


@pytest.mark.parametrize("words", [
    *(f"{command} --database nope" for command in (
        "runreaper --once", "leasequeue_status", "leasequeue_tasks list", "leasequeue_dlq list",
        "leasequeue_queues list", "leasequeue_limits list", "leasequeue_verify",
        "leasequeue_index list", "leasequeue_restored",
    )),
    "leasequeue_dlq retry --dry-run --seq 99999999999999999999", "leasequeue_dlq retry --yes --jitter nan",
    "leasequeue_apikey create x --days 99999999999", "leasequeue_apikey create x --days nan",
    "leasequeue_limits set x --rate 1 --per inf", "leasequeue_restored --wait nan",
])  # fmt: skip
def test_a_value_that_cannot_be_is_refused_in_a_line(words: str) -> None:
    out, failure = tried(*words.split())
    assert (out, len(str(failure).splitlines())) == ("", 1)


def test_one_round_of_the_reaper_raises_floors() -> None:
    make("work")
    assert "floors" in said("runreaper", "--once")
    assert QueueFloor.objects.filter(kind=FloorKind.CLAIM).exists()


def test_what_others_named_is_shown_in_one_line_and_does_nothing_to_a_terminal() -> None:
    engine.run(pause_task("shop.pay\nAll is well.\x1b[31m"))
    for words in ("leasequeue_status", "leasequeue_tasks list"):
        assert r"shop.pay All is well.\x1b[31m" in said(*words.split())
