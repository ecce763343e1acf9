"""The search for jobs over all queues and states, and what is done to one that was found."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_leasequeue.admin import job_list, reading
from django_leasequeue.engine import Failure, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.engine.dead.filter import from_query
from django_leasequeue.models import OperatorAction, StoredJob
from tests.admin.letters import end, give_back
from tests.admin.pages import Page, admin_url, look, read, signed_in, told, walk
from tests.engine.helpers import claim, enqueue, make, put, state
from tests.tasks import samples

pytestmark = pytest.mark.django_db
client = pytest.fixture(lambda: signed_in("view_job", "view_payload", "change_job", "add_job"))

DECLINED = Failure("shop.Declined", "Card 4711 was declined", "Traceback: in line charge(card)", "print-a")


def found(client: Client, **query: Any) -> list[int]:
    answers = walk(client, "job_changelist", **{"state": "any", **query})
    return [job.seq for answer in answers if read(answer) for job in answer.context["looked"].jobs]


class TestEveryState:
    @pytest.fixture
    def jobs(self, clock: Clock) -> dict[str, int]:
        """One job in each state; two queues, a log."""
        make(max_deliveries=1, exhaust_at="release", dead_letter="self", result_ttl_ms=86_400_000)
        make("other", project="acme", result_ttl_ms=86_400_000)
        make("journal", type="log")
        jobs: dict[str, int] = {}
        for name in ("completed", "failed", "dead"):
            (jobs[name],) = put(1, name=f"shop.{name}")
            settle = give_back if name == "dead" else end
            settle(*claim(), failure=None if name == "completed" else DECLINED)
            clock.advance(hours=1)
        (jobs["leased"],) = put(1, name="shop.leased")
        claim(lease_ms=80_000_000)
        (jobs["delayed"],) = put(1, delay_ms=90_000_000, name="shop.delayed")
        jobs["ready"] = enqueue(
            NewJob({"args": [], "kwargs": {"customer": 17}}, key="order-77", name="shop.ready", tags={"customer": 7}),
            queue="other", project="acme",
        )[0].seq  # fmt: skip
        (jobs["record"],) = put(1, "journal", name="shop.record")
        return jobs

    def test_each_is_found_by_its_state_and_task(self, jobs: dict[str, int], client: Client) -> None:
        assert found(client) == sorted(jobs.values(), reverse=True)
        for name, seq in jobs.items():
            assert found(client, state=name, text="shop") == [seq], name
            assert found(client, task=f"shop.{name}") == [seq], name

    @pytest.mark.parametrize(("query", "names"), [
        ({"queue": "acme/other"}, {"ready"}), ({"queue": "journal"}, {"record"}),
        ({"text": "card 4711"}, {"failed", "dead"}), ({"text": "Declined", "state": "failed"}, {"failed"}),
        ({"text": "ORDER-7"}, {"ready"}), ({"q": "CHARGE(card)"}, {"failed", "dead"}),
        ({"q": '"customer": 17'}, {"ready"}), ({"q": '"order-7"'}, {"ready"}),
        ({"payload": "data.kwargs.customer = 17"}, {"ready"}), ({"payload": "data.kwargs.customer = 18"}, set()),
        ({"payload": "tags.customer = 7"}, {"ready"}), ({"q": "tags.customer = 7"}, {"ready"}),
        ({"q": 'tags.customer = "7"'}, set()),
        ({"since": "2030-01-01T13:30"}, {"dead", "leased", "delayed", "ready", "record"}),
        ({"until": "2030-01-01T13:30"}, {"completed", "failed"}),
        ({"since": "2030-01-01T12:30", "until": "2030-01-01T13:30"}, {"failed"}),
        ({"since": "30min"}, {"leased", "delayed", "ready", "record"}),
    ])  # fmt: skip
    def test_each_filter(self, jobs: dict[str, int], client: Client, query: dict[str, str], names: set[str]) -> None:
        assert set(found(client, **query)) == {jobs[name] for name in names}

    def test_arguments_are_shown_and_found_by_those_who_may(self, jobs: dict[str, int], client: Client) -> None:
        make("secret", result_ttl_ms=0)
        enqueue(NewJob({"args": [1, "two"], "kwargs": {"password": "hunter2"}}, name="shop.login"), queue="secret")
        enqueue(NewJob({"args": ["x" * 9_000], "kwargs": {}}), queue="secret")

        def said(who: Client, **query: str) -> str:
            return Page(who.get(admin_url("job_changelist"), query).content.decode()).text

        for query in ({"q": "two"}, {"queue": "secret"}):
            assert '1, "two", password="[hidden]"' in said(client, **query), query
        assert "…" in said(client, queue="secret")
        stranger = signed_in("view_job", name="stranger")
        assert "No job matches" in said(stranger, q="two")
        assert '"two"' not in said(stranger, queue="secret")
        assert "may not see payloads" in said(stranger, payload="data.a = 1")
        for query, words in (
            ({"queue": "none"}, "no queue none"), ({"since": "soon"}, "is a time"),
            ({"state": "odd"}, "state must be one of any"),
        ):  # fmt: skip
            assert words in said(client, **query), query

    def test_parts_of_what_is_hidden_find_nothing(self, clock: Clock, client: Client) -> None:
        make("secret", result_ttl_ms=0)
        data = {"args": ["hunter2", 3], "kwargs": {"jwt": "abc", "n": 1}}
        (job,) = enqueue(NewJob(data, name=samples.sign_in.module_path), queue="secret")
        for query in ({"q": "hunter"}, {"q": "jwt=abc"}, {"text": "ab"}, {"payload": "data.args.0 = hunter2"}):
            assert found(client, **query) == [], query
        for query in ({"q": "n=1"}, {"q": "sign_in"}, {"q": '"n":'}, {"payload": "data.args.1 = 3"}):
            assert found(client, **query) == [job.seq], query
        page = client.get(admin_url("job_changelist"), {"payload": "data.kwargs.jwt = abc"})
        assert "are hidden" in Page(page.content.decode()).text

    def test_an_argument_is_found_as_a_list_shows_it(self, clock: Clock, client: Client) -> None:
        make()
        calls = [{"customer": 17, "why": "order placed"}, {"why": "Order", "customer": 170}, {"in": {"customer": 17}}]
        seqs = [enqueue(NewJob({"args": [], "kwargs": kwargs}))[0].seq for kwargs in calls]
        for words, places in (
            ("customer=17", {0, 2}), ("customer = 170", {1}), ('why="order placed"', {0}), ("why=order", {1}),
            ("customer=1", set()),
        ):  # fmt: skip
            assert set(found(client, q=words)) == {seqs[place] for place in places}, words


class TestBounds:
    def test_it_stops_says_how_far_it_looked_and_goes_on(self, clock: Clock, client: Client, monkeypatch: Any) -> None:
        for name, value in (("CHUNK", 10), ("MAX_LOOKED", 20), ("PATIENCE", 1e9)):
            monkeypatch.setattr(job_list, name, value)
        make()
        (first,) = put(1, name="rare")
        put(45)
        text = look(client, "job_changelist", task="rare").text
        words = ("Looked at 20 jobs, back to 2030-01-01", "None found so far", "No job matches")
        assert [each in text for each in words] == [True, True, False]
        assert found(client, task="rare") == [first]
        assert found(client, task="none") == []

    def test_many_come_in_pages_and_old_ones_are_near(self, clock: Clock, client: Client, monkeypatch: Any) -> None:
        make()
        old = put(3)
        clock.advance(days=1)
        wanted = [*old, *put(130)]
        assert found(client, queue="work") == wanted[::-1]
        monkeypatch.setattr(job_list, "CHUNK", 10)
        looked = reading.read(job_list.find(job_list.JobFilter(from_query("until=12h"))))
        assert ([job.seq for job in looked.jobs], looked.looked_at) == (old[::-1], 3)


class TestActions:
    @pytest.mark.parametrize("requeue", ["original", "back"])
    def test_a_delayed_job_runs_now(self, clock: Clock, client: Client, requeue: str) -> None:
        make(requeue=requeue)
        (seq,) = put(1, delay_ms=3_600_000)
        (other,) = put(1, delay_ms=3_600_000)
        assert claim() == []
        assert "is ready now" in told(client, "job_act", seq, action="run")
        assert [job.seq for job in claim(5)] == [seq]
        assert state(other) == "delayed"
        assert "not delayed any more" in told(client, "job_act", seq, action="run")
        assert OperatorAction.objects.get().action == "run"
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM leasequeue_jobevent WHERE seq = %s AND kind = 2", [seq])
            assert cursor.fetchone() == (1,)

    def test_a_finished_job_is_copied_with_all_that_it_was_enqueued_with(self, clock: Clock, client: Client) -> None:
        make(result_ttl_ms=60_000, priority_min=0, priority_max=9)
        given = NewJob(
            data={"a": [1, 2.5, None]}, meta={"m": "x"}, body=b"\x00bytes", key="order-1", name="shop.pay", tag="eu",
            priority=7, max_deliveries=4, result_ttl_ms=90_000,
        )  # fmt: skip
        (answer,) = enqueue(given)
        end(*claim())
        assert f"a copy of job {answer.seq}" in told(client, "job_act", answer.seq, action="copy")
        (copy,) = claim()
        assert copy.seq > answer.seq
        old, new = StoredJob.objects.get(pk=answer.seq), StoredJob.objects.get(pk=copy.seq)
        for name in ("data", "meta", "body", "name", "tag", "rank", "max_deliveries", "result_ttl_ms"):
            assert getattr(new, name) == getattr(old, name), name
        assert (old.key, new.origin, new.key in (None, "order-1")) == ("order-1", "admin:somebody", False)
        assert OperatorAction.objects.get().action == "copy"

    def test_a_copy_has_no_notes_of_the_queues(self, clock: Clock, client: Client) -> None:
        make(max_deliveries=1, exhaust_at="release", dead_letter="graves")
        make("graves")
        put(1, meta={"tenant": "a"})
        give_back(*claim(), failure=DECLINED)
        dead = StoredJob.objects.get(queue__name="graves")
        assert ("tenant" in dead.meta, any(name.startswith("$") for name in dead.meta)) == (True, True)
        assert f"a copy of job {dead.seq}" in told(client, "job_act", dead.seq, action="copy")
        assert StoredJob.objects.order_by("-seq")[0].meta == {"tenant": "a"}
