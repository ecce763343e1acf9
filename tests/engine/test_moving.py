"""Queues in two databases: commands and doors reach both, and a queue moves from one to the other in use."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import connections, transaction
from django.test import Client, override_settings

from django_leasequeue import Queue, engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.queues import moving, queues, routing
from django_leasequeue.engine.runner import ConnectionExecutor
from django_leasequeue.exceptions import InvalidOption, QueueBusy, QueueNotFound
from django_leasequeue.models import OperatorAction, StoredJob
from django_leasequeue.reaper import Reaper
from django_leasequeue.tasks import group
from tests.engine.helpers import kept_waiting, open_transaction
from tests.http.client import Api
from tests.support.commands import said
from tests.support.documents import blocks
from tests.support.temporary_server import TemporaryServer
from tests.support.threads import ThreadResult
from tests.tasks import samples

ROUTED = {"DATABASES": ["default", "far"], "ROUTER": f"{__name__}.by_name"}


def by_name(project: str, queue: str) -> str:
    return "far" if queue in ("poor", "far") else "default"


def placed() -> dict[str, int]:
    return {alias: StoredJob.objects.using(alias).count() for alias in ("default", "far")}


def end_moves() -> None:
    reaper = Reaper("default")
    reaper.lead()
    try:
        reaper.round()
    finally:
        reaper.resign()
    routing.routes().forget()


def test_a_queue_moves_while_it_is_in_use(far: str, clock: Any) -> None:
    mail = Queue("mail", dead_letter="self", lease_ms=60_000)
    mail.enqueue(1)
    mail.enqueue(2)
    (held,) = mail.claim(1)
    assert "draining" in said("leasequeue_queues", "move", "mail", "--to", "far")
    assert engine.run(engine.get("mail"), "far").config == engine.run(engine.get("mail"), "default").config
    mail.enqueue(3)
    samples.add.using(queue_name="mail").enqueue(1)
    assert Api().post("topics/mail", {"records": [{"data": 4}]}).status == 200
    assert placed() == {"default": 2, "far": 3}
    # Leases begin and end where they were until nothing is left there.
    mail.ack(held)
    end_moves()
    (second,) = mail.claim(5)
    assert second.payload == 2
    clock.advance(seconds=routing.SETTLED + 1)
    end_moves()
    assert "draining" in said("leasequeue_queues", "moves")
    mail.ack(second)
    end_moves()
    assert "done" in said("leasequeue_queues", "moves")
    assert [job.payload for job in mail.claim(1)] == [3]
    assert OperatorAction.objects.get().action == "move_queue"


def test_the_how_to_is_true(far: str) -> None:
    settings, router = [block.text for block in blocks("how-to/several-servers.md") if block.language == "python"]
    scope: dict[str, Any] = {"DATABASES": {}}
    exec(settings, scope)
    exec(router, globals())
    assert list(scope["DATABASES"]) == ["far"]
    told = {**scope["LEASEQUEUE"], "ROUTER": f"{__name__}.{scope['LEASEQUEUE']['ROUTER'].rpartition('.')[2]}"}
    with override_settings(LEASEQUEUE=told):
        Queue("mail").enqueue(1)
        Queue("bulk.mail").enqueue(1)
        assert placed() == {"default": 1, "far": 1}
        for block in blocks("how-to/several-servers.md"):
            if block.language == "shell" and "leasequeue_queues" in block.text:
                printed_lines = [said(*line.split()[2:]) for line in block.text.splitlines()]
        assert all("mail" in lines and "draining" in lines for lines in printed_lines)


def test_a_move_waits_until_every_process_knows_of_it(far: str, clock: Any) -> None:
    engine.run(engine.create("mail"))
    moving.move("mail", "far")
    end_moves()
    assert [each.draining for each in moving.moves()] == [True]
    with pytest.raises(InvalidOption, match="is still moving to 'far'"):
        moving.move("mail", "default")
    clock.advance(seconds=routing.SETTLED + 1)
    end_moves()
    assert [each.draining for each in moving.moves()] == [False]
    moving.move("mail", "default")
    assert routing.homes("", "mail") == ["default", "far"]


def drain(source: str, target: str) -> bool:
    """Let the time pass that a move takes, and the reaper look; return whether the queue is drained."""
    assert engine_clock.installed is not None
    engine_clock.installed.advance(seconds=routing.SETTLED + 1)
    end_moves()
    return not next(each.draining for each in moving.moves() if (each.source, each.alias) == (source, target))


@pytest.mark.parametrize("size", [1, 150])
def test_a_move_waits_for_a_transaction_that_enqueued_before_it(far: str, clock: Any, size: int) -> None:
    mail = Queue("mail")
    engine.run(engine.create("mail"))
    with open_transaction() as writer:
        writer.connection.execute("SET application_name = 'shop'")
        writer.run(engine.enqueue("mail", [engine.NewJob(data=1)] * size))
        moving.move("mail", "far")
        mail.enqueue("new")
        assert not drain("default", "far")
        ((waits_for,),) = [each.writers for each in moving.moves()]
        assert (waits_for.pid, waits_for.name) == (writer.connection.info.backend_pid, "shop")
        assert f"may still add jobs: pid {waits_for.pid} (shop, open for " in said("leasequeue_queues", "moves")
        writer.connection.commit()
    end_moves()
    routing.routes().forget()
    old = mail.claim(size)
    assert [job.payload for job in old] == [1] * size
    mail.ack_many(old)
    assert drain("default", "far")
    assert [job.payload for job in mail.claim(5)] == ["new"]


def test_a_move_waits_for_no_transaction_that_began_after_it(far: str, clock: Any) -> None:
    engine.run(engine.create("mail"))
    engine.run(engine.create("other"))
    moving.move("mail", "far")
    with open_transaction() as old, open_transaction() as new:
        old.run(engine.enqueue("other", [engine.NewJob()]))
        assert not drain("default", "far")
        new.run(engine.enqueue("other", [engine.NewJob()]))
        assert not drain("default", "far")
        old.connection.rollback()
        assert drain("default", "far")


def test_a_move_waits_for_a_call_that_waits_for_its_key(far: str, clock: Any) -> None:
    engine.run(engine.create("mail"))
    unique = engine.NewJob(unique_key="a", unique_until="end")
    with open_transaction() as holder:
        holder.run(engine.enqueue("mail", [unique]))
        with kept_waiting(lambda late: late.run(engine.enqueue("mail", [unique]))) as answer:
            moving.move("mail", "far")
            assert not drain("default", "far")
            assert len(next(each.writers for each in moving.moves())) == 2
            holder.connection.rollback()
            answer.result()
        assert not drain("default", "far")
        assert [each.left for each in moving.moves()] == [1]


@pytest.mark.parametrize("of_workflow", [False, True])
def test_what_waits_for_a_commit_goes_where_the_queue_is_by_then(far: str, clock: Any, of_workflow: bool) -> None:
    engine.run(engine.create("poor"), far)
    add = samples.add.using(queue_name="poor")
    with override_settings(LEASEQUEUE={**ROUTED, "ENQUEUE_AFTER_COMMIT_OF": "default"}):
        with transaction.atomic():
            result: Any = group(add.si(1)).enqueue() if of_workflow else add.enqueue(1)
            assert placed() == {"default": 0, "far": 0}
            with ThreadResult(lambda: (moving.move("poor", "default"), drain("far", "default"))) as moved:
                assert moved.value()[1]
        assert placed() == {"default": 1, "far": 0}
        (job,) = Queue("poor").claim(1)
        if of_workflow:
            assert [member.state for member in result.members()] == ["running"]
        else:
            assert (job.key, samples.add.get_result(result.id).status.name) == (result.id, "RUNNING")


@pytest.mark.slow  # restarts a server
def test_a_move_waits_for_a_prepared_transaction(far: str, far_server: TemporaryServer, clock: Any) -> None:
    connections[far].close()
    with far_server.connect() as settings:
        settings.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
    far_server.stop()
    far_server.start()
    engine.run(engine.create("poor"), far)
    with override_settings(LEASEQUEUE=ROUTED), connect(far) as raw:
        raw.execute("BEGIN")
        ConnectionExecutor(raw).run(engine.enqueue("poor", [engine.NewJob(data=1)]))
        moving.move("poor", "default")
        assert not drain("far", "default")
        raw.execute("PREPARE TRANSACTION 'shop-7'")
        assert not drain("far", "default")
        assert "the prepared transaction 'shop-7', open for " in said("leasequeue_queues", "moves")
        with pytest.raises(QueueBusy, match="prepared transaction 'shop-7'"), pytest.MonkeyPatch.context() as patch:
            patch.setattr(queues, "LOOKS", 2)
            engine.run(engine.delete("poor", if_empty=True), far)
        raw.execute("COMMIT PREPARED 'shop-7'")
        assert not drain("far", "default")
        poor = Queue("poor")
        (job,) = poor.claim(1)
        poor.ack(job)
        assert drain("far", "default")


def test_a_source_that_cannot_be_written_is_not_drained(far: str, far_server: TemporaryServer, clock: Any) -> None:
    engine.run(engine.create("poor"), far)
    with override_settings(LEASEQUEUE=ROUTED), far_server.connect() as settings:
        moving.move("poor", "default")
        option = f"ALTER DATABASE {settings.info.dbname} {{}} default_transaction_read_only"
        settings.execute(f"{option.format('SET')} = on")
        try:
            assert not drain("far", "default")
        finally:
            settings.execute("SET default_transaction_read_only = off")
            settings.execute(option.format("RESET"))
        assert drain("far", "default")


@pytest.mark.parametrize(("name", "to", "error", "words"), [
    ("mail", "nowhere", InvalidOption, r"no database 'nowhere' .* names 'default', 'far'"),
    ("mail", "default", InvalidOption, "in the database 'default' already"), ("none", "far", QueueNotFound, "none"),
    ("shared", "far", InvalidOption, "cannot move alone: 'mail' has the dead-letter topic 'shared'"),
    ("mail", "far", InvalidOption, "cannot move alone: 'other' has the dead-letter topic 'shared'"),
    ("a b", "far", InvalidOption, "a b"),
])  # fmt: skip
def test_what_cannot_move_is_said(far: str, name: str, to: str, error: type[Exception], words: str) -> None:
    for queue, dead_letter in (("mail", "shared"), ("other", "shared"), ("shared", None)):
        engine.run(engine.create(queue, dead_letter=dead_letter))
    with pytest.raises(error, match=words):
        moving.move(name, to)
    assert moving.moves() == []


def test_a_dead_letter_topic_moves_with_its_queue(far: str) -> None:
    engine.run(engine.create("mail", dead_letter="mail.dlq"))
    engine.run(engine.create("mail.dlq"))
    assert {each.name for each in moving.move("mail", "far")} == {"mail", "mail.dlq"}


@pytest.fixture
def dead(far: str) -> int:
    engine.run(engine.create("poor", dead_letter="self", max_deliveries=1, exhaust_at="release"), far)
    engine.run(engine.create("near"))
    engine.run(engine.enqueue("poor", [engine.NewJob(data=1)]), far)
    (job,) = engine.run(engine.claim("poor", "w"), far)
    engine.run(engine.nack([job.seq], "w"), far)
    return job.seq


def test_a_dead_letter_stays_in_its_database(dead: int) -> None:
    assert "poor" in said("leasequeue_dlq", "list", "--database", "far")
    with override_settings(LEASEQUEUE=ROUTED):
        engine.run(engine.create("close"))
        with pytest.raises(CommandError, match="cannot be redriven into 'close', which is in 'default'"):
            said("leasequeue_dlq", "redrive", "--database", "far", "--to", "close", "--seq", str(dead), "--yes")
        with pytest.raises(InvalidOption, match="'far' cannot be redriven into 'close'"):
            engine.run(engine.redrive("poor", [dead], to="close"), "far")


def test_the_commands_doors_and_pages_reach_both(dead: int) -> None:
    found = json.loads(said("leasequeue_status", "--json"))
    assert {alias: [row["queue"] for row in each["queues"]] for alias, each in found["databases"].items()} == {
        "default": ["near"], "far": ["poor"],
    }  # fmt: skip
    assert said("leasequeue_status").count("Database ") == 2
    assert set(json.loads(said("leasequeue_verify", "--json"))) == {"default", "far"}
    assert "poor" in (listed := said("leasequeue_queues", "list"))
    assert "near" in listed
    assert said("runreaper", "--once").count("Done: ") == 2
    with override_settings(LEASEQUEUE={**ROUTED, "API": {"ACCESS": "open"}}):
        assert {topic["topic"] for topic in Api().get("topics")["topics"]} == {"near", "poor"}
        zaqar = Client(headers={"client-id": str(uuid4()), "accept": "application/json"})
        assert [queue["name"] for queue in zaqar.get("/v1/queues").json()["queues"]] == ["near", "poor"]
        assert [zaqar.get(f"/v1/queues/{name}").status_code for name in ("near", "poor", "none")] == [204, 204, 404]
        page = Client().get("/metrics").content.decode()
    for alias, queue in (("default", "near"), ("far", "poor")):
        assert f'leasequeue_queue_paused{{database="{alias}",project="",queue="{queue}"}} 0.0' in page
    admin = Client()
    admin.force_login(User.objects.create_superuser("boss"))
    address = "/admin/leasequeue/queue/"
    assert "near" in admin.get(address).content.decode()
    answer = admin.get(address, {"leasequeue_database": "far"})
    assert (answer.status_code, answer["Location"]) == (302, address)
    page = admin.get(address).content.decode()
    assert ("poor" in page, ">near<" in page) == (True, False), "the admin shows the chosen database"
    assert admin.get("/admin/leasequeue/deadletter/").status_code == 200


def test_a_stopped_server_is_a_problem_of_its_own(far: str) -> None:
    engine.run(engine.create("near"))
    away = {**connections[far].settings_dict, "NAME": "nowhere"}
    connections[far].close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections[far], "settings_dict", away)
        found = json.loads(said("leasequeue_status", "--json"))
        assert list(found["databases"]) == ["default"]
        assert any("The database far does not answer" in problem for problem in found["problems"])
        page = Client().get("/metrics").content.decode()
        assert 'leasequeue_database_reached{database="far"} 0.0' in page
        assert 'leasequeue_jobs{database="default",project="",queue="near",state="ready"} 0.0' in page
