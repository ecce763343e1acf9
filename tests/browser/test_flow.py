"""Workflows and limits by keyboard alone, in light and dark; the search of the documentation's site, as a file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.admin import job_list
from django_leasequeue.engine import Failure, Limited, LimitValues, NewJob, Node, Release, clock
from django_leasequeue.models import Limit, Worker, Workflow
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.engine.helpers import make
from tests.support.rows import rows

if TYPE_CHECKING:
    from .person import Person


def trouble() -> None:
    """A workflow of which one job has failed, and jobs that wait for a limit."""
    make("shop", max_deliveries=1, exhaust_at="release", dead_letter="self")
    job = NewJob({}, name="shop.tasks.step")
    parts = [Node("shop", job, (0,), label=f"part {number}") for number in range(4)]
    nodes = [Node("shop", job, label="fetch"), *parts, Node("shop", job, (1, 2, 3, 4), label="tell")]
    engine.run(engine.start_workflow(nodes, uuid4(), name="report"))
    for number in (0, 1):
        failure = Failure("shop.Declined", "card was declined")
        (leased,) = engine.run(engine.claim("shop", "worker-1", 1))
        if number:
            engine.run(engine.release([Release(leased.seq, leased.token, 0, failure)], "worker-1"))
        else:
            engine.run(engine.finish([engine.Ending(leased.seq, leased.token)], "worker-1"))
    limit = LimitValues("partner-api", concurrency=1)
    engine.run(engine.enqueue("shop", [NewJob({}, limit=Limited("partner", limit)) for _ in range(3)]))
    engine.run(engine.claim("shop", "worker-1", 1))


@pytest.mark.slow
def test_a_workflow_and_a_limit_on_call(person: Person) -> None:
    trouble()
    person.sign_in()
    person.choose("//a[contains(@href, '/leasequeue/workflow/') and text()='Workflows']")
    person.check()
    person.choose("//th/a[text()='report']")
    person.wait_for("shop.Declined: card was declined")
    person.check("workflow")
    # The drawing can be scrolled, and the jobs can be reached.
    person.tab_to("#graph-drawn .lq-scroll")
    person.tab_to("//tr[th='part 1']//a")
    person.choose("#workflow-retry")
    person.wait_for("Dead letters of report that are ready again: 1")
    person.choose("//tr[th='tell']//a")
    person.wait_for("Waits for")
    person.choose("//dd/a[text()='report']")
    person.choose("#workflow-cancel")
    person.wait_for("The workflow report is cancelled")
    assert Workflow.objects.get().get_state_display() == "cancelled"

    person.go("Limits")
    person.check()
    person.choose("//th/a[text()='partner-api']")
    person.type("#id_concurrency", "2")
    person.check()
    person.choose("[name=_save]")
    person.wait_for("The limit partner-api is set: 2 at a time.")
    person.tab_to("[name=_selected_action]")
    person.press(" ")
    person.tab_to("select[name=action]")
    person.press("G")
    person.choose("button[name=index]")
    person.wait_for("The limit partner-api is given back")
    assert (Limit.objects.get().concurrency, Limit.objects.get().pinned) == (1, False)


@pytest.mark.slow
def test_a_search_goes_on_by_itself(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "CHUNK", 10)
    monkeypatch.setattr(job_list, "MAX_LOOKED", 20)
    make("shop")
    for customer in (*(17,) * 2, *range(18, 68)):
        job = NewJob({"args": [], "kwargs": {"customer": customer}}, name="shop.tasks.charge")
        engine.run(engine.enqueue("shop", [job]))
    person.sign_in()
    person.open(reverse("admin:leasequeue_job_changelist"))
    person.type("#job-search", "customer: 17")
    person.choose("//button[text()='Show']")
    person.wait_for("Looked at 52 jobs, found 0: these are all")
    person.type("#job-search", '"customer": 17')
    person.choose("//button[text()='Show']")
    person.wait_for("Looked at 52 jobs, found 2: these are all")
    person.wait_for("customer=17")
    person.check()


@pytest.mark.slow
def test_the_body_of_a_task_that_waits(person: Person) -> None:
    make("shop")
    engine.run(engine.enqueue("shop", [NewJob({}, name="shop.tasks.fulfil")]))
    (leased,) = engine.run(engine.claim("shop", "worker-1", 1))
    control = JobControl(leased, "worker-1")
    control.step("charge", lambda: {"payment": "pay-7", "amount": 42})
    with suppress(Suspended):
        control.wait_for("packed:" + "42" * 60, timeout=86_400)
    engine.run(engine.release([Release(leased.seq, leased.token, 86_400_000)], "worker-1", suspended=True))
    person.sign_in()
    person.open(reverse("admin:leasequeue_job_change", args=[leased.seq]))
    person.wait_for("waits for packed:42")
    person.check()


def test_a_phone_shows_the_overview_on_three_screens_and_a_large_workflow_on_one(person: Person) -> None:
    job = NewJob({}, name="shop.tasks.step")
    for number in range(12):
        make(f"queue-{number}")
        engine.run(engine.enqueue(f"queue-{number}", [job]))
    parts = [Node("queue-1", job, (0,), label=f"part {number}") for number in range(300)]
    engine.run(engine.start_workflow([Node("queue-1", job), *parts], uuid4(), name="large"))
    for number in range(6):
        at, node = clock.now(), f"web-{number}:1234:ab12cd"
        rows(Worker).create(node=node, host="web", pid=number, concurrency=8, started_at=at, seen_at=at)
    person.sign_in()
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    person.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for name, args, screens in (("overview", [], 3.0), ("workflow", [Workflow.objects.get().uid], 1.0)):
        person.open(reverse(f"admin:leasequeue_{name}", args=args))
        person.check()
        width, height = person.run("const all = document.documentElement; return [all.scrollWidth, all.scrollHeight]")
        assert width == 390, name
        assert height <= screens * 844, name


if TYPE_CHECKING:
    from .person import Person

ROOT = Path(__file__).parents[2]
_FOUND = "return [...document.querySelectorAll('.md-search-result__item > a')].map(link => link.href.split('?')[0])"


@pytest.mark.slow
def test_the_search_of_the_site_works_without_a_server(person: Person, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    for words, page in (("rate limit", "how-to/limits.html"), ("retry backoff", "how-to/retries.html")):
        person.driver.get(f"file://{tmp_path}/index.html")
        person.press("/", *words)  # the key that leads to the search
        person.wait_until(lambda: person.driver.execute_script(_FOUND), "nothing is found")
        assert person.driver.execute_script(_FOUND)[0] == f"file://{tmp_path}/{page}"
        loaded = "return performance.getEntriesByType('resource').map(each => each.name)"
        assert not [each for each in person.driver.execute_script(loaded) if not each.startswith("file:")]
