"""The how-tos about durable tasks and Celery: their code is an app, or does what it says; their own tests run on it."""

import base64
import hashlib
import hmac
import importlib
import inspect
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.mail import EmailMessage, EmailMultiAlternatives
from django.test import Client

from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import JobFailed
from django_leasequeue.models import Job, JobStep
from django_leasequeue.tasks.api import TaskResultDoesNotExist
from django_leasequeue.testing import Harness
from tests.support.pages import run_page
from tests.support.shop import shop
from tests.tasks.durable_tasks import control

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Any]:
    with shop(request.param, tmp_path, monkeypatch) as tests:
        yield tests


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", [f"how-to/{name}.md"], indirect=True)


CASES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "approval": {"test_somebody_decides": [{"answer": "approve"}, {"answer": "refuse"}], "test_nobody_decides": [{}]},
    "batching": {"test_one_run_indexes_all_documents_of_a_tenant": [{}]},
    "durable-tasks": {"test_an_order_that_is_packed": [{}], "test_one_that_nobody_packs": [{}]},
    "exactly-once": {
        "test_a_crash_moves_nothing_twice": [{"step": "move"}, {"step": "start book_interest"}, {"step": "mail"}],
        "test_half_a_move_is_none": [{}],
    },
    "agents": {
        "test_no_call_is_paid_twice": [
            {"step": step} for step in ("model", "tool find", "model#2", "tool order", "model#3")
        ],
        "test_a_person_refuses": [{}],
    },
    "change-code": {
        "test_a_job_keeps_its_way": [{"began": 1}, {"began": 2}],
        "test_an_old_worker_leaves_a_newer_job": [{}],
    },
}


@pytest.mark.parametrize(("page", "name", "given"), [
    (f"how-to/{page}.md", name, given) for page, tests in CASES.items() for name in tests for given in tests[name]
], indirect=["page"])  # fmt: skip
def test_a_page_s_own(request: pytest.FixtureRequest, page: Any, name: str, given: dict[str, Any]) -> None:
    own = getattr(page, name)
    fixtures = [wanted for wanted in inspect.signature(own).parameters if wanted not in given]
    own(**given, **{wanted: request.getfixturevalue(wanted) for wanted in fixtures})


@of("approval")
def test_who_may_not_approve_cannot(page: Any, leasequeue: Harness, client: Client, django_user_model: Any) -> None:
    clerk = django_user_model.objects.create_user("clerk", is_staff=True)
    expense = page.Expense.objects.create(reason="train", amount=1)
    kind = ContentType.objects.get_for_model(page.Expense)
    for name in ("view", "change"):
        permission = Permission.objects.create(codename=f"{name}_expense", name=name, content_type=kind)
        clerk.user_permissions.add(permission)
    client.force_login(clerk)
    sent = {"reason": "train", "amount": "1", "_approve": "1"}
    assert client.post(f"/admin/shop/expense/{expense.pk}/change/", sent).status_code == 403
    assert not JobStep.objects.exists()


