"""What holds for every page of the admin: nothing inline, labels, ids, names, cards on a phone, nonsense, progress."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.admin import pages
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import BulkOperation, Limit, Worker
from tests.admin.letters import bury, end, graves, worker
from tests.admin.pages import Page, admin_url, boss, look, signed_in
from tests.engine.helpers import claim, make, one, put
from tests.hosts.pages import furnish
from tests.support.rows import rows

pytestmark = pytest.mark.django_db

_NASTY = "<script>alert(1)</script><b onclick=alert(1) style='color:red'>\"'"


@pytest.mark.slow
def test_no_page_needs_anything_inline() -> None:
    client = boss()
    queue = graves(project=_NASTY)
    failure = engine.Failure(_NASTY, _NASTY, _NASTY, "print")
    (dead,) = bury(1, project=_NASTY, failure=failure, key=_NASTY, name=_NASTY, tag="<i>", data={_NASTY: _NASTY})
    put(2, project=_NASTY)
    leased = one(project=_NASTY, node=_NASTY)
    at = engine.clock.now()
    running = [{"seq": leased.seq, "queue": _NASTY, "name": _NASTY, "seconds": 1}]
    worker(_NASTY, (_NASTY,), host=_NASTY, concurrency=1, running=running)
    operation = rows(BulkOperation).create(
        kind="discard", reason=_NASTY, project=_NASTY, queue="work", frozen_at=at, created_at=at, username=_NASTY
    )
    uid = uuid4()
    step = engine.Node("work", engine.NewJob({}, name=_NASTY), label=_NASTY)
    engine.run(engine.start_workflow([step], uid, project=_NASTY, name=_NASTY))
    engine.run(engine.set_limits([engine.LimitValues(_NASTY, concurrency=1)], project=_NASTY))
    for name, args in (
        ("overview", []), ("queue_changelist", []), ("queue_change", [queue]), ("queue_options", [queue]),
        ("job_changelist", []), ("job_change", [dead]), ("job_change", [leased.seq]), ("tasks", []),
        ("worker_changelist", []), ("worker_change", [Worker.objects.get().pk]),
        ("recurringtask_changelist", []), ("workflow_changelist", []), ("workflow", [uid]), ("limit_changelist", []),
        ("limit_change", [Limit.objects.get().pk]),
        ("deadletters", []), ("deadletters_list", []), ("deadletters_edit", [dead]), ("bulkoperation_changelist", []),
        ("bulkoperation_change", [operation.pk]), ("operatoraction_changelist", []), ("apikey_changelist", []),
    ):  # fmt: skip
        assert [attrs for tag, attrs in look(client, name, *args).tags if tag == "b"] == [], name


#: Of so many digits Python reads no number.
LONG = "9" * 4_400


@pytest.mark.parametrize(("name", "queries"), [
    ("job_changelist", [{"q": LONG}, {"below": LONG}, {"after": "nonsense"}, {"q": "\x00"},
        {"q": 10**30}]),
    ("workflow_changelist", [{"below": LONG}]), ("worker_changelist", [{"q": LONG}]),
    ("limit_changelist", [{"q": "x\x00" * 5_000}]),
    ("recurringtask_times", [{"schedule": "every 30 seconds", "timezone": "UTC", "phase": LONG}]),
    ("queue_changelist", [{"after": "x\x00"}, {"after": "x", "after_project": "\x00"}]),
])  # fmt: skip
def test_nonsense_is_no_trouble(name: str, queries: list[dict[str, Any]]) -> None:
    client, known = boss(), {"queue": make()} if name == "job_changelist" else {}
    for query in queries:
        answer = client.get(admin_url(name, **{**known, **query}))
        assert answer.status_code == 200 or Page(answer.content.decode()).text.count("Nothing is shown until") == 1


@pytest.mark.parametrize(("name", "status"), [
    ("job_change", 404), ("queue_change", 404), ("queue_options", 404), ("worker_change", 302), ("limit_change", 302),
    ("deadletters_edit", 404),
])  # fmt: skip
def test_what_is_not_there(name: str, status: int) -> None:
    client = boss()
    for number in (999_999, 2**62, 2**63, 10**30):
        assert client.get(admin_url(name, number)).status_code == status


@pytest.mark.parametrize(("name", "action"), [("worker", "stop"), ("limit", "reset"), ("recurringtask", "pause")])
def test_a_selection_that_no_row_can_have_is_refused(name: str, action: str) -> None:
    client = boss()
    for selected in ("x", 2**63, LONG):
        data = {"action": action, "_selected_action": selected}
        assert client.post(admin_url(f"{name}_changelist"), data).status_code == 400


@pytest.mark.slow
def test_commands_do_not_load_the_http_doors_for_the_admin() -> None:
    """``django.contrib.admin`` imports our pages with every command: they bring no REST framework along."""
    program = """
