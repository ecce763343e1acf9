"""What must hold in every host. It runs under the host's Python, after Django's setup, on an empty database.

``before_work`` and ``in_the_end`` have what this process does alone, ``with_a_worker`` what needs one.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection, reset_queries, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_leasequeue import Queue
from django_leasequeue.engine.django_executor import DjangoExecutor
from django_leasequeue.engine.pool import close_pools
from django_leasequeue.enums import JobState
from django_leasequeue.http.access import create_key
from django_leasequeue.models import Job, LiveJob, RecurringTask
from django_leasequeue.reaper.leader import Leader
from django_leasequeue.tasks import chain, emit
from django_leasequeue.tasks.api import TaskResultStatus
from tests.hosts import tasks
from tests.hosts.pages import furnish, lacks
from tests.support.ports import free_port
from tests.support.waiting import eventually

HOST: Any = import_module(os.environ["DJANGO_SETTINGS_MODULE"])
#: Seconds for what waits for the worker.
PATIENCE = 60
TICK = "tests.hosts.tasks.tick"


def check(what: str, holds: object) -> None:
    assert holds, what
    print(f"  {what}", flush=True)


def install() -> None:
    if hasattr(HOST, "prepare"):
        HOST.prepare()
    else:
        call_command("migrate", verbosity=0)
    check("the tables are there", "leasequeue_queue" in connection.introspection.table_names())
    call_command("check", databases=["default"], fail_level="ERROR", stdout=StringIO(), stderr=StringIO())
    check("system checks find no error", True)


def what_tools_see(client: Client) -> None:
    reset_queries()
    before = HOST.seen(None)
    response = client.get("/enqueue/")
    check("a page that enqueues is answered", response.status_code == 200)
    check("the host's tool sees what writes jobs", HOST.seen(response) - before >= HOST.SEES)
    connection.force_debug_cursor = False  # what follows goes the way that the host itself makes it go
    with CaptureQueriesContext(connection) as captured:
        tasks.add.enqueue(1, 1)
    written = [each["sql"] for each in captured.captured_queries if "INSERT INTO leasequeue_job" in each["sql"]]
    check("CaptureQueriesContext sees a statement that writes a job", len(written) == 1)
    before = Job.objects.count()
    try:
        with connection.execute_wrapper(refuse):
            tasks.add.enqueue(1, 1)
        refused = False
    except Forbidden:
        refused = True
    check("a wrapper that forbids statements is obeyed", refused and Job.objects.count() == before)


class Forbidden(Exception):
    """A host's wrapper lets nothing pass."""