@of("change-code")
def test_a_task_without_a_version(page: Any, leasequeue: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    from shop import refunds  # type: ignore[import-not-found]  # a module of the page

    class Then:
        """The control, as code used it that knew of no version."""

        def __getattr__(self, name: str) -> Any:
            return getattr(control(), name)

        def step(self, name: str, *arguments: Any, **options: Any) -> Any:
            return 1 if name == "version" else control().step(name, *arguments, **options)

    with monkeypatch.context() as before:
        before.setattr(refunds, "current", Then)
        results = {1: refunds.refund.enqueue(1)}
        leasequeue.drain()
    results[2] = refunds.refund.enqueue(2)
    leasequeue.drain(advance=True)
    assert {version: result.wait() for version, result in results.items()} == {1: 1, 2: 2}
    assert JobStep.objects.filter(name="check").count() == 1


@pytest.mark.parametrize("page", ["how-to/move-from-django-absurd.md", "how-to/move-from-dbos.md"], indirect=True)
@pytest.mark.parametrize("packed", [True, False])
def test_what_others_task_becomes(page: Any, leasequeue: Harness, packed: bool) -> None:
    result = page.fulfil.enqueue(7)
    leasequeue.drain()
    if packed:
        page.packed(7, "box 3")
    leasequeue.drain(advance=True)
    calls = page.calls if hasattr(page, "calls") else importlib.import_module("shop.services").calls
    assert (result.wait(), calls) == (("payment-7", ["charge", "mail"]) if packed else ("not packed", ["charge"]))
    assert Group.objects.get().name == "reserved for order 7"


def here(text: str) -> str:
    return "" if text.startswith("# with Celery") else text


def test_canvas(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness, clock: Clock) -> None:
    names = run_page("how-to/move-from-celery-canvas.md", monkeypatch, here)
    assert names["timed"].status.open == 2
    leasequeue.drain()
    assert [names[name].status.open for name in ("timed", "skewed")] == [1, 2]
    clock.advance(seconds=11)
    leasequeue.drain()
    waited = {name: found.wait() for name, found in names.items() if name in VALUES}
    assert waited == VALUES
    with pytest.raises(JobFailed, match="broken"):
        names["failing"].wait()
    assert names["failing"]["log_error"].value == "here: builtins.ValueError broken"
    assert (names["left"], names["restored"].status.label) == (11, "completed")
    assert names["aborted"]
    with pytest.raises(TaskResultDoesNotExist):
        names["counting"].refresh()
    tags = [job.tags for job in Job.objects.filter(tags__customer=7).order_by("pk")]
    assert tags == [{"customer": 7}, {"customer": 7, "step": "second"}]


VALUES: dict[str, Any] = {
    "later": 4, "six": 6, "linked": [20, 5], "timed": 8, "mapped": [2 * n for n in range(25)],
    "chunked": [[2 * n for n in range(start, min(start + 10, 25))] for start in (0, 10, 20)], "skewed": [0, 2, 4],
    "summed": 90, "replaced": 13, "stamped": 8, "any_graph": {"total": 6},
}  # fmt: skip


def test_calling_tasks(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    def as_a_module(text: str) -> str:
        return "" if "send_receipt" in text else text

    names = run_page("how-to/move-from-celery.md", monkeypatch, as_a_module)
    assert names == {"__builtins__": names["__builtins__"]}
    calls = sys.modules["shop.calls"].calls()
    many = calls.pop("many")
    assert calls.pop("by name")
    assert [ran.state for ran in leasequeue.drain()] == ["completed"] * 7
    for name, value in {"delay": "Hi Ann", "options": "Hi Ann", "once": "Hello Ann", "ignored": None}.items():
        assert calls[name].wait() == value
    assert [call.wait() for call in many] == ["Hello Ann", "Hello Bob"]
    assert [calls[name].job.state for name in ("countdown", "eta")] == ["delayed"] * 2


def test_later(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    names = run_page("how-to/later.md", monkeypatch)
    assert names["cancelled"] is True
    nine, once = Job.objects.order_by("pk")
    assert nine.available_at
    assert once.available_at
    local = nine.available_at.astimezone(ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.minute) == (9, 0)
    assert 250 < (once.available_at - once.enqueued_at).total_seconds() <= 301
    assert [ran.state for ran in leasequeue.drain()] == []


class _Receiver(BaseHTTPRequestHandler):
    """Takes what is signed; ``answers`` has the statuses of the next requests."""

    answers: ClassVar[list[int]] = []
    got: ClassVar[list[tuple[str, Any, bool]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        mac = hmac.new(b"secret", signed, hashlib.sha256).digest()
        right = self.headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()
        self.got.append((self.headers["webhook-id"], json.loads(body), right))
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[str]:
    _Receiver.got.clear()
    with HTTPServer(("127.0.0.1", 0), _Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_outbox(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness, receiver: str) -> None:
    names = run_page("how-to/outbox.md", monkeypatch)
    outbox, sent = sys.modules["shop.outbox"], []
    outbox.SECRETS[receiver] = b"secret"
    monkeypatch.setattr(sys.modules["shop.broker"], "send", lambda key, text: sent.append((key, json.loads(text))))
    for kind in ("order.paid", "order.sent"):
        event = {"type": kind, "data": {"id": 7}}
        outbox.to_webhook.enqueue(receiver, "order 7", event)
    _Receiver.answers[:] = [500, 503]
    sys.modules["shop.orders"].pay(8)
    leasequeue.drain(advance=True)
    of_7 = [(id, event["type"]) for id, event, _ in _Receiver.got if event["data"]["id"] == 7]
    assert [kind for _, kind in of_7][-1] == "order.sent"
    assert [kind for _, kind in of_7].index("order.sent") == len(of_7) - 1, "the second one waits for the first"
    assert len({id for id, _ in of_7}) == 2
    assert len(_Receiver.got) == 5
    assert all(right for *_, right in _Receiver.got)
    assert sent == [("order 8", {"type": "order.paid", "data": {"id": 8}})]
    _Receiver.answers[:] = [500] * 7
    outbox.to_webhook.enqueue(receiver, "order 9", event)
    assert leasequeue.drain(advance=True)[-1].state == "dead"
    assert names["send_again"]() == 1
    assert [ran.state for ran in leasequeue.drain()] == ["completed"]


def test_email(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness, mailoutbox: list[Any]) -> None:
    names = run_page("how-to/email.md", monkeypatch, lambda text: text.replace("backends.smtp", "backends.locmem"))
    message = EmailMultiAlternatives("Reset", "Follow the link.", "shop@example.com", ["bob@example.com"])
    message.attach_alternative("<a>", "text/html")
    attached = EmailMessage("Bill", to=["eve@example.com"], attachments=[("bill.txt", "1", "text/plain")])
    assert sys.modules["shop.backends"].QueuedEmail().send_messages([message, attached]) == 2
    leasequeue.drain(advance=True)
    assert [(mail.subject, mail.to) for mail in mailoutbox] == [
        ("Bill", ["eve@example.com"]), ("Your order", ["ann@example.com"]), ("Reset", ["bob@example.com"]),
    ]  # fmt: skip
    assert (mailoutbox[2].from_email, list(mailoutbox[2].alternatives[0])) == ("shop@example.com", ["<a>", "text/html"])
    assert names["sent"].wait() is None
