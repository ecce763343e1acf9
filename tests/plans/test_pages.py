"""Pages of the admin over many jobs: how many statements each takes."""

import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_leasequeue.models import StoredJob
from tests.admin.pages import admin_url, boss

from .filling import DEAD, DONE, FRESH, IDS, LEASED

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

#: What belongs to a statement (settings of its plan, savepoints), and what Django reads of the user.
_APART = ("SAVEPOINT", "RELEASE", "set_config(", "current_setting('enable", "django_session", "auth_user")
MOST = 12


def pages() -> list[tuple[str, list[Any], dict[str, Any]]]:
    busy, morgue = IDS["busy"], IDS["morgue"]
    # A search takes as many as its time allows: it is no part of this.
    return [
        ("overview", [], {}), ("queue_changelist", [], {}), ("queue_change", [busy], {}), ("tasks", [], {}),
        ("task", [], {"name": "app.task_3"}), ("job_changelist", [], {}), ("job_changelist", [], {"queue": busy}),
        *(("job_changelist", [], {"state": state}) for state in ("ready", "leased", "delayed", "dead", "completed")),
        ("job_changelist", [], {"queue": morgue, "state": "dead"}),
        ("job_changelist", [], {"state": "any", "payload": f"tags.customer = {FRESH + 7}"}),
        *(("job_change", [seq], {}) for seq in (FRESH + 7, DEAD + 7, DONE + 7, LEASED)),
        ("deadletters", [], {}), ("deadletters", [], {"sort": "largest"}),
        ("deadletters_list", [], {"queue": "morgue"}), ("worker_changelist", [], {}), ("limit_changelist", [], {}),
        ("workflow_changelist", [], {}), ("recurringtask_changelist", [], {}), ("bulkoperation_changelist", [], {}),
        ("operatoraction_changelist", [], {}), ("counts", [], {}),
    ]  # fmt: skip


def asked(client: Client, url: str) -> tuple[list[str], float]:
    began = time.monotonic()
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    took = time.monotonic() - began
    return [each["sql"] for each in captured if not any(word in each["sql"][:300] for word in _APART)], took


def test_statements(fuller_tables: None) -> None:
    assert StoredJob.objects.count() > 200_000
    client = boss()
    over = []
    for name, args, query in pages():
        url = admin_url(name, *args, **query)
        asked(client, url)  # what holds for the whole database is kept for a moment
        found, took = asked(client, url)
        print(f"{took * 1_000:5.0f} ms, {len(found):2} statements: {url}")  # for who measures, with -s
        if len(found) > MOST:
            over.append(f"{url}: {len(found)}: " + "; ".join(sql[:60].replace("\n", " ") for sql in found))
    assert not over, "\n".join(over)
