"""Job: one model over a job's whole life, as projects query it; and the dashboard of the how-to."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import serializers
from django.db import connection, transaction
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Release
from django_leasequeue.exceptions import InvalidOption, JobCancelled, WrittenByEngine
from django_leasequeue.models import Claim, Job, JobResult, JobStatus, Queue, StoredJob, Worker, Workflow
from django_leasequeue.tasks import chain
from django_leasequeue.tasks.api import TaskResultStatus
from tests.engine.helpers import NODE, claim, make, one
from tests.support.rows import rows
from tests.support.sampling import sample
from tests.support.shop import files
from tests.tasks import samples
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db


def new(state: str, **fields: Any) -> int:
    (answer,) = engine.run(engine.enqueue("work", [NewJob(data={"state": state, "n": len(state)}, **fields)]))
    return answer.seq


@pytest.fixture
def life(clock: Any) -> dict[str, int]:
    """A job in each state, by the name of the state."""
    make("work", result_ttl_ms=3_600_000, exhaust_at="release", dead_letter="self")
    made = {state: new(state, priority=3) for state in ("completed", "failed")}
    made["dead"] = new("dead", priority=3, max_deliveries=1)
    for job in claim(3):
        clock.advance(seconds=1)
        if job.seq == made["dead"]:
            engine.run(engine.release([Release(job.seq, failure=Failure("KeyError", "'x'"))], NODE))
        elif job.seq == made["failed"]:
            engine.run(engine.finish([Ending(job.seq, failure=Failure("ValueError", "no"))], NODE))
        else:
            engine.run(engine.finish([Ending(job.seq, result={"ok": True, "n": 1.50})], NODE))
    made["leased"] = new("leased")
    one()
    made["delayed"] = new("delayed", run_at=clock.now + timedelta(days=9_000))
    made["ready"] = new("ready", key="mine", tag="a")
    made["expired"] = new("expired", ttl_ms=1)
    return made


def seqs(jobs: Any) -> list[int]:
    return sorted(jobs.values_list("pk", flat=True))


def test_states_and_what_a_person_asks_for(life: dict[str, int], clock: Any) -> None:
    rows(StoredJob).filter(pk=life["expired"]).update(expires_at=clock.now)
    with connection.cursor() as cursor:  # the views go by the server's clock
        cursor.execute("UPDATE leasequeue_ready SET expires_at = '2020-01-01' WHERE seq = %s", [life["expired"]])
    assert dict(Job.objects.values_list("state", "pk")) == life
    for state, seq in life.items():
        assert seqs(Job.objects.filter(state=state)) == [seq]
        assert Job.objects.get(pk=seq, state=state).data["state"] == state
    job = Job.objects.get(state="failed")
    assert (job.priority, job.deliveries, job.worker, job.error_type, job.error) == (3, 1, NODE, "ValueError", "no")
    assert ((job.finished_at - job.started_at).total_seconds(), job.enqueued_at) == (2, job.started_at)
    assert Job.objects.get(state=JobStatus.LEASED).deadline > clock.now
    assert Job.objects.get(key="mine").pk == life["ready"]


def test_both_views_say_the_same(life: dict[str, int]) -> None:
    samples.add.enqueue(1, 2)
    chain(samples.add.si(1, 2), samples.add.si(3, 4)).enqueue()
    claim(1, "default")
    columns = ", ".join(f"{field.column}::text" for field in Job._meta.concrete_fields)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM leasequeue_jobs")
        assert cursor.fetchone() == (len(life) + 3,)
        ended = " WHERE state IN ('completed', 'failed', 'cancelled')"
        for view, where in (("leasequeue_jobs_by_state", ""), ("leasequeue_jobs_finished", ended)):
            left, right = (f"SELECT {columns} FROM {name}{where}" for name in ("leasequeue_jobs", view))
            cursor.execute(f"({left} EXCEPT ALL {right}) UNION ALL ({right} EXCEPT ALL {left})")
            assert cursor.fetchall() == [], view


def test_querysets_that_speak(life: dict[str, int]) -> None:
    (dumped,) = json.loads(serializers.serialize("json", Job.objects.dead()))
    assert dumped["fields"]["error_type"] == "KeyError"
    assert not {"result", "dead_letter"} & set(dumped["fields"])
    assert seqs(Job.objects.in_queue("nowhere")) == []
    result = samples.add.enqueue(1, second=2)
    (job,) = Job.objects.for_task(samples.add)
    assert (job.key, job.args, job.kwargs) == (result.id, [1], {"second": 2})
    assert Job.objects.get(key=result.id) == result.job == samples.add.jobs.get() == job
    assert seqs(Job.objects.filter(kwargs__second=2)) == seqs(Job.objects.filter(args__0=1)) == [job.pk]


def test_a_workflow_and_what_comes_after_a_failure_is_cancelled() -> None:
    chain(samples.fail_for_good.si(), samples.add.si(3, 4)).enqueue()
    workflow = Workflow.objects.get()
    assert workflow.jobs.count() == Job.objects.in_workflow(workflow.uid).count() == 2
    assert set(Job.objects.in_workflow(workflow).values_list("state", flat=True)) == {"ready", "waiting"}
    assert Job.objects.waiting().get().workflow == workflow
    assert Job.objects.waiting().run_now() == 0
    assert run_one() == "failed"
    engine.run(engine.advance([Queue.objects.get(name="default").pk]))
    (job,) = Job.objects.for_task(samples.add)
    assert job.state == "cancelled" == Job.objects.get(state="cancelled").state
    assert Job.objects.all().run_now() == 0
    assert Job.objects.get(pk=job.pk).state == "cancelled"
    result = samples.add.get_result(job.key)
    assert (result.status, result.errors) == (TaskResultStatus.FAILED, [])
    with pytest.raises(JobCancelled):
        result.wait(60)


def test_a_job_and_its_result_lead_to_each_other(life: dict[str, int]) -> None:
    assert Queue.objects.get(name="work").jobs.count() == len(life)
    done = Job.objects.select_related("result", "queue").get(pk=life["completed"])
    with CaptureQueriesContext(connection) as queries:
        said = (done.result.result, done.queue.name, str(done.result.result["n"]))
    assert said == ({"ok": True, "n": 1.5}, "work", "1.5")
    assert len(queries) == 0
    assert JobResult.objects.get(result__ok=True).job == done
    assert seqs(Job.objects.filter(result__result__n__gt=1)) == [life["completed"]]


def test_a_job_leads_to_its_dead_letter_attempts_and_events(life: dict[str, int]) -> None:
    dead = Job.objects.get(pk=life["dead"])
    assert (dead.dead_letter.error_type, dead.dead_letter.job) == ("KeyError", dead)
    assert [attempt.error_type for attempt in dead.attempts.all()] == ["KeyError"]
    assert seqs(Job.objects.filter(attempts__error_type="KeyError")) == [life["dead"]]
    assert {event.get_kind_display() for event in dead.events.all()} >= {"enqueued", "claimed", "dead_lettered"}
    assert dead.events.first().job == dead
    with CaptureQueriesContext(connection) as queries:
        jobs = list(Job.objects.in_queue("work").prefetch_related("events", "attempts", "result"))
        assert all(len(job.events.all()) >= 1 for job in jobs)
    assert len(queries) == 5


def test_a_worker_leads_to_its_leases(life: dict[str, int], clock: Any) -> None:
    worker = rows(Worker).create(node=NODE, host="h", pid=1, concurrency=1, started_at=clock.now, seen_at=clock.now)
    assert [lease.seqs for lease in worker.leases.all()] == [[life["leased"]]]
    assert Claim.objects.get().worker == worker


@pytest.mark.parametrize("write", [
    lambda: Job.objects.create(data=1), lambda: Job().save(), lambda: Job.objects.bulk_create([Job()]),
    lambda: Job.objects.get_or_create(pk=1), lambda: Job.objects.get(key="mine").save(),
    lambda: Job.objects.ready().update(tag="x"), lambda: Job.objects.get(key="mine").delete(),
    lambda: Job.objects.ready().delete(),
    lambda: next(serializers.deserialize("json", serializers.serialize("json", Job.objects.finished()))).save(),
])  # fmt: skip
def test_nothing_is_written_past_the_engine(life: dict[str, int], write: Any) -> None:
    words = r"Job is read only .* Use .*(enqueue|release|cancel)"
    with pytest.raises(WrittenByEngine, match=words), transaction.atomic():
        write()
    assert Job.objects.count() == len(life)


def test_the_jobs_of_a_query_are_changed_through_the_engine(life: dict[str, int]) -> None:
    jobs = Job.objects.in_queue("work")
    assert jobs.delayed().run_now() == 1
    assert jobs.leased().release() == 1
    assert Job.objects.get(pk=life["leased"]).state == "ready"
    assert Job.objects.get(pk=life["dead"]).retry() is True
    assert Job.objects.get(pk=life["dead"]).state == "ready"
    assert jobs.finished().cancel() == 0
    left = jobs.ready().count()
    assert jobs.ready().filter(pk__lt=life["ready"]).cancel() == left - 2
    with transaction.atomic():
        jobs.ready().cancel()
        transaction.set_rollback(True)
    assert jobs.ready().count() == 2


def test_dead_letters_go_elsewhere_or_for_good() -> None:
    make("work", exhaust_at="release", dead_letter="self", max_deliveries=1)
    make("other")
    for _ in range(2):
        new("dead")
        engine.run(engine.nack([one().seq], NODE))
    assert Job.objects.dead()[:1].redrive("other") == 1
    assert Job.objects.in_queue("other").ready().count() == 1
    with pytest.raises(InvalidOption, match="needs a reason"):
        Job.objects.dead().discard("")
    assert Job.objects.dead().discard("a test") == 1
    assert Job.objects.dead().count() == 0


@pytest.mark.parametrize(("query", "states"), [
    ("state__exact=leased&o=-2", ["leased"]), ("result__isempty=0", ["completed", "failed"]),
    ("dead_letter__error_type=KeyError", ["dead"]),
    ("finished_at__gte=2020-01-01+00:00:00%2B00:00&result__isempty=1", ["dead"]), ("q=nothing", []),
    ("q=mine", ["ready"]),
])  # fmt: skip
def test_an_admin_of_the_projects_own(life: dict[str, int], query: str, states: list[str]) -> None:
    class JobAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # Django 6.1 cannot subscript it
        list_display = ("pk", "state", "queue", "result")
        list_filter = (
            "state", "queue__name", ("result", admin.EmptyFieldListFilter), "dead_letter__error_type",
            ("finished_at", admin.DateFieldListFilter), ("worker", admin.AllValuesFieldListFilter),
        )  # fmt: skip
        search_fields = ("key__exact", "queue__name__exact", "result__error")
        date_hierarchy = "enqueued_at"

    request = RequestFactory().get(f"/?{query}")
    request.user = User(is_superuser=True, is_active=True)
    shown = JobAdmin(Job, admin.AdminSite()).get_changelist_instance(request).result_list
    assert sorted(job.pk for job in shown) == sorted(life[state] for state in states)


@pytest.fixture
def staff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, admin_client: Client) -> Iterator[Client]:
    templates = deepcopy(django_settings.TEMPLATES)
    templates[0]["DIRS"] = [tmp_path / "shop/templates"]
    settings.TEMPLATES, settings.ROOT_URLCONF = templates, "shop.urls"
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django_filters"]
    with files("how-to/dashboard.md", tmp_path, monkeypatch):
        yield admin_client


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


def test_the_page(staff: Client, jobs: dict[str, int]) -> None:
    page = staff.get("/queues/mail/").content.decode()
    assert f"<td>{jobs['running']}<td>shop.tasks.send<td>{NODE}" in page
    assert f"<td>{jobs['dead']}<td>shop.tasks.send<td>KeyError: &#x27;&lt;b&gt;" in page
    assert 'points=""' in page
    sample()
    page = staff.get("/queues/mail/").content.decode()
    assert "<p>1 ready, 1 running, 0 delayed, 1 dead</p>" in page
    # A busy machine draws it a moment later.
    assert re.search(r'points="(600|599|598)\.\d,0\.0"', page)
    assert staff.get("/queues/mial/").status_code == 404
    assert Client().get("/queues/mail/").status_code == 302


def test_the_api(staff: Client, jobs: dict[str, int]) -> None:
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
