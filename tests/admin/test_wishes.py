"""Figures of the navigation, actions on lists of jobs, saved views, filters that complete, the page of a task."""

from typing import Any

import pytest
from django.test import Client

from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Job, OperatorAction, RecurringTask, SavedFilter
from django_leasequeue.tasks import Limit, task
from tests.admin.letters import bury, end, worker
from tests.admin.pages import Page, admin_url, boss, look, signed_in, told
from tests.engine.helpers import claim, make, one, put
from tests.support.rows import rows
from tests.support.sampling import sample

pytestmark = pytest.mark.django_db
client = pytest.fixture(boss)


@task(limit=Limit("gateway", concurrency=2))
def charge(order: int) -> int:
    return order


NAME = f"{__name__}.charge"


def test_each_page_has_its_figure_for_who_may_see_it(client: Client) -> None:
    make()
    put(5)
    one()
    bury(3, "mail")
    sample()
    figures = client.get(admin_url("counts")).json()
    assert figures == {
        "leasequeue_overview": "1 alert", "leasequeue_deadletters": "3",
        "leasequeue_job_changelist": "4 waiting, 1 running",
    }  # fmt: skip
    assert set(signed_in("view_job", name="other").get(admin_url("counts")).json()) == set(figures) - {
        "leasequeue_overview"
    }
    assert Client().get(admin_url("counts")).status_code == 302
    places = [attrs["data-lq-figure"] for tag, attrs in look(client, "job_changelist").tags
              if "data-lq-figure" in attrs]  # fmt: skip
    assert set(figures) <= set(places)


class TestManyJobs:
    def test_selected_jobs_of_any_list_are_cancelled_run_and_released(self, client: Client) -> None:
        queue = make()
        ready, later = put(3), put(2, delay_ms=60_000)
        leased = one().seq
        ready.remove(leased)
        for query in ({"queue": queue, "state": "ready"}, {"state": "ready"}, {"state": "any"}):
            page = look(client, "job_changelist", **query)
            boxes = {attrs.get("value") for tag, attrs in page.tags if attrs.get("name") == "seq"}
            assert boxes >= {str(seq) for seq in ready}, query
        back = admin_url("job_changelist", state="any")
        words = told(client, "jobs_act", action="cancel", seq=[*ready, leased], next=back)
        assert words == "Cancelled: 2 of 3 jobs. The others were in another state."
        assert told(client, "jobs_act", action="run", seq=later) == "Ready now: 2 of 2 jobs."
        assert told(client, "jobs_act", action="release", seq=leased) == "Released: 1 of 1 jobs."
        assert set(Job.objects.values_list("pk", "state")) == {
            *((seq, "ready") for seq in [*later, leased]),
            *((seq, "cancelled") for seq in ready if Job.objects.filter(pk=seq).exists()),
        }
        lines = OperatorAction.objects.order_by("pk")
        assert [(line.action, line.counts["done"]) for line in lines] == [("cancel", 2), ("run", 2), ("release", 1)]

    def test_what_is_no_selection_or_not_allowed_changes_nothing(self, client: Client) -> None:
        make()
        (seq,) = put(1)
        assert "Select 1 to 1,000 jobs" in told(client, "jobs_act", action="cancel")
        viewer = signed_in("view_job", name="viewer")
        assert viewer.post(admin_url("jobs_act"), {"action": "cancel", "seq": seq}).status_code == 403
        assert client.post(admin_url("jobs_act"), {"action": "explode", "seq": seq}).status_code == 404
        assert client.get(admin_url("jobs_act")).status_code == 405
        assert "With the selected jobs" not in look(viewer, "job_changelist", state="ready").text
        assert Job.objects.get().state == "ready"


class TestViews:
    def test_a_view_of_the_list_is_saved_offered_and_forgotten(self, client: Client) -> None:
        query = "state=any&task=shop.pay&since=1h"
        page = client.get(f"{admin_url('job_changelist')}?{query}")
        assert page.context["filter_query"] == query
        data: dict[str, Any] = {"filter": query, "name": "pays", "shared": "1", "next": admin_url("job_changelist")}
        assert "Saved the filter" in told(client, "job_filters", **data)
        saved = SavedFilter.objects.get()
        assert (saved.page, saved.query) == ("jobs", "state=any&task=shop.pay&since=1h")
        page = look(signed_in("view_job", name="other"), "job_changelist")
        assert "pays shared by boss" in page.text
        assert "pays" not in look(client, "deadletters").text
        for wrong in ("qeue=mail", "since=never", ""):
            told(client, "job_filters", filter=wrong, name="wrong")
        assert SavedFilter.objects.get() == saved
        assert "forgotten" in told(client, "job_filters", forget=saved.pk)

    def test_tags_and_workers_complete_and_filter(self, client: Client) -> None:
        make()
        (seq,) = put(1, tag="eu")
        put(2, tag="us")
        worker()
        page = look(client, "job_changelist")
        values = {attrs.get("value") for tag, attrs in page.tags if tag == "option"}
        assert {"eu", "us", "worker-1"} <= values
        found = client.get(admin_url("job_changelist", state="any", tag="eu")).context["looked"].jobs
        assert [job.seq for job in found] == [seq]
        leased = claim(2)
        listed = client.get(admin_url("job_changelist", worker="worker-1")).context["found"]
        assert {job.seq for job in listed} == {job.seq for job in leased}
        assert client.get(admin_url("job_changelist", worker="other")).context["found"] == []


class TestTaskPage:
    def test_runs_errors_times_limit_schedule_and_code(self, client: Client, clock: Clock, settings: Any) -> None:
        settings.LEASEQUEUE = {"ADMIN": {"SOURCE": "https://git.example.com/{path}#L{line}"}}
        make(result_ttl_ms=60_000)
        put(3, name=NAME)
        leased = claim(3)
        clock.advance(seconds=5)
        end(*leased, ran_ms=4_000)
        bury(2, "mail", name=NAME)
        rows(RecurringTask).create(name="nightly", task=NAME, schedule="@daily", timezone="UTC")
        page = look(client, "task", name=NAME)
        for words in (
            "runs 5 ended", "failed runs 2", "40 % of all", "Limit gateway", "nightly : @daily UTC",
            "Errors, last 1 h", "shop.Declined 2", "run p50 / p95 / p99 4 s / 4 s / 4 s",
        ):  # fmt: skip
            assert words in page.text, (words, page.text)
        (code,) = [attrs["href"] for _, attrs in page.tags if "git.example.com" in str(attrs.get("href"))]
        assert code.startswith("https://git.example.com/tests/admin/test_wishes.py#L")
        assert {"runs", "times"} <= set(page.ids())
        assert any(attrs.get("href") == admin_url("task", name=NAME) for _, attrs in look(client, "tasks").tags)

    def test_a_task_that_is_not_there_is_no_trouble(self, client: Client) -> None:
        page = look(client, "task", name="no.such.task")
        assert "this process does not find it" in page.text
        assert client.get(admin_url("task")).status_code == 404
        assert "'name'" in Page(client.get(admin_url("task", nam="x")).content.decode()).text
