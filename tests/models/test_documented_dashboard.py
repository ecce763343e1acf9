"""The dashboard of the how-to: its page, its chart and its API, as they are written there."""

import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Release
from django_leasequeue.models import Job, Queue
from tests.engine.helpers import NODE, make, one
from tests.support.documents import blocks
from tests.support.sampling import sample

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, admin_client: Client) -> Iterator[Client]:
    """Somebody of the staff, who sees a project made of the page's blocks."""
    for block in blocks("how-to/dashboard.md"):
        path = tmp_path / block.word.removeprefix("file=")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    templates = deepcopy(django_settings.TEMPLATES)
    templates[0]["DIRS"] = [tmp_path / "shop/templates"]
    settings.TEMPLATES, settings.ROOT_URLCONF = templates, "shop.urls"
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django_filters"]
    yield admin_client
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.fixture
def jobs() -> dict[str, int]:
    make("mail", max_deliveries=1, exhaust_at="release", dead_letter="self")
    make("other")
    new = [NewJob(data={"args": [], "kwargs": {"order_id": n}}, name="shop.tasks.send") for n in (5, 6, 7)]
    dead, running, ready = [answer.seq for answer in engine.run(engine.enqueue("mail", new))]
    one("mail")
    engine.run(engine.release([Release(dead, failure=Failure("KeyError", "'<b>'"))], NODE))
    one("mail")
    return {"dead": dead, "running": running, "ready": ready}


def test_the_page_and_the_api(staff: Client, jobs: dict[str, int]) -> None:
    page = staff.get("/queues/mail/").content.decode()
    assert f"<td>{jobs['running']}<td>shop.tasks.send<td>{NODE}" in page
    assert f"<td>{jobs['dead']}<td>shop.tasks.send<td>KeyError: &#x27;&lt;b&gt;" in page
    assert 'points=""' in page
    sample()
    page = staff.get("/queues/mail/").content.decode()
    assert "<p>1 ready, 1 running, 0 delayed, 1 dead</p>" in page
    assert 'points="600.0,0.0"' in page
    assert staff.get("/queues/mial/").status_code == 404
    assert Client().get("/queues/mail/").status_code == 302

    def seqs(query: str) -> list[int]:
        return [found["seq"] for found in staff.get(f"/api/jobs/{query}").json()["results"]]

    for query, names in (
        ("", ["ready", "running", "dead"]), ("?queue=mail&state=dead&state=ready", ["ready", "dead"]),
        ("?queue=other", []), ("?order_id=6", ["running"]), (f"?task=shop.tasks.send&worker={NODE}", ["running"]),
    ):  # fmt: skip
        assert seqs(query) == [jobs[name] for name in names], query
    found = staff.get(f"/api/jobs/{jobs['dead']}/").json()
    assert (found["queue"], found["state"], found["error"], found["result"]) == ("mail", "dead", "'<b>'", None)
    assert staff.post(f"/api/jobs/{jobs['dead']}/retry/").json() == {"retried": 1}
    assert Job.objects.get(pk=jobs["dead"]).state == "ready"
    assert Queue.objects.get(name="mail").jobs.ready().count() == 2
    assert Client().get("/api/jobs/").status_code == 403
