"""Every page of ours in the host's admin: what must be in its HTML, whatever theme the host has put over it."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from django.test import Client
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.engine.jobs.pausing import pause_task
from django_leasequeue.models import ApiKey, BulkOperation, Limit, RecurringTask
from tests.admin.letters import bury, graves, worker
from tests.admin.pages import admin_url
from tests.engine.helpers import one, put
from tests.support.rows import rows
from tests.support.sampling import sample

#: What a page must show a superuser beside the navigation: its buttons, by their words or names.
Wanted = tuple[str, ...]
#: Its name, its address, and what must be on it.
PageOfHost = tuple[str, str, Wanted]


def furnish() -> list[PageOfHost]:
    """Put something on each page; return the pages."""
    queue = graves("pages")
    at = engine.clock.now()
    dead, *_ = bury(3, "pages", key="order-1", tag="shop", name="shop.tasks.charge")
    bury(2, "pages", failure=engine.Failure("shop.Busy", "try later", "Traceback: line 2", "print-b"))
    put(4, "pages", name="shop.tasks.charge")
    leased = one("pages")
    running = [{"seq": leased.seq, "queue": "pages", "name": "shop.tasks.charge", "seconds": 1}]
    known = worker("host-1", ("pages",), running=running)
    operation = rows(BulkOperation).create(
        kind="retry", state="running", queue="pages", frozen_at=at, created_at=at, started_at=at, expected=9, done=2
    )
    uid, step = uuid4(), engine.Node("pages", engine.NewJob({}, name="shop.tasks.charge"), label="charge")
    engine.run(engine.start_workflow([step], uid, name="orders"))
    engine.run(engine.set_limits([engine.LimitValues("gateway", concurrency=1)]))
    task = rows(RecurringTask).create(name="hourly", task="tests.hosts.tasks.add", schedule="@hourly", args=[1, 2])
    key = rows(ApiKey).create(name="partner", created_at=at)
    engine.run(pause_task("shop.tasks.charge", by="oncall"))
    sample()
    triage = ('value="retry"', 'value="redrive"', 'value="discard"', "Export")
    actions, refreshing = ('name="action"',), ("data-lq-pause",)
    found: list[tuple[str, list[Any], Wanted]] = [
        ("overview", [], refreshing),
        ("deadletters", [], triage + refreshing),
        ("deadletters_list", [], triage),
        ("deadletters_edit", [dead], ("Show what changes",)),
        ("queue_changelist", [], refreshing),
        ("queue_change", [queue], ("Pause",)),
        ("queue_options", [queue], ("Save",)),
        ("job_changelist", [], ("Show",)),
        ("job_change", [dead], ("job-retry", "job-edit", "job-redrive", "job-discard")),
        ("job_change", [leased.seq], ("job-release", *refreshing)),
        ("tasks", [], ()),
        ("workflow_changelist", [], ("Show",)),
        ("workflow", [uid], ("workflow-cancel", *refreshing)),
        ("limit_changelist", [], actions),
        ("limit_change", [Limit.objects.get(name="gateway").pk], ('name="_save"',)),
        ("recurringtask_changelist", [], (*actions, reverse("admin:leasequeue_recurringtask_add"))),
        ("recurringtask_add", [], ('name="_save"',)),
        ("recurringtask_change", [task.pk], ('name="_save"',)),
        ("worker_changelist", [], refreshing),
        ("worker_change", [known.pk], ()),
        ("bulkoperation_changelist", [], refreshing),
        ("bulkoperation_change", [operation.pk], ("lq-cancel",)),
        ("operatoraction_changelist", [], ("Export",)),
        ("apikey_changelist", [], (*actions, reverse("admin:leasequeue_apikey_add"))),
        ("apikey_add", [], ('name="_save"',)),
        ("apikey_change", [key.pk], ('name="_save"',)),
    ]
    with_query: list[tuple[str, dict[str, Any], Wanted]] = [
        ("task", {"name": "shop.tasks.charge"}, ("task-resume",)),
        *(
            ("job_changelist", {"queue": queue, "state": each}, ("Show",))
            for each in ("ready", "leased", "dead", "any")
        ),
    ]
    return [
        *((name, admin_url(name, *args), wanted) for name, args, wanted in found),
        *((name, admin_url(name, **query), wanted) for name, query, wanted in with_query),
    ]


def _navigation(html: str) -> Iterator[str]:
    """Yield the addresses of our navigation, if the page has it."""
    for shown in re.findall(r'<nav class="lq-nav".*?</nav>', html, re.DOTALL):
        yield from re.findall(r'href="([^"?]*)"', shown)


def lacks(client: Client, theme: str, pages: list[PageOfHost]) -> list[str]:
    """Return what pages lack under a theme, which is known by one of its files."""
    found: list[str] = []
    index = client.get(reverse("admin:index")).content.decode()
    for name, address, wanted in pages:
        answer = client.get(address)
        html = answer.content.decode()
        said = [] if answer.status_code == 200 else [str(answer.status_code)]
        said += [f"no {each}" for each in (*wanted, theme, "leasequeue/admin.css") if each not in html]
        ways = list(_navigation(html))
        said += [] if len(ways) > 8 else ["no navigation"]
        said += [f"the index has no {each}" for each in ways if f'href="{each}"' not in index]
        found += [f"{name}: {each}" for each in said]
    return found
