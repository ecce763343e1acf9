"""Every deed of an operator and its line of the audit are one transaction: both are there, or neither."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from django.db import DatabaseError, connection

from django_leasequeue import engine
from django_leasequeue.engine import Failure, LimitValues, NewJob, Node
from django_leasequeue.engine.dead.bulkoperation import change_operation
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.http.access import create_key, revoke_key, rotate_key
from django_leasequeue.management.commands.leasequeue_dlq import Command as DlqCommand
from django_leasequeue.models import (
    ApiKey,
    BulkOperation,
    Limit,
    LiveJob,
    OperatorAction,
    PausedTask,
    Queue,
    RecurringTask,
    Worker,
)
from tests.admin.letters import bury, give_back, graves, start, worker
from tests.admin.pages import admin_url, boss, look
from tests.engine.helpers import claim, one, put
from tests.support.commands import said
from tests.support.rows import rows

pytestmark = pytest.mark.django_db(transaction=True)

WORKFLOW = UUID(int=7)

#: Tables with deeds in them: all of ours but the audit and the partitions of the log.
_DEEDS = """SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relispartition AND relname LIKE 'leasequeue\\_%'
    AND relname <> 'leasequeue_operatoraction' AND relnamespace = 'public'::regnamespace"""


class Place:
    """A queue with a job of each kind, a worker, an operation and a key, and somebody who may do everything."""

    def __init__(self) -> None:
        self.queue = graves()
        self.letter, self.other = bury(2)
        self.leased, self.ready = put(2)
        job = one()
        assert job.seq == self.leased
        self.claim = job.token
        self.worker = worker()
        self.key, _ = create_key("before", ["read"])
        self.client = boss()

    def post(self, name: str, /, *args: Any, **data: Any) -> Any:
        return self.client.post(admin_url(name, *args), data)

    def options(self) -> None:
        form = self.client.get(admin_url("queue_options", self.queue)).context["form"]
        data = {name: form[name].value() for name in form.fields} | {"max_deliveries": 9, "metadata": "{}"}
        data = {name: "" if value is None else value for name, value in data.items() if value is not False}
        self.post("queue_options", self.queue, **data)

    def confirmed(self, kind: str, **asked: Any) -> None:
        page = self.post("deadletters_act", action=kind, **asked)
        self.post("deadletters_act", action=kind, confirmed="1", shown=page.context_data["shown"], **asked)

    def edit(self) -> None:
        form = {"data": '{"args": [7], "kwargs": {}}'}
        page = self.post("deadletters_edit", self.letter, **form)
        self.post("deadletters_edit", self.letter, **form, confirmed="1", dead_at=page.context_data["dead_at"])

    def operation(self, change: str) -> None:
        self.post("bulkoperation_change", BulkOperation.objects.get().pk, change=change)

    def key_form(self, name: str, /, *args: Any) -> None:
        self.post(name, *args, name="billing", scopes=["read"], topics="", project="", rate_per_second="",
                  expires_at_0="", expires_at_1="")  # fmt: skip

    def keys(self, action: str, **more: Any) -> None:
        self.post("apikey_changelist", action=action, _selected_action=self.key.pk, **more)


class Deed(NamedTuple):
    action: str
    do: Callable[[Place], Any]
    source: str = "admin"
    #: What is done before, so that there is something to do.
    before: Callable[[Place], Any] = lambda place: None


def asked(place: Place) -> None:
    start("retry", "queue=work")


def asked_and_paused(place: Place) -> None:
    engine.run(change_operation(start("retry", "queue=work").pk, "pause"))


def workflow(place: Place) -> None:
    job = NewJob({}, name="step")
    engine.run(engine.start_workflow([Node("work", job), Node("work", job, (0,))], WORKFLOW))


def failed_workflow(place: Place) -> None:
    workflow(place)
    give_back(*claim(2), failure=Failure("E", "no"))
    engine.run(engine.advance([place.queue]))


def limit(place: Place) -> None:
    engine.run(engine.set_limits([LimitValues("api", concurrency=1)]))


DEEDS = [
    Deed("pause", lambda p: p.post("queue_act", p.queue, action="pause")),
    Deed("resume", lambda p: p.post("queue_act", p.queue, action="resume"),
         before=lambda p: engine.run(engine.pause("work"))),
    Deed("pause_task", lambda p: p.post("task_act", action="pause", name="shop.tasks.pay")),
    Deed("resume_task", lambda p: p.post("task_act", action="resume", name="shop.tasks.pay"),
         before=lambda p: engine.run(pause_task("shop.tasks.pay"))),
    Deed("pause_task", lambda p: said("leasequeue_tasks", "pause", "shop.tasks.pay"), "command"),
    Deed("resume_task", lambda p: said("leasequeue_tasks", "resume", "shop.tasks.pay"), "command",
         before=lambda p: engine.run(pause_task("shop.tasks.pay"))),
    Deed("edit_queue", Place.options),
    Deed("purge", lambda p: p.post("queue_act", p.queue, action="purge", states=["ready"], typed="work")),
    Deed("cancel", lambda p: p.post("job_act", p.ready, action="cancel")),
    Deed("release", lambda p: p.post("job_act", p.leased, action="release", claim=p.claim)),
    Deed("stop_worker", lambda p: p.post("worker_changelist", action="stop", _selected_action=p.worker.pk)),
    Deed("retry", lambda p: p.confirmed("retry", scope="selection", seq=p.letter)),
    Deed("discard", lambda p: p.confirmed("discard", scope="selection", seq=p.letter, reason="a test")),
    Deed("retry", lambda p: p.confirmed("retry", scope="filter", filter="queue=work")),
    Deed("edit", Place.edit),
    Deed("retry.pause", lambda p: p.operation("pause"), before=asked),
    Deed("retry.resume", lambda p: p.operation("resume"), before=asked_and_paused),
    Deed("retry.cancel", lambda p: p.operation("cancel"), before=asked),
    Deed("cancel_workflow", lambda p: p.post("workflow_act", WORKFLOW, action="cancel"), before=workflow),
    Deed("retry_workflow", lambda p: p.post("workflow_act", WORKFLOW, action="retry"), before=failed_workflow),
    Deed("set_limit", lambda p: p.post("limit_change", Limit.objects.get().pk, concurrency="9"), before=limit),
    Deed("reset_limit", lambda p: p.post("limit_changelist", action="reset", _selected_action=Limit.objects.get().pk),
         before=limit),
    Deed("set_limit", lambda p: said("leasequeue_limits", "set", "api", "--concurrency", "9"), "command", limit),
    Deed("create_key", lambda p: p.key_form("apikey_add")),
    Deed("change_key", lambda p: p.key_form("apikey_change", p.key.pk)),
    Deed("rotate_key", lambda p: p.keys("rotate")),
    Deed("revoke_key", lambda p: p.keys("revoke")),
    Deed("delete_key", lambda p: p.keys("delete_selected", post="yes")),
    Deed("delete_key", lambda p: p.post("apikey_delete", p.key.pk, post="yes")),
    Deed("create_key", lambda p: said("leasequeue_apikey", "create", "billing"), "command"),
    Deed("rotate_key", lambda p: said("leasequeue_apikey", "rotate", p.key.prefix), "command"),
    Deed("revoke_key", lambda p: said("leasequeue_apikey", "revoke", p.key.prefix), "command"),
    Deed("create_key", lambda p: create_key("billing", ["read"]), "code"),
    Deed("rotate_key", lambda p: rotate_key(ApiKey.objects.get()), "code"),
    Deed("revoke_key", lambda p: revoke_key(ApiKey.objects.get()), "code"),
    Deed("retry", lambda p: said("leasequeue_dlq", "retry", "--queue", "work", "--yes"), "command"),
    Deed("retry.pause", lambda p: DlqCommand()._pause(BulkOperation.objects.get().pk), "command", asked),
    Deed("edit_queue", lambda p: said("leasequeue_queues", "set", "work", "max_deliveries=9"), "command"),
    Deed("pause", lambda p: said("leasequeue_queues", "pause", "work"), "command"),
    Deed("resume", lambda p: said("leasequeue_queues", "resume", "work"), "command",
         before=lambda p: engine.run(engine.pause("work"))),
    Deed("create_queue", lambda p: said("leasequeue_queues", "sync"), "command",
         before=lambda p: rows(Queue).exclude(pk=p.queue).delete()),
]  # fmt: skip
every_deed = pytest.mark.parametrize(
    "deed", DEEDS, ids=[f"{number}-{deed.source}-{deed.action}" for number, deed in enumerate(DEEDS)]
)


@pytest.fixture
def place(settings: Any) -> Place:
    settings.LEASEQUEUE = {"QUEUES": {"declared": {}}}
    place = Place()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE leasequeue_operatoraction")
    return place


@contextmanager
def no_commits_to(tables: list[str]) -> Iterator[None]:
    """Let every transaction that has written to one of these tables fail at its very end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$"
        )
        for table in tables:
            cursor.execute(
                f"CREATE CONSTRAINT TRIGGER tests_refuse AFTER INSERT OR UPDATE OR DELETE ON {table}"
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tests_refuse()"
            )
        try:
            yield
        finally:
            cursor.execute("DROP FUNCTION tests_refuse() CASCADE")


