"""What a key sees of the arguments of tasks: nothing secret without the scope ``payloads``, and no claim of them."""

from collections.abc import Callable
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.http.access import create_key
from django_leasequeue.models import JobEvent, LiveJob
from tests.http.client import Api
from tests.http.zaqar.conftest import Zaqar
from tests.tasks import samples

#: What is read is what is committed.
pytestmark = pytest.mark.django_db(transaction=True)

SECRET = {"args": ["hunter2", 3], "kwargs": {"password1": "hunter2", "url": "postgres://app:hunter2@db/shop"}}
HIDDEN = {"args": ["[hidden]", 3], "kwargs": {"password1": "[hidden]", "url": "postgres://app:[hidden]@db/shop"}}
PLAIN = {"password": "of no task"}


@pytest.fixture
def key(settings: Any) -> Callable[..., Api]:
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0, "COUNT_SECONDS": 0}}
    engine.run(engine.create("mail", preset="django"))
    task = samples.sign_in.module_path
    engine.run(engine.enqueue("mail", [NewJob(SECRET, name=task, meta={"token": "hunter2"}), NewJob(PLAIN)]))
    return lambda *scopes: Api(create_key("test", scopes)[1])


def test_reads_hide_the_secrets_of_tasks(key: Callable[..., Api]) -> None:
    whole, redacted = key("read", "payloads"), key("read", "write")
    task, other = whole.post("topics/mail/diff", {}, status=200)["records"]
    assert (task["data"], task["meta"], other["data"]) == (SECRET, {"token": "hunter2"}, PLAIN)
    task, other = redacted.post("topics/mail/diff", {}, status=200)["records"]
    assert (task["data"], task["meta"], other["data"]) == (HIDDEN, {"token": "[hidden]"}, PLAIN)


def test_a_claim_of_tasks_needs_the_scope_and_leaves_them_as_they_were(key: Callable[..., Api]) -> None:
    answer = key("read", "write").post("topics/mail/claim", {"node": "w", "max": 9})
    assert (answer.status, answer.code, "scope payloads" in answer.message) == (403, "forbidden", True)
    assert set(LiveJob.objects.values_list("deliveries", "state")) == {(0, LiveJob.objects.first().state)}
    claimed = key("read", "write", "payloads").post("topics/mail/claim", {"node": "w", "max": 9}, status=200)["claimed"]
    assert [(job["data"], job["deliveries"]) for job in claimed] == [(SECRET, 1), (PLAIN, 1)]
    assert JobEvent.objects.exists()


def test_a_queue_without_tasks_needs_no_more_than_before(key: Callable[..., Api]) -> None:
    engine.run(engine.create("plain", preset="django"))
    engine.run(engine.enqueue("plain", [NewJob(PLAIN)]))
    (job,) = key("read", "write").post("topics/plain/claim", {"node": "w"}, status=200)["claimed"]
    assert job["data"] == PLAIN


def test_messages_of_zaqar(key: Callable[..., Api]) -> None:
    def zaqar(*scopes: str) -> Zaqar:
        made = Zaqar(project=None)
        made.headers["Authorization"] = f"Bearer {create_key('test', scopes)[1]}"
        return made

    for reader, shown in ((zaqar("read"), HIDDEN), (zaqar("read", "payloads"), SECRET)):
        listed = reader("GET", "/v1/queues/mail/messages?echo=true").json()["messages"]
        assert [message["body"] for message in listed] == [shown, PLAIN]
        assert reader("GET", listed[0]["href"]).json()["body"] == shown
    assert zaqar("read", "write").claim("mail").status_code == 403
    assert zaqar("read", "write", "payloads").claim("mail").json()[0]["body"] == SECRET
