from __future__ import annotations
import json, os, pathlib, time
from datetime import timedelta
from uuid import uuid4
import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django_leasequeue import engine
from django_leasequeue.engine import Ending, NewJob
from django_leasequeue.models import *
from tests.browser.test_evening import die, trouble  # noqa: F401
from tests.engine.helpers import make, put, claim, NODE
from tests.support.rows import rows
from tests.support.sampling import sample

def test_look(person, trouble):
    OUT = pathlib.Path("/tmp/adm/pics"); OUT.mkdir(exist_ok=True)
    at = engine.clock.now()
    q = make("reports"); make("records", type="log")
    for n in range(40):
        engine.run(engine.enqueue("reports", [NewJob(data={"args": [n, "monthly"], "kwargs": {"customer": f"customer-{n}@example.org"}}, name="reports.tasks.monthly_statement_of_account", key=f"statement-{n}", delay_ms=(n % 5) * 600_000)]))
    for j in claim(4, queue="reports"):
        engine.run(engine.finish([Ending(j.seq, j.token)], NODE))
    leased = claim(3, queue="reports")
    for i, st in enumerate(("running", "running", "stopping")):
        rows(Worker).create(node=f"worker-{i}.eu-central-1.compute.internal:4711", host=f"worker-{i}.eu-central-1.compute.internal", pid=4711+i, queues=["mail","reports","shop"], concurrency=8, started_at=at, seen_at=at, state=st, completed=12345, failed=12, retried=3,
            running=[{"seq": leased[i].seq, "queue": "reports", "name": "reports.tasks.monthly_statement_of_account", "seconds": 77}])
    rows(Worker).create(node="worker-dead", host="old", pid=3, queues=["mail"], concurrency=2, started_at=at - timedelta(hours=3), seen_at=at - timedelta(hours=2))
    op = rows(BulkOperation).create(kind="redrive", reason="the mail server is back", queue="mail", frozen_at=at, created_at=at, username="oncall", state="running", expected=5000, looked_at=1200, done=1180, conflicts=20, rate=100, target="later")
    uid = uuid4()
    nodes = [engine.Node("reports", NewJob({"args": [1]}, name="reports.tasks.fetch"), label="fetch")]
    for n in range(4):
        nodes.append(engine.Node("reports", NewJob({"args": [n]}, name="reports.tasks.render"), label=f"render {n}", parents=(0,)))
    nodes.append(engine.Node("mail", NewJob({"args": []}, name="mail.send"), label="send", parents=(1, 2, 3, 4)))
    engine.run(engine.start_workflow(nodes, uid, name="nightly statements"))
    engine.run(engine.set_limits([engine.LimitValues("gateway", concurrency=5), engine.LimitValues("smtp", concurrency=2)]))
    RecurringTask.objects.create(name="nightly-report", task="tests.reaper.recurring.tasks.report", schedule="30 2 * * *", timezone="Europe/Berlin", args=["a"], next_tick_at=at + timedelta(hours=5), last_tick_at=at - timedelta(hours=19))
    RecurringTask.objects.create(name="poll-feed", task="tests.reaper.recurring.tasks.placed", schedule="every 30 seconds", next_tick_at=at - timedelta(minutes=5))
    RecurringTask.objects.create(name="paused-one", task="tests.reaper.recurring.tasks.placed", schedule="@hourly", enabled=False)
    rec = RecurringTask.objects.first()
    dead, dead2 = trouble["shop"][0], trouble["mail"][0]
    sample()
    person.sign_in("oncall", "evening")
    pages = [("overview", [], {}), ("deadletters", [], {}), ("deadletters_list", [], {}), ("deadletters_edit", [dead], {}), ("queue_changelist", [], {}), ("queue_change", [q], {}), ("queue_options", [q], {}),
        ("job_changelist", [], {}), ("job_changelist", [], {"q": "customer-3"}), ("job_changelist", [], {"state": "dead"}), ("job_change", [dead], {}), ("job_change", [leased[0].seq], {}), ("tasks", [], {}), ("workflow_changelist", [], {}), ("workflow", [uid], {}), ("limit_changelist", [], {}),
        ("limit_change", [Limit.objects.first().pk], {}), ("recurringtask_changelist", [], {}), ("recurringtask_change", [rec.pk], {}), ("recurringtask_add", [], {}), ("worker_changelist", [], {}), ("worker_change", [Worker.objects.first().pk], {}),
        ("bulkoperation_changelist", [], {}), ("bulkoperation_change", [op.pk], {}), ("operatoraction_changelist", [], {}), ("apikey_changelist", [], {}), ("apikey_add", [], {})]
    only = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else None
    for number, (name, args, query) in enumerate(pages):
        if only and name not in only: continue
        for width in (1280, 390):
            person.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
            person.open(reverse(f"admin:leasequeue_{name}", args=args, query=query or None))
            over = person.driver.execute_script("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            print(number, name, width, over)
            for scheme in ("light", "dark"):
                person.scheme(scheme)
                import base64
                shot = person.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": max(width, over[0]) if width < 500 else width, "height": min(over[1], 2600), "scale": 1}})
                (OUT / f"{number:02}-{name}-{width}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