def deeds() -> list[Any]:
    models = (Queue, LiveJob, Worker, BulkOperation, ApiKey, Limit, PausedTask)
    return [list(model.objects.order_by("pk").values()) for model in models]


def lines() -> list[tuple[str, str]]:
    return list(OperatorAction.objects.order_by("pk").values_list("action", "source"))


@every_deed
def test_it_is_done_and_written_down(place: Place, deed: Deed) -> None:
    deed.before(place)
    before = deeds()
    deed.do(place)
    assert lines() == [(deed.action, deed.source)]
    assert deeds() != before


@pytest.mark.parametrize("fails", ["its line", "what is done"])
@every_deed
def test_where_one_of_the_two_fails_there_is_neither(place: Place, deed: Deed, fails: str) -> None:
    deed.before(place)
    before, tables = deeds(), ["leasequeue_operatoraction"]
    if fails == "what is done":
        with connection.cursor() as cursor:
            cursor.execute(_DEEDS)
            tables = [name for (name,) in cursor.fetchall()]
    with no_commits_to(tables), pytest.raises((DatabaseError, psycopg.Error), match="refused by the test"):
        deed.do(place)
    assert (lines(), deeds()) == ([], before)


#: What the list says of actions on other things than jobs and queues: the object, before and after.
OBJECTS = {
    "stop_worker": ("worker worker-1", ""), "cancel_workflow": ("workflow (", "state: running → cancelled"),
    "set_limit": ("limit api", "concurrency: 1 → 9"), "reset_limit": ("limit api", ""),
    "create_key": ("key billing (", ""), "delete_key": ("key before (", ""),
    "change_key": ("key billing (", "name: before → billing"), "rotate_key": ("key before (", "prefix: "),
    "revoke_key": ("key before (", "revoked_at: null → 2"), "cancel": ("", "state: ready → cancelled"),
    "release": ("", "state: leased → ready"), "pause_task": ("task shop.tasks.pay", ""),
    "edit_queue": ("", "max_deliveries: 1 → 9"),
}  # fmt: skip