import sys
from django.conf import settings
settings.configure(
    SECRET_KEY="x", USE_TZ=True, DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
        "django.contrib.messages", "django.contrib.postgres", "pgtrigger", "django_leasequeue",
    ],
)
import django
django.setup()
assert "django_leasequeue.admin.queues" in sys.modules
print(sorted(name for name in sys.modules if name.split(".")[0] in ("rest_framework", "drf_spectacular", "pyspark")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", ""), done.stderr


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

client = pytest.fixture(boss, name="client")


def body(client: Client, name: str, *args: object, **query: str) -> str:
    answer = client.get(admin_url(name, *args, **query))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("as_list", [True, False])
def test_breadcrumbs_are_as_the_installed_django_has_them(client: Client, monkeypatch: Any, as_list: bool) -> None:
    monkeypatch.setattr(pages, "CRUMBS_ARE_A_LIST", as_list)
    page = Page(body(client, "queue_change", make()))
    (tag,) = [tag for tag, attrs in page.tags if attrs.get("class") == "breadcrumbs"]
    assert tag == ("ol" if as_list else "div")
    assert ("Home Queues Queue work" if as_list else "Home › Queues › Queue work") in page.text  # noqa: RUF001


def test_a_page_has_the_same_name_in_the_sidebar_and_in_the_tabs(client: Client) -> None:
    html = body(client, "overview")
    tabs = re.search(r'<nav class="lq-nav".*?</nav>', html, re.DOTALL)
    named = dict(re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', tabs[0]))
    bar = re.search(r'<nav class="sticky" id="nav-sidebar".*?</nav>', html, re.DOTALL)
    sidebar = dict(re.findall(r'<a href="(/admin/leasequeue/[^"]*)"[^>]*>([^<]*)</a>', bar[0]))
    assert set(named) <= set(sidebar)
    assert {url: sidebar[url].strip() for url in named} == named


@pytest.mark.parametrize(("permission", "entries"), [
    ("view_queue", {"Overview", "Queues"}), ("view_job", {"Dead letters", "Jobs", "Tasks"}),
    ("view_worker", {"Workers"}),
])  # fmt: skip
def test_the_list_of_apps_has_the_pages_that_a_user_may_see(permission: str, entries: set[str]) -> None:
    html = signed_in(permission).get(reverse("admin:index")).content.decode()
    (shown,) = re.findall(r'<div class="app-leasequeue module.*?</table>', html, re.DOTALL)
    names = re.findall(r'<th scope="row"[^>]*>\s*<a href="[^"]+"[^>]*>([^<]+)</a>', shown)
    assert {name.strip() for name in names} == entries


def test_errors_stand_above_warnings_and_those_above_everything_else(client: Client) -> None:
    queue = make()
    engine.run(engine.pause("work", paused=True))
    make("late")
    put(queue="late")
    notes = re.findall(r'<div class="lq-note lq-note-(error|warning)">', body(client, "overview"))
    assert ({"error", "warning"} <= set(notes), notes) == (True, sorted(notes))
    for name, args in (("overview", []), ("queue_changelist", []), ("queue_change", [queue])):
        shown = body(client, name, *args).partition('id="content-main"')[2]
        warning = shown.index("lq-note-warning")
        others = [shown.find(word) for word in ("lq-filters", "lq-actions", "lq-ranges", "lq-cards", "<table")]
        assert warning < min(place for place in others if place >= 0), name


def test_each_cell_of_a_table_that_is_cards_on_a_phone_has_its_label(clock: Clock, client: Client) -> None:
    queue = graves()
    bury(2)
    put(3)
    rows(BulkOperation).create(kind="retry", project="", queue="work", frozen_at=NOON, created_at=NOON)
    for name, query in (
        ("overview", {}), ("queue_changelist", {}), ("job_changelist", {"queue": str(queue)}),
        ("job_changelist", {"state": "any"}), ("tasks", {}), ("deadletters_list", {}), ("deadletters", {}),
    ):  # fmt: skip
        html = body(client, name, **query)
        for table in re.findall(r'<table class="lq-stack">.*?</table>', html, re.DOTALL):
            parts = re.findall(r"<tbody>.*?</tbody>", table, re.DOTALL)
            cells = [cell for cell in re.findall(r"<td[^>]*>", parts[0]) if "colspan" not in cell]
            # A cell of buttons or boxes needs no label.
            bare = [cell for cell in cells if "data-label" not in cell]
            assert len(bare) <= 2 * parts[0].count("<tr"), (name, bare)


@pytest.mark.parametrize(("span", "words"), [("1 h", "3 jobs, last 1 h"), ("24 h", "5 jobs, last 1 d")])
def test_charts_of_longer_times(clock: Clock, client: Client, span: str, words: str) -> None:
    queue = make()
    for count in (2, 3):
        put(count)
        end(*claim(count))
        clock.advance(hours=5 if count == 2 else 0)
    for name, args in (("overview", []), ("queue_change", [queue])):
        page = Page(body(client, name, *args, range=span))
        assert f"completed {words}" in page.text
        every = {attrs["data-lq-every"] for _, attrs in page.tags if attrs.get("data-lq-every")}
        assert (every, "Throughput, jobs a minute" in page.text) == ({"5" if span == "1 h" else "60"}, True)


def test_an_operation_says_how_far_it_is_and_how_long_it_takes_still(clock: Clock, client: Client) -> None:
    made = rows(BulkOperation).create(
        kind="retry", state="running", project="", queue="work", frozen_at=NOON, created_at=NOON, started_at=NOON,
        expected=10_000, done=2_400, conflicts=100,
    )  # fmt: skip
    clock.advance(minutes=1)
    text = Page(body(client, "bulkoperation_change", made.pk)).text
    assert "2,500 of 10,000 dead letters, 25 % (about 3 min left)" in text
    assert "25 %, about 3 min left" in Page(body(client, "bulkoperation_changelist")).text
    rows(BulkOperation).update(expected=None)
    assert "running unknown" in Page(body(client, "bulkoperation_changelist")).text
    rows(BulkOperation).update(expected=10_000, done=0, conflicts=0, started_at=NOON + timedelta(minutes=1))
    assert "0 % (time left unknown)" in Page(body(client, "bulkoperation_change", made.pk)).text


def test_times_of_death_by_button_keep_the_other_filters(clock: Clock, client: Client) -> None:
    bury(1)
    html = body(client, "deadletters_list", queue="work", since="15min")
    links = re.findall(r'<a class="lq-button[^"]*" href="([^"]*)"[^>]*>([^<]*)</a>', html)
    urls = {name: url for url, name in links}
    assert (urls["1 h"], urls["any time"]) == ("?queue=work&amp;since=60min", "?queue=work")
    assert "More filters" in html


@pytest.fixture
def without_time_zones(settings: Any) -> Iterator[None]:
    """``USE_TZ = False``: Django reads a model's times without their zone, in that of the project."""
    connection.close()
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    yield
    connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("without_time_zones")
def test_pages_show_local_times_where_a_project_has_no_time_zones() -> None:
    client, at = boss(), engine.clock.now()
    for name, address, _ in furnish():
        answer = client.get(address)
        assert answer.status_code == 200, name
        if name == "job_change":
            assert f"{at + timedelta(hours=9):%Y-%m-%d %H:%M}" in Page(answer.content.decode()).text
