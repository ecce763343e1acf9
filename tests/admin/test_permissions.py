"""Who may see which page and do what: a permission each, also for hand-made POSTs, and never without a CSRF token."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.engine import clock
from django_leasequeue.models import OperatorAction, Queue, StoredJob, Worker
from tests.admin.people import VIEWS, signed_in
from tests.engine.helpers import make, put, state
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


class Place(NamedTuple):
    """What there is to look at."""

    queue: int
    ready: int
    leased: int
    claim: int
    worker: int


@pytest.fixture
def place() -> Place:
    queue = make("work", dead_letter="self", max_deliveries=3, exhaust_at="release")
    leased, ready = put(2)
    (job,) = engine.run(engine.claim("work", "worker-1", 1))
    assert job.seq == leased
    worker = rows(Worker).create(
        node="worker-1", host="h", pid=1, queues=["work"], concurrency=1, started_at=clock.now(), seen_at=clock.now()
    )
    return Place(queue, ready, leased, job.token, worker.pk)


PAGES: list[tuple[str, Callable[[Place], list[Any]], tuple[str, ...]]] = [
    ("leasequeue_overview", lambda p: [], ("view_queue",)),
    ("leasequeue_queue_changelist", lambda p: [], ("view_queue",)),
    ("leasequeue_queue_change", lambda p: [p.queue], ("view_queue",)),
    ("leasequeue_queue_options", lambda p: [p.queue], ("view_queue", "change_queue")),
    ("leasequeue_job_changelist", lambda p: [], ("view_job",)),
    ("leasequeue_job_change", lambda p: [p.ready], ("view_job",)),
    ("leasequeue_worker_changelist", lambda p: [], ("view_worker",)),
    ("leasequeue_worker_change", lambda p: [p.worker], ("view_worker",)),
    ("leasequeue_tasks", lambda p: [], ("view_job",)),
    ("leasequeue_recurringtask_changelist", lambda p: [], ("view_recurringtask",)),
]


class Act(NamedTuple):
    """Something that can be done: where, with what, by whom, and how to see that it was."""

    name: str
    args: Callable[[Place], list[Any]]
    data: Callable[[Place], dict[str, Any]]
    views: tuple[str, ...]
    needs: str
    done: Callable[[Place], bool]
    audited: str


def _paused(place: Place) -> bool:
    return Queue.objects.get(pk=place.queue).paused_at is not None


ACTS = [
    Act(
        "leasequeue_queue_act", lambda p: [p.queue], lambda p: {"action": "pause"}, ("view_queue",), "pause_queue",
        _paused, "pause",
    ),
    Act(
        "leasequeue_queue_act", lambda p: [p.queue],
        lambda p: {"action": "purge", "states": ["ready"], "typed": "work"},
        ("view_queue",), "purge_queue", lambda p: not StoredJob.objects.filter(pk=p.ready).exists(), "purge",
    ),
    Act(
        "leasequeue_job_act", lambda p: [p.ready], lambda p: {"action": "cancel"}, ("view_job",), "cancel_job",
        lambda p: not StoredJob.objects.filter(pk=p.ready).exists(), "cancel",
    ),
    Act(
        "leasequeue_job_act", lambda p: [p.leased], lambda p: {"action": "release", "claim": p.claim}, ("view_job",),
        "release_job", lambda p: state(p.leased) == "ready", "release",
    ),
]  # fmt: skip
_IDS = [act.audited for act in ACTS]


def _url(name: str, args: list[Any]) -> str:
    return reverse(f"admin:{name}", args=args)


@pytest.mark.parametrize(("name", "args", "needs"), PAGES, ids=[page[0] for page in PAGES])
class TestPages:
    def test_nobody_comes_in_without_signing_in(
        self, place: Place, name: str, args: Callable[[Place], list[Any]], needs: tuple[str, ...]
    ) -> None:
        answer = Client().get(_url(name, args(place)))
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("admin:login"))

    def test_each_of_its_permissions_is_needed(
        self, place: Place, name: str, args: Callable[[Place], list[Any]], needs: tuple[str, ...]
    ) -> None:
        url = _url(name, args(place))
        assert signed_in(*needs, name="all").get(url).status_code == 200
        for missing in needs:
            rest = {*VIEWS, *needs} - {missing}
            assert signed_in(*rest, name=f"without-{missing}").get(url).status_code == 403

    def test_it_is_not_kept_by_caches(
        self, place: Place, name: str, args: Callable[[Place], list[Any]], needs: tuple[str, ...]
    ) -> None:
        assert "no-store" in signed_in(*needs).get(_url(name, args(place)))["Cache-Control"]


@pytest.mark.parametrize("act", ACTS, ids=_IDS)
class TestActs:
    def test_with_its_permission_it_is_done_and_written_down(self, place: Place, act: Act) -> None:
        client = signed_in(*act.views, act.needs, name="operator")
        answer = client.post(_url(act.name, act.args(place)), act.data(place))
        assert answer.status_code == 302
        assert act.done(place)
        line = OperatorAction.objects.get()
        assert (line.action, line.username) == (act.audited, "operator")
        assert LogEntry.objects.filter(user__username="operator").count() == 1

    def test_a_viewer_can_do_nothing_also_by_hand(self, place: Place, act: Act) -> None:
        others = {each.needs for each in ACTS} - {act.needs}
        client = signed_in(*VIEWS, "view_payload", *others)
        answer = client.post(_url(act.name, act.args(place)), act.data(place))
        assert answer.status_code == 403
        assert not act.done(place)
        assert not OperatorAction.objects.exists()

    def test_nor_without_seeing_what_it_is_done_to(self, place: Place, act: Act) -> None:
        answer = signed_in(act.needs).post(_url(act.name, act.args(place)), act.data(place))
        assert answer.status_code == 403
        assert not act.done(place)

    def test_a_link_does_nothing(self, place: Place, act: Act) -> None:
        client = signed_in(*act.views, act.needs)
        assert client.get(_url(act.name, act.args(place)), act.data(place)).status_code == 405
        assert not act.done(place)

    def test_a_form_of_another_site_does_nothing(self, place: Place, act: Act) -> None:
        client = signed_in(*act.views, act.needs, enforce_csrf_checks=True)
        assert client.post(_url(act.name, act.args(place)), act.data(place)).status_code == 403
        assert not act.done(place)

    def test_who_is_not_signed_in_is_sent_to_the_login(self, place: Place, act: Act) -> None:
        assert Client().post(_url(act.name, act.args(place)), act.data(place)).status_code == 302
        assert not act.done(place)


def test_options_are_changed_only_with_the_permission(place: Place) -> None:
    url = _url("leasequeue_queue_options", [place.queue])
    before = engine.run(engine.get("work"))
    assert signed_in(*VIEWS, "pause_queue", "purge_queue").post(url, {"lease_ms": 5_000}).status_code == 403
    assert engine.run(engine.get("work")) == before


def test_a_viewer_sees_no_button(place: Place) -> None:
    client = signed_in(*VIEWS)
    for name, args in (
        ("leasequeue_queue_change", [place.queue]),
        ("leasequeue_job_change", [place.ready]),
        ("leasequeue_job_change", [place.leased]),
        ("leasequeue_worker_changelist", []),
    ):
        body = client.get(_url(name, args)).content.decode()
        main = body[body.index('id="content-main"') :]
        assert '<form method="post"' not in main


def test_the_start_page_links_to_what_one_may_see(place: Place) -> None:
    body = signed_in("view_worker").get(reverse("admin:index")).content.decode()
    assert _url("leasequeue_worker_changelist", []) in body
    assert _url("leasequeue_queue_changelist", []) not in body
