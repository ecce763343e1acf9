"""Declared queues against the database, and the command for queues."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import engine
from django_leasequeue.engine.queues import declared
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import Queue
from tests.engine.helpers import claim, make, put

pytestmark = pytest.mark.django_db


def declare(settings: Any, tasks: Any = None, **queues: Any) -> None:
    settings.LEASEQUEUE = {"QUEUES": queues}
    settings.TASKS = tasks or {}


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("leasequeue_queues", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        command(*arguments)
    return str(error.value)


def test_missing_queues_are_made_and_named_options_are_set(settings) -> None:
    declare(settings, mail={"preset": "celery"})
    with pytest.raises(InvalidOption, match="not a preset"):
        declared.drift("default")
    assert "not a preset" in refused("sync")
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
    declare(settings, plain={"type": "log"}, fresh={})
    (blocked, _) = declared.apply("default")
    assert blocked.blocked is not None
    assert Queue.objects.get(name="plain").type == "queue", "a type cannot be changed"
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
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command("leasequeue_queues", "sync", "--dry-run", stdout=out)
    assert (str(error.value), error.value.returncode) == ("1 queues differ.", 1)
    assert out.getvalue() == "would make mail: missing\n"
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


def test_show() -> None:
    make("mail", preset="codeq")
    put(2, queue="mail")
    text = command("show", "mail")
    assert "ready: 2\n" in text
    assert '  requeue = "back"  (default "original")\n' in text
    answer = json.loads(command("show", "mail", "--json"))
    assert (answer["ready"], answer["config"]["lease_ms"]) == (2, 300_000)
    assert "There is no queue 'letters'" in refused("show", "letters")
    assert "in project 'shop'" in refused("show", "mail", "--project", "shop")


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


def test_pause_and_resume() -> None:
    make("mail")
    put(1, queue="mail")
    assert command("pause", "mail") == "mail is paused\n"
    assert claim(1, queue="mail") == []
    assert command("resume", "mail") == "mail goes on\n"
    assert len(claim(1, queue="mail")) == 1
    assert "There is no queue" in refused("pause", "letters")
