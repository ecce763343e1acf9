"""Who may see which page and do what: a permission each, also for hand-made POSTs, and never without a CSRF token."""

from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from django_leasequeue import engine, models
from django_leasequeue.admin import deadletters
from django_leasequeue.engine import LimitValues, NewJob, Node
from django_leasequeue.engine.dead.filter import DeadFilter
from django_leasequeue.engine.dead.triage import Preview
from tests.admin.letters import bury, graves, start, worker
from tests.admin.pages import VIEWS, person, signed_in
from tests.engine.helpers import make, one, put

pytestmark = pytest.mark.django_db

_NAMES = "Queue LiveJob StoredJob Worker BulkOperation SavedFilter Limit RecurringTask Workflow OperatorAction"
TABLES: tuple[type[Model], ...] = (*(getattr(models, name) for name in _NAMES.split()), LogEntry)
WORKFLOW = UUID(int=7)
REPORT = "tests.reaper.recurring.tasks.report"


@pytest.fixture
def place() -> dict[str, Any]:
    """What there is to look at, by the words that stand for it in the table."""
    queue = graves()
    make("spare")
    (letter,) = bury(1, key="k")
    leased, ready = put(2)
    claim = one().token
    one_worker = worker()
    engine.run(engine.start_workflow([Node("work", NewJob({}, name="step"))], WORKFLOW))
    engine.run(engine.set_limits([LimitValues("api", concurrency=1)]))
    key = models.ApiKey.objects.create(name="viewed", prefix="p", digest="d", scopes=["read"])
    recurring = models.RecurringTask.objects.create(name="report", schedule="0 * * * *", task=REPORT, args=["report"])
    return {
        "QUEUE": queue, "LETTER": letter, "LEASED": leased, "READY": ready, "CLAIM": claim, "WORKER": one_worker.pk,
        "WORKFLOW": WORKFLOW, "LIMIT": models.Limit.objects.get().pk, "RECURRING": recurring.pk,
        "OPERATION": start("retry", "queue=other").pk, "KEY": key.pk,
    }  # fmt: skip


class Need(NamedTuple):
    """A page, or what is sent to it, and the permissions that it needs, beside being staff."""

    page: str
    needs: str
    #: What is sent; None for looking at the page.
    data: dict[str, Any] | None = None

    def ask(self, client: Client, place: dict[str, Any], method: str | None = None) -> Any:
        name, *args = self.page.split()
        data = {key: place.get(value, value) if isinstance(value, str) else value
                for key, value in (self.data or {}).items()}  # fmt: skip
        method = method or ("get" if self.data is None else "post")
        return getattr(client, method)(reverse(f"admin:leasequeue_{name}", args=[place[arg] for arg in args]), data)


OPTIONS = {"confirmed": "1", "reason": "x", "to": "spare"}


def shown(kind: str, scope: str) -> dict[str, str]:
    """What the confirmation page of everything signs; one job needs none."""
    if scope == "selection":
        return {}
    asked = deadletters.Asked(kind, DeadFilter())
    return {"shown": deadletters._seal(asked, Preview(datetime(2030, 1, 1, tzinfo=UTC), 1, False))}