def refuse(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    raise Forbidden


def in_transactions() -> Any:
    """Enqueue in one that is committed, and in one that is not; return the result of the first."""
    with transaction.atomic():
        kept = tasks.add.enqueue(10, 20)
        if hasattr(HOST, "beside"):
            HOST.beside()
    before = Job.objects.count()
    with transaction.atomic():
        Group.objects.create(name="rolled back")
        tasks.add.enqueue(0, 0)
        transaction.set_rollback(True)
    check("a transaction that is rolled back leaves no job", Job.objects.count() == before)
    return kept


async def async_calls() -> Any:
    """Use the connections of coroutines; return the result of a task that was enqueued there."""
    found = await tasks.add.aenqueue(100, 200)
    queue = Queue("by-hand")
    await queue.aenqueue({"n": 1})
    (job,) = await queue.aclaim(1)
    await queue.aack(job)
    await close_pools()
    return found


def by_hand() -> bool:
    queue = Queue("by-hand")
    queue.enqueue_many([{"n": n} for n in range(200)])
    jobs = queue.claim(200)
    queue.ack_many(jobs)
    return len(jobs) == 200 and queue.claim(1) == []


def leads() -> bool:
    return Leader.of(DjangoExecutor("default").fetch("reaper_look", {})) is not None


def over_http(client: Client) -> str:
    """Write, claim and ack as a program elsewhere does; return its key."""
    _, token = create_key("smoke", ["read", "write", "admin", "metrics"])
    headers = {"authorization": f"Bearer {token}"}

    def post(path: str, body: Any) -> Any:
        answer = client.post(f"/v0/topics/{path}", json.dumps(body), content_type="application/json", headers=headers)
        assert answer.status_code in (200, 201), answer.content
        return answer.json()

    made = client.put("/v0/topics/far-away", b'{"type": "queue"}', content_type="application/json", headers=headers)
    assert made.status_code in (200, 201), made.content
    post("far-away", {"records": [{"data": {"n": 7}}]})
    (job,) = post("far-away/claim", {"node": "w1"})["claimed"]
    acked = post("far-away/ack", {"node": "w1", "seqs": [job["$seq"]]})
    check("a job is written, claimed and acked over HTTP", job["data"] == {"n": 7} and acked["acked"] == 1)
    return token


@contextmanager
def worker() -> Iterator[str]:
    """A worker process with a reaper, which stops in order; yield the address of its health page."""
    port = free_port()
    command = [sys.executable, "-m", "django", "runworker", "--poll", "1", "--health-port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **HOST.WORKER})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        _, log = process.communicate(timeout=60)
        if process.returncode or sys.exc_info()[0] is not None:
            print(log)
    check("the worker stops in order", process.returncode == 0)
    traced = log.count("Traceback"), log.count("\n  ValueError: as asked")
    check("it logs the errors that tasks raised, and no other", traced[0] == traced[1] > 0 or print(log))


def said(*words: str) -> str:
    """Run a command, in the worker's environment if that is another one; return what it writes."""
    if HOST.WORKER:
        command, env = [sys.executable, "-m", "django", *words], {**os.environ, **HOST.WORKER}
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def before_work(client: Client) -> dict[str, Any]:
    """Check what needs no worker; return the results of tasks that one is to run."""
    what_tools_see(client)
    found = {"one": tasks.add.enqueue(1, 2), "many": tasks.add.enqueue_many((n, n) for n in range(150))}
    check("one and many are enqueued", len(found["many"]) == 150)
    found["committed"] = in_transactions()
    found["by coroutine"] = asyncio.run(async_calls())
    check("coroutines enqueue, claim and ack", found["by coroutine"].id)
    check("jobs are claimed and acked by hand", by_hand())
    first, second = tasks.make_invoice.enqueue(7), tasks.make_invoice.enqueue(7)
    check("a unique task is there once", (first.id, second.created) == (second.id, False))
    found["delayed"] = tasks.add.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue(3, 4)
    cancelled = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(0, 0)
    check("a task is cancelled", cancelled.cancel())
    RecurringTask.objects.create(name="tick", task=TICK, schedule="every 1 seconds")
    return found


def with_a_worker(found: dict[str, Any], client: Client, health: str) -> None:
    check("a task runs", found["one"].wait(PATIENCE) == 3)
    check("all of many run", [each.wait(PATIENCE) for each in found["many"]] == [2 * n for n in range(150)])
    check("what was committed runs", found["committed"].wait(PATIENCE) == 30)
    check("what a coroutine enqueued runs", found["by coroutine"].wait(PATIENCE) == 300)
    check("an async task runs", tasks.aadd.enqueue(5, 6).wait(PATIENCE) == 11)
    check("a delayed task runs", found["delayed"].wait(PATIENCE) == 7)
    check("a task that fails is tried again", tasks.succeeds_later.enqueue().wait(PATIENCE) == 2)
    check("a task is one transaction with its job", tasks.add_group.enqueue("atomic").wait(PATIENCE) == 1)
    spans = sorted(each.wait(PATIENCE) for each in tasks.alone.enqueue_many([()] * 5))
    check("a limit of one at once holds", all(one[1] <= other[0] for one, other in pairwise(spans)))
    told = tasks.story.enqueue("story")
    emit("told:story", {"end": "good"})
    check("a durable task sleeps, wakes and keeps its step", told.wait(PATIENCE)[1:] == [{"end": "good"}, 1])
    steps = chain(tasks.add.si(1, 1), tasks.add.s(2)).enqueue()
    check("a workflow runs", steps.wait(PATIENCE) == 4)
    ticks = Job.objects.filter(task=TICK, state=Job.Status.COMPLETED)
    check("a recurring task ticks", eventually(ticks.exists, "the tick", PATIENCE))
    dead_letter(client)
    eventually(leads, "a reaper leads", PATIENCE)
    if hasattr(HOST, "while_a_worker_runs"):
        check(HOST.while_a_worker_runs(), True)
    check("the worker's reaper leads", leads())
    check("the worker is well, by its health page", json.loads(read(health))["healthy"] is True)
    check("Prometheus reads the worker's figures", "leasequeue_worker_" in read(f"{health}/metrics"))


def dead_letter(client: Client) -> None:
    failed = tasks.needs.enqueue("the group")
    eventually(lambda: failed.refresh() or failed.is_finished, "the task fails", PATIENCE)
    check("a task that fails for good has its error", failed.status == TaskResultStatus.FAILED and failed.errors)
    (seq,) = LiveJob.objects.filter(state=JobState.DEAD).values_list("pk", flat=True)
    Group.objects.create(name="the group")
    form = {"action": "retry", "scope": "selection", "seq": seq, "confirmed": "1", "next": "/admin/"}
    answer = client.post(reverse("admin:leasequeue_deadletters_act"), form)
    check("the admin retries the dead letter", answer.status_code == 302)
    again = eventually(lambda: failed.refresh() or failed.status == TaskResultStatus.SUCCESSFUL, "it runs", PATIENCE)
    check("which runs then", again and failed.return_value == "the group")


def in_the_end(client: Client, token: str) -> None:
    left_over = LiveJob.objects.exclude(name=TICK).count()
    check("no job is left", left_over == 0)
    metrics = client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    check("Prometheus reads the queues' figures", b"leasequeue_jobs" in metrics.content)
    check("the lease log and the tables say the same", "0 differences" in said("leasequeue_verify"))
    check("leasequeue_status reports", json.loads(said("leasequeue_status", "--json")))
    pages = furnish()
    missing = lacks(client, HOST.THEME, pages)
    check(f"the admin's pages have their navigation and buttons {missing or ''}", not missing)
    if images := os.environ.get("BROWSER_IMAGES"):
        from tests.hosts.look import look  # needs selenium

        session, directory = client.cookies["sessionid"].value, Path(images) / HOST.__name__
        wrong = look(directory, session, [page[:2] for page in pages], HOST.WIDTHS)
        check("\n".join(["Chromium and axe have nothing against them", *wrong]), not wrong)


def versions(packages: list[str]) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (server,) = cursor.fetchone()
    names = [re.split("[<>=]", each)[0] for each in packages]
    return {
        "Python": sys.version.split()[0], "Django": version("django"), "psycopg": version("psycopg"),
        "PostgreSQL": server.split()[0], **{name: version(name) for name in names},
    }  # fmt: skip


def main(packages: list[str]) -> None:
    install()
    User.objects.create_superuser("root", password="root")
    client = Client()
    client.force_login(User.objects.get())
    found = before_work(client)
    token = over_http(client)
    with worker() as health:
        with_a_worker(found, client, health)
    in_the_end(client, token)
    print(json.dumps(versions(packages)))
