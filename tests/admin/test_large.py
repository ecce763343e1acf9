"""What the admin and the commands show of large payloads, and what an edit makes of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.checks import Error, Warning
from django.test import Client
from django.test.utils import override_settings

from django_leasequeue import engine
from django_leasequeue.checks.settings import _large
from django_leasequeue.engine import Ending, NewJob
from tests.admin.letters import bury
from tests.admin.pages import admin_url, look, signed_in
from tests.engine.helpers import NODE, enqueue, make, one
from tests.large import away, files, large_settings
from tests.support.commands import said

pytestmark = pytest.mark.django_db(transaction=True)
MAY = ("view_job", "view_payload", "view_queue", "retry_job", "edit_job", "discard_job")
client = pytest.fixture(lambda: signed_in(*MAY))
DATA = {"args": ["needle", "x" * 5_000]}


@pytest.fixture(autouse=True)
def storage(tmp_path: Path) -> Iterator[Path]:
    with large_settings(tmp_path):
        yield tmp_path


def test_the_page_of_a_job(client: Client, storage: Path) -> None:
    make("work")
    [answer] = enqueue(NewJob(DATA, body=b"x" * 5_000))
    text = look(client, "job_change", answer.seq).text
    assert "needle" in text
    assert "binary, 5,000 bytes" in text
    with away():
        assert "could not give an object" in look(client, "job_change", answer.seq).text
    job = one()
    engine.run(engine.finish([Ending(job.seq, job.token, result=["found", "y" * 5_000], result_ttl_ms=60_000)], NODE))
    assert "found" in look(client, "job_change", answer.seq).text


def test_dead_letters_in_the_admin_and_the_command(client: Client, storage: Path) -> None:
    [seq] = bury(1, "mail", data=DATA, name="shop.tasks.charge")
    assert len(files(storage)) == 1
    edit = client.get(admin_url("deadletters_edit", seq))
    assert "needle" in edit.content.decode()
    listed = json.loads(said("leasequeue_dlq", "list", "--with-payload", "--json"))
    assert [letter["data"] for letter in listed["dead_letters"]] == [DATA]
    assert json.loads(said("leasequeue_dlq", "export", "--json"))["data"] == DATA
    with away():
        answer = client.get(admin_url("deadletters_edit", seq))
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")


def test_the_system_check() -> None:
    assert list(_large()) == []
    with override_settings(LEASEQUEUE={"LARGE": {"ABOVE": 4_096, "STORAGE": "nowhere"}}):
        [problem] = _large()
        assert isinstance(problem, Error)
        assert "'nowhere', which is not in STORAGES" in problem.msg
    with override_settings(LEASEQUEUE={"LARGE": {"ABOVE": 2_000_000}}):
        [problem] = _large()
        assert isinstance(problem, Warning)
        assert "MAX_PAYLOAD_BYTES" in problem.msg
    with override_settings(LEASEQUEUE={}):
        assert list(_large()) == []