NEEDS = [
    Need("overview", "view_queue"),
    Need("queue_changelist", "view_queue"),
    Need("queue_change QUEUE", "view_queue"),
    Need("queue_options QUEUE", "view_queue change_queue"),
    Need("queue_options QUEUE", "view_queue change_queue", {"lease_ms": 5_000}),
    Need("queue_act QUEUE", "view_queue pause_queue", {"action": "pause"}),
    Need("queue_act QUEUE", "view_queue pause_queue", {"action": "resume"}),
    Need("queue_act QUEUE", "view_queue purge_queue", {"action": "purge", "states": ["ready"], "typed": "work"}),
    Need("job_changelist", "view_job"),
    Need("job_change READY", "view_job"),
    Need("job_act READY", "view_job cancel_job", {"action": "cancel"}),
    Need("job_act LEASED", "view_job release_job", {"action": "release", "claim": "CLAIM"}),
    Need("job_act READY", "view_job change_job", {"action": "run"}),
    Need("job_act READY", "view_job add_job", {"action": "copy"}),
    Need("job_act READY", "view_job change_job", {"action": "wake"}),
    Need("job_act READY", "view_job emit_event", {"action": "emit", "event": "packed"}),
    Need("tasks", "view_job"),
    Need("task_act", "view_job pause_task", {"action": "pause", "name": "shop.tasks.pay"}),
    Need("task_act", "view_job pause_task", {"action": "resume", "name": "shop.tasks.pay"}),
    Need("worker_changelist", "view_worker"),
    Need("worker_change WORKER", "view_worker"),
    Need("workflow_changelist", "view_workflow"),
    Need("workflow WORKFLOW", "view_workflow view_job"),
    *(Need("workflow_act WORKFLOW", f"view_workflow view_job {kind}_job", {"action": kind})
      for kind in ("cancel", "retry")),
    Need("limit_changelist", "view_limit"),
    Need("limit_change LIMIT", "view_limit"),
    Need("limit_change LIMIT", "view_limit change_limit", {"concurrency": "9"}),
    Need("recurringtask_changelist", "view_recurringtask"),
    Need("recurringtask_change RECURRING", "view_recurringtask"),
    Need("apikey_changelist", "view_apikey"),
    Need("apikey_change KEY", "view_apikey"),
    Need("deadletters", "view_job"),
    Need("deadletters_list", "view_job"),
    Need("deadletters_export", "view_job"),
    Need("deadletters_filters", "view_job", {"name": "x", "filter": "queue=work"}),
    Need("deadletters_edit LETTER", "view_job view_payload edit_job"),
    Need("deadletters_edit LETTER", "view_job view_payload edit_job", {"data": '{"args": [9]}', "confirmed": "1"}),
    *(
        Need("deadletters_act", f"view_job {kind}_job",
             {"action": kind, "scope": scope, "seq": "LETTER", "filter": "", **extra})
        for kind in ("retry", "redrive", "discard") for scope in ("selection", "filter")
        for extra in ({}, OPTIONS | shown(kind, scope))
    ),
    Need("bulkoperation_changelist", "view_bulkoperation"),
    Need("bulkoperation_change OPERATION", "view_bulkoperation"),
    *(Need("bulkoperation_change OPERATION", "view_bulkoperation retry_job", {"change": change})
      for change in ("pause", "resume", "cancel")),
    Need("operatoraction_changelist", "view_operatoraction"),
    Need("operatoraction_export", "view_operatoraction"),
]  # fmt: skip
EVERYTHING = {codename for need in NEEDS for codename in need.needs.split()}
each_need = pytest.mark.parametrize(
    "need", NEEDS, ids=[f"{number}-{need.page.split()[0]}" for number, need in enumerate(NEEDS)]
)


def everything() -> list[Any]:
    return [list(model._default_manager.order_by("pk").values()) for model in TABLES]


@each_need
def test_without_any_of_its_permissions_nothing_is_shown_or_done(place: dict[str, Any], need: Need) -> None:
    before = everything()
    for missing in need.needs.split():
        assert need.ask(signed_in(*EVERYTHING - {missing}, name=missing), place).status_code == 403, missing
    guest = Client()
    guest.force_login(person(*EVERYTHING, name="guest", staff=False))
    for who in (guest, Client()):
        answer = need.ask(who, place)
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("admin:login"))
    assert everything() == before


@each_need
def test_with_them_it_is_and_not_by_a_link_or_a_form_of_another_site(place: dict[str, Any], need: Need) -> None:
    before = everything()
    client = signed_in(*need.needs.split(), enforce_csrf_checks=True)
    if need.data is not None:
        assert need.ask(client, place).status_code == 403
        if need.page.split()[0].endswith(("_act", "_filters")):
            assert need.ask(client, place, "get").status_code == 405
        assert everything() == before
    client.handler.enforce_csrf_checks = False
    answer = need.ask(client, place)
    assert answer.status_code in ((200,) if need.data is None else (200, 302))
    if need.data is None:
        assert "no-store" in answer["Cache-Control"]
    else:
        assert LogEntry.objects.count() == models.OperatorAction.objects.count()


def test_a_viewer_sees_no_button(place: dict[str, Any]) -> None:
    client = signed_in(*VIEWS, "view_workflow")
    pages = ("queue_change QUEUE", "job_change READY", "job_change LEASED", "worker_changelist", "workflow WORKFLOW")
    for page in pages:
        body = Need(page, "").ask(client, place).content.decode()
        assert '<form method="post"' not in body[body.index('id="content-main"') :], page
