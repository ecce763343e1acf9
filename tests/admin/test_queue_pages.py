"""The pages of queues and workers, and the overview: figures, warnings, options, purge, a worker asked to stop."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.admin import reading
from django_leasequeue.conf.process import forget
from django_leasequeue.engine.clock import Clock, now, span
from django_leasequeue.engine.limits import WORKER_LEASE
from django_leasequeue.engine.queues.stats import counts_by_id
from django_leasequeue.models import LiveJob, OperatorAction, Queue, QueueFloor, StoredJob, Worker
from django_leasequeue.reaper import concerns
from django_leasequeue.reaper.leader import Leader
from django_leasequeue.templatetags.leasequeue_admin import capped
from django_leasequeue.worker.link import write_presence
from tests.admin.letters import bury, end, graves, worker
from tests.admin.pages import Page, admin_url, look, signed_in, told, walk
from tests.engine.helpers import claim, make, one, put
from tests.support.commands import said
from tests.support.rows import rows
from tests.support.sampling import sample

pytestmark = pytest.mark.django_db
MAY = ("view_queue", "view_job", "view_worker", "pause_queue", "change_queue", "purge_queue", "stop_worker")
client = pytest.fixture(lambda: signed_in(*MAY))


def warned(queue: int) -> list[str]:
    counts = engine.run(counts_by_id([queue]))[queue]
    health = reading.read(concerns.read_health([queue]))[queue]
    return [concern.text for concern in concerns.of_queue(counts, health, now())]


def test_the_page_of_a_queue_has_depth_age_and_what_happened_in_the_last_hour(clock: Clock, client: Client) -> None:
    queue = make(result_ttl_ms=60_000)
    put(5)
    put(2, delay_ms=60_000)
    clock.advance(seconds=30)
    end(*claim(2))
    one()
    sample()
    clock.advance(seconds=60)
    page = look(client, "queue_change", queue)
    # By now the delayed ones are due and the one lease is over: what a claim could take counts as ready.
    for words in (
        "ready 5", "delayed 0", "in flight 0", "oldest ready 1 min 30 s ago", "last claim 1 min ago",
        "completed 2 jobs, last 1 h",
        "wait p50 / p99 30 s / 30 s from ready to claimed, last 1 h",
    ):  # fmt: skip
        assert words in page.text, words
    assert {"throughput", "waits", "depths"} <= set(page.ids())


LEADER = Leader(1, 1, "a", "local", None, 1.0, [])


class TestWarnings:
    def test_nobody_listens_and_paused(self, clock: Clock) -> None:
        queue = make()
        assert warned(queue) == []
        put(2)
        worker(queues=("other",))
        (text,) = warned(queue)
        assert "Nobody claims from work" in text
        one()  # somebody takes its jobs, by whichever door
        assert warned(queue) == []
        worker("worker-2")
        assert warned(queue) == []
        clock.advance(seconds=WORKER_LEASE + 1)  # it was not seen since
        engine.run(engine.sweep([queue]))
        assert warned(queue) == [], "somebody claimed a moment ago"
        clock.advance(seconds=concerns.BOUNDS.unclaimed)
        assert any("Nobody claims from work" in text for text in warned(queue))
        engine.run(engine.pause("work", paused=True))
        assert ["has been paused for" in text for text in warned(queue)] == [True]

    def test_a_lease_that_is_over_and_nobody_swept_and_a_floor_that_cannot_move(self, clock: Clock) -> None:
        queue = make(lease_ms=1_000)
        put()
        worker()
        one()
        clock.advance(seconds=50)
        worker("worker-2")
        assert warned(queue) == []
        clock.advance(seconds=20)
        rows(Worker).update(seen_at=now())
        assert "was not swept" in warned(queue)[0]
        engine.run(engine.sweep([queue]))
        rows(QueueFloor).all().delete()
        for kind in (0, 1, 2):
            rows(QueueFloor).create(queue_id=queue, kind=kind, value=5, made_at=now())
        assert warned(queue) == []
        clock.advance(seconds=330)
        rows(Worker).update(seen_at=now())
        assert "has not moved for 5 min 30 s" in warned(queue)[0]

    def test_a_lease_that_is_old_and_a_long_transaction(self, clock: Clock) -> None:
        queue = make()
        (seq,) = put()
        one(lease_ms=86_400_000)
        clock.advance(seconds=concerns.BOUNDS.lease + 60)
        (text,) = warned(queue)
        assert "6 h 1 min old, held by worker-1" in text
        assert reading.read(concerns.read_health([queue]))[queue].old_seq == seq
        (found,) = concerns.of_server(LEADER, 4_000.0, 4711, "pg_dump")
        assert "pg_dump (pid 4711) is open for 1 h 6 min" in found.text
        assert concerns.of_server(LEADER, 10.0, 4711, "x") == []
        assert "No reaper leads" in concerns.of_server(None, None, None, None)[0].text


class TestDeaths:
    def test_new_dead_letters_are_told_by_a_bound_and_by_the_hour_before(self, clock: Clock) -> None:
        queue = graves()
        bury(9)
        assert warned(queue) == [], "too few"
        bury(1)
        assert warned(queue) == ["10 jobs of work died in the last 10 min, 0 in the hour before."]
        clock.advance(seconds=concerns.LATELY + 60)
        assert warned(queue) == []
        bury(19)
        assert len(warned(queue)) == 1
        clock.advance(seconds=concerns.LATELY + 60)
        bury(14)  # the hour before had 29, which is five in ten minutes
        assert warned(queue) == []
        bury(86)
        assert warned(queue) == ["100 jobs of work died in the last 10 min, 29 in the hour before."]

    def test_every_page_tells_and_leads_to_them(self, clock: Clock, client: Client) -> None:
        queue = graves("mail", project="shop")
        for n in range(30):  # the list shows others first
            make(f"queue-{n}")
            put(1, f"queue-{n}")
        bury(110, "mail", project="shop")
        sample()
        words = "Attention: 110 jobs of shop/mail died in the last 10 min, 0 in the hour before. These dead letters"
        for name, args in (("overview", []), ("queue_change", [queue])):
            page = look(client, name, *args)
            assert words in page.text, name
            (href,) = {attrs["href"] for _, attrs in page.tags if "since=" in str(attrs.get("href"))}
            assert client.get(href).context["groups"][0]["dead_letters"] == 110

    @pytest.mark.django_db(transaction=True)
    def test_the_command_tells_too(self) -> None:
        bury(110, "mail", project="shop")
        assert "110 jobs of shop/mail died in the last 10 min, 0 in the hour before." in said("leasequeue_status")
        assert "died in the last" not in said("leasequeue_status", "--dead", "2000")

    def test_figures_lead_to_the_list_that_they_count(self, client: Client) -> None:
        queue = make()
        put(5)
        put(2, delay_ms=60_000)
        one()
        bury(3, "mail")
        sample()
        page = look(client, "overview")
        for label, url, count in (
            ("ready", admin_url("job_changelist", state="ready"), 4),
            ("delayed", admin_url("job_changelist", state="delayed"), 2),
            ("in flight", admin_url("job_changelist", state="leased"), 1),
        ):
            assert f"{label} {count} jobs, now" in page.text
            assert any(attrs.get("href") == url for _, attrs in page.tags), url
            assert len(client.get(url).context["found"]) == count
            line = admin_url("job_changelist", queue=queue, state=url.rpartition("=")[2])
            assert any(attrs.get("href") == line for _, attrs in page.tags), line
            assert len(client.get(line).context["jobs"]) == count
        assert any(attrs.get("href") == admin_url("tasks", range="1 h", sort="ended") for _, attrs in page.tags)
        nobody = look(signed_in("view_queue", name="nobody"), "overview")
        assert [attrs["href"] for _, attrs in nobody.tags if "/job/" in str(attrs.get("href"))] == []


class TestOptions:
    def send(self, client: Client, queue: int, **changes: Any) -> Any:
        url = admin_url("queue_options", queue)
        form = client.get(url).context["form"]
        values = {name: form[name].value() for name in form.fields}
        data = {name: "" if value is None else value for name, value in {**values, **changes}.items()}
        data["metadata"] = changes.get("metadata", "{}")
        return client.post(url, {name: value for name, value in data.items() if value is not False})

    def test_a_change_is_made_and_written_down_and_what_is_saved_unchanged_stays(self, client: Client) -> None:
        queue = make(preset="codeq")
        before = engine.run(engine.get("work"))
        assert self.send(client, queue).status_code == 302
        assert engine.run(engine.get("work")) == before
        assert not OperatorAction.objects.exists()
        changes = {"max_deliveries": 9, "dead_letter": "graves", "log_enqueued": False}
        assert self.send(client, queue, **changes).status_code == 302
        config = engine.run(engine.get("work")).config
        assert {name: config[name] for name in changes} == changes
        assert OperatorAction.objects.get().detail == {
            "changed": {"dead_letter": ["self", "graves"], "log_enqueued": [True, False], "max_deliveries": [5, 9]}
        }
        form = client.get(admin_url("queue_options", queue)).context["form"]
        engine.run(engine.configure("work", lease_ms=5_000))
        answer = self.send(client, queue, seen=form["seen"].value(), lease_ms=9_000)
        assert "The options were changed meanwhile" in answer.content.decode(), "the form is older than the options"
        assert Queue.objects.get(pk=queue).lease_ms == 5_000

    @pytest.mark.parametrize(("change", "words"), [
        ({"max_deliveries": -1}, "max_deliveries must be from 0"), ({"max_deliveries": "many"}, "Enter a whole number"),
        ({"dead_letter": "not a name"}, "dead_letter must be 1 to 255"), ({"dead_letter": "work"}, "another topic"),
        ({"priority_min": 9, "priority_max": 1}, "priority_min must not be above"),
        ({"backoff": "nonsense"}, "Select a valid choice"), ({"metadata": "{"}, "This is not JSON"),
        ({"metadata": "[1]"}, "metadata must be an object"), ({"serializer": "a b"}, "serializer must be a name"),
    ])  # fmt: skip
    def test_what_is_not_allowed_changes_nothing(self, client: Client, change: dict[str, Any], words: str) -> None:
        queue = make()
        before = engine.run(engine.get("work"))
        answer = self.send(client, queue, **change)
        assert (answer.status_code, words in Page(answer.content.decode()).text) == (200, True)
        assert engine.run(engine.get("work")) == before


def test_a_purge_removes_what_was_chosen_and_confirmed_and_says_how_many(client: Client) -> None:
    queue = make()
    put(3)
    put(2, delay_ms=60_000)
    leased = one().seq
    for states, typed in ((["ready"], None), (["ready"], "Work"), ([], "work"), (["leased"], "work")):
        data = {"states": states} | ({"typed": typed} if typed else {})
        assert "Nothing was removed" in told(client, "queue_act", queue, action="purge", **data)
    assert (StoredJob.objects.count(), OperatorAction.objects.count()) == (5, 0)
    words = told(client, "queue_act", queue, action="purge", states=["ready"], typed="work")
    assert "2 jobs of work were removed" in words
    assert set(LiveJob.objects.values_list("state", flat=True)) == {1, 2}
    assert StoredJob.objects.filter(pk=leased).exists()
    assert OperatorAction.objects.get().counts == {"removed": 2}


class TestLists:
    def test_pages_of_queues_have_each_queue_once_and_a_prefix_finds(self, client: Client) -> None:
        names = [f"q{n:02}" for n in range(60)]
        for name in names:
            make(name)
        make("a", project="tenant")
        seen = [line["label"] for answer in walk(client, "queue_changelist") for line in answer.context["lines"]]
        assert seen == [*names, "tenant/a"]
        make("shop", type="log")
        put(3, "shop")
        (line,) = client.get(admin_url("queue_changelist"), {"q": "sh\x00"}).context["lines"]
        assert line["label"] == "shop"
        shop = Queue.objects.get(name="shop").pk
        assert "records 3" in look(client, "queue_change", shop).text

    def test_the_overview_has_it_all_and_an_empty_database_is_no_trouble(self, clock: Clock, client: Client) -> None:
        for name in ("overview", "queue_changelist", "worker_changelist", "job_changelist"):
            look(client, name)
        make("busy")
        make("idle")
        put(3, "busy")
        one("busy")
        worker(queues=("busy",), running=[{"seq": 1, "queue": "busy", "name": "a", "seconds": 1}])
        sample()
        forget()  # what holds for the whole database is kept for ten seconds
        page = look(client, "overview")
        words = ("queues 2", "ready 2", "in flight 1 jobs, now", "1 job running", "worker-1", "busy", "idle")
        assert [each for each in (*words, "No reaper leads") if each not in page.text] == []
        assert [attrs["id"] for tag, attrs in page.tags if "data-lq-refresh" in attrs] == ["overview"]


class TestWorkers:
    def test_presence_and_what_each_runs(self, client: Client) -> None:
        put_seq = make() and put()[0]
        worker(running=[{"seq": put_seq, "queue": "work", "name": "shop.pay", "seconds": 2.5}], completed=7)
        gone = worker("worker-0", seen_at=now() - timedelta(hours=1))
        page = look(client, "worker_changelist")
        line = f"worker-1 running work 1 of 2 {put_seq} shop.pay work, for 2.5 s 7 0 0 0"
        for words in (line, "worker-0 not seen for 1 h work 0 of 2"):
            assert words in page.text, (words, page.text)
        assert "worker-0" not in look(client, "worker_changelist", q="worker-1").text
        limited = worker("worker-2", info={"limits": {"heavy": 2, "mail*": 1}})
        assert "Limits of queues: heavy: 2, mail*: 1" in look(client, "worker_change", limited.pk).text
        assert "Limits of queues: none" in look(client, "worker_change", gone.pk).text
        assert "Runs now: nothing" in look(client, "worker_change", gone.pk).text

    def test_a_worker_that_is_asked_hears_it_with_its_next_sign_of_life(self, client: Client) -> None:
        names = ("concurrency", "age", "completed", "failed", "retried", "lost")
        sign = partial(write_presence, node="worker-1", host="h", pid=1, project="", state="running", queues=["work"])
        sign = partial(sign, running=[], info={}, **dict.fromkeys(names, 1))
        assert engine.run(sign()) is False
        pk = Worker.objects.get().pk
        url, form = admin_url("worker_changelist"), {"action": "stop", "_selected_action": pk}
        viewer = signed_in("view_worker", name="viewer")
        for who in (viewer, signed_in("view_worker", "stop_worker", name="strict", enforce_csrf_checks=True)):
            who.post(url, form)
        assert "Ask the selected" not in Page(viewer.get(url).content.decode()).text
        assert engine.run(sign()) is False
        client.post(url, form)
        assert engine.run(sign()) is True
        assert "asked to stop" in look(client, "worker_changelist").text
        client.post(url, form)
        assert OperatorAction.objects.count() == 1


def test_spans_and_counts_above_the_cap() -> None:
    for seconds, words in (
        (0.0123, "12 ms"), (3.44, "3.44 s"), (59.9, "59.9 s"), (60, "1 min"), (90, "1 min 30 s"), (3_600, "1 h"),
        (7_260, "2 h 1 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (-90, "-1 min 30 s"),
    ):  # fmt: skip
        assert span(seconds) == words
    assert [capped(n, 10_000) for n in (0, 10_000, 10_001, 123_456)] == ["0", "10,000", "10,000+", "about 123,456"]