@pytest.mark.parametrize(
    "deed", [deed for deed in DEEDS if deed.action in OBJECTS], ids=lambda deed: f"{deed.source}-{deed.action}"
)
def test_the_list_and_the_line_say_of_what_and_what_changed(place: Place, deed: Deed) -> None:
    deed.before(place)
    deed.do(place)
    line, (thing, changed) = OperatorAction.objects.get(), OBJECTS[deed.action]
    listed = look(place.client, "operatoraction_changelist").text
    assert thing in listed, listed
    assert changed in listed, listed
    name, _, values = changed.partition(": ")
    assert (
        " ".join(filter(None, (name, *values.split(" → "))))
        in look(place.client, "operatoraction_change", line.pk).text
    )


def test_an_event_and_a_recurring_task_are_named(place: Place) -> None:
    task = rows(RecurringTask).create(name="nightly", task="shop.tasks.report", schedule="@daily", timezone="UTC")
    place.post("recurringtask_changelist", action="pause", _selected_action=task.pk)
    engine.audit.write("emit", engine.audit.CODE, seqs=[place.ready], detail={"event": "paid:7"})
    listed = look(place.client, "operatoraction_changelist").text
    assert "recurring task nightly enabled: true → false" in listed
    assert f"event paid:7 {place.ready}" in listed


def test_a_purge_in_batches_has_a_line_for_each(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.admin.queues._BATCH", 2)
    put(5)
    place.post("queue_act", place.queue, action="purge", states=["ready"], typed="work")
    assert [line.counts for line in OperatorAction.objects.order_by("pk")] == [{"removed": n} for n in (2, 2, 2)]


def test_a_line_about_a_key_tells_no_secret_and_what_was_revoked_has_no_second(place: Place) -> None:
    key, token = create_key("billing", ["read", "write"], topics=["bill."], project="tenant", rate_per_second=5)
    line = OperatorAction.objects.get()
    assert (line.project, line.detail) == ("tenant", {
        "key": key.pk, "name": "billing", "prefix": key.prefix, "scopes": ["read", "write"], "topics": ["bill."],
        "rate_per_second": 5, "expires_at": None,
    })  # fmt: skip
    assert token.split(f"{key.prefix}_", 1)[1] not in str(line.detail)
    assert key.digest not in str(line.detail)
    assert revoke_key(place.key)
    assert not revoke_key(ApiKey.objects.get(pk=place.key.pk))
    said("leasequeue_apikey", "revoke", place.key.prefix)
    place.keys("revoke")
    assert lines() == [("create_key", "code"), ("revoke_key", "code")]
