"""The page of a job: what it says of attempts, leases and payloads, and what its buttons do."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, NewJob, Node, Release
from django_leasequeue.engine.clock import Clock, now
from django_leasequeue.models import StoredJob, Worker
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.admin.pages import admin_url, look, messages
from tests.admin.people import signed_in
from tests.engine.helpers import NODE, enqueue, make, one, put, state
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return signed_in(
        "view_job", "view_payload", "view_queue", "view_worker", "cancel_job", "release_job", "retry_job", "discard_job"
    )


def act(client: Client, seq: int, **data: Any) -> str:
    answer = client.post(admin_url("job_act", seq), data, follow=True)
    assert answer.status_code in (200, 404)
    return messages(answer) if answer.context else ""


def fail(kind: str, message: str, traceback: str = "File a.py, line 1", node: str = "worker-1") -> None:
    job = one(node=node)
    engine.run(engine.release([Release(job.seq, job.token, 0, Failure(kind, message, traceback, "print"))], node))


class TestSteps:
    @pytest.fixture
    def seq(self, clock: Clock) -> int:
        make()
        (seq,) = put(name="shop.pay")
        control = JobControl(one(), NODE)
        control.step("charge", lambda: {"card": "a secret number", "amount": 7})
        clock.advance(seconds=1)
        control.step("draw", lambda: "x" * 5_000)
        clock.advance(seconds=1)
        with pytest.raises(Suspended):
            control.wait_for("packed:<7>", timeout=3_600)
        return seq

    def test_what_it_has_done_and_what_it_waits_for(self, client: Client, seq: int) -> None:
        page = look(client, "job_change", seq)
        steps = page.text.partition("What the task has done")[2]
        places = [steps.index(words) for words in ("charge", "a secret number", "draw", "event packed:<7>")]
        assert places == sorted(places)
        assert "4.9 KB of JSON: too long to be shown here." in steps
        assert "waits for packed:<7> until" in steps

    def test_values_need_their_permission(self, seq: int) -> None:
        page = look(signed_in("view_job"), "job_change", seq)
        assert "a secret number" not in page.text
        assert "charge" in page.text

    def test_without_steps_there_is_no_table(self, client: Client) -> None:
        make()
        assert "job-steps" not in look(client, "job_change", put()[0]).ids()


class TestWhatItSays:
    def test_every_attempt_with_its_worker_host_times_and_error(self, clock: Clock, client: Client) -> None:
        make(max_deliveries=3, dead_letter="self", exhaust_at="release")
        (seq,) = put(name="shop.pay")
        at = now()
        rows(Worker).create(node="worker-1", host="alpha", pid=1, concurrency=1, started_at=at, seen_at=at)
        fail("shop.Declined", "card 1")
        clock.advance(seconds=60)
        fail("shop.Declined", "card 1")
        clock.advance(seconds=60)
        fail("shop.Timeout", "no answer", "File b.py, line 2", "worker-2")
        page = look(client, "job_change", seq)
        for words in (
            "Attempt 1: failed", "Attempt 2: failed", "Attempt 3: failed", "dead letter", "shop.pay",
            "worker-1, host alpha", "shop.Declined card 1", "nothing: the same error, by the same worker",
            "another error: shop.Declined → shop.Timeout", "another worker: worker-1 → worker-2", "File b.py, line 2",
            "-File a.py, line 1", "+File b.py, line 2", "Deliveries 3 of 3",
        ):  # fmt: skip
            assert words in page.text, words
        assert page.text.index("Attempt 3") < page.text.index("Attempt 1")

    def test_a_job_of_a_workflow_says_which_and_how_many_jobs_it_comes_after(self, client: Client) -> None:
        make()
        nodes = [Node("work", NewJob(n)) for n in range(30)] + [Node("work", NewJob("end"), tuple(range(30)))]
        uid = uuid4()
        (*_, last) = engine.run(engine.start_workflow(nodes, uid, name="nightly"))
        page = look(client, "job_change", last.seq)
        assert f"name: nightly, parents: 30, workflow: {uid}" in page.text

    def test_the_timeline_has_each_lease_event_drawn_and_in_a_table(self, clock: Clock, client: Client) -> None:
        make()
        (seq,) = put()
        job = one(lease_ms=30_000)
        clock.advance(seconds=10)
        engine.run(engine.extend([seq], "worker-1", 30_000))
        clock.advance(seconds=60)
        again = one(node="worker-2")
        assert (again.seq, again.token != job.token) == (seq, True)
        clock.advance(seconds=5)
        engine.run(engine.nack([seq], "worker-2"))
        page = look(client, "job_change", seq)
        assert "1 enqueued, 2 claimed, 1 extended, 1 expired, 1 given back. The table below has each." in page.text
        titles = [tag for tag, _ in page.tags].count("title")
        assert titles >= 6
        for word in ("extended, 2030-01-01 12:00:10, by worker-1", "Attempt 1: expired", "lease extended 1 time"):
            assert word in page.text
        titles = {attrs.get("aria-labelledby", "").split(" ")[0]: attrs for tag, attrs in page.tags if tag == "svg"}
        assert titles["timeline-title"]["role"] == "img"

    def test_extensions_of_one_lease_are_one_line(self, clock: Clock, client: Client) -> None:
        make()
        (seq,) = put()
        one(lease_ms=30_000)
        for _ in range(60):
            clock.advance(seconds=10)
            engine.run(engine.extend([seq], "worker-1", 30_000))
        clock.advance(seconds=60)
        one(lease_ms=30_000)
        clock.advance(seconds=10)
        engine.run(engine.extend([seq], "worker-1", 30_000))
        page = look(client, "job_change", seq)
        assert "2030-01-01 12:10:00.000 extended 60 times" in page.text
        lines = client.get(admin_url("job_change", seq)).context["lines"]
        assert sum("extended" in line.what for line in lines) == 2

    def test_an_attempt_tells_its_wait_since_it_was_ready_and_its_own_run_time(
        self, clock: Clock, client: Client
    ) -> None:
        make(max_deliveries=5)
        (seq,) = put()
        clock.advance(seconds=2)
        job = one()
        clock.advance(seconds=20)
        failure = engine.Failure("shop.Declined", "card 1", "Traceback", "print")
        engine.run(engine.release([engine.Release(seq, job.token, 780_000, failure, 1_500)], "worker-1"))
        clock.advance(seconds=783)
        job = one()
        engine.run(engine.nack([seq], "worker-1"))
        text = look(client, "job_change", seq).text
        assert "after a wait of 2 s since it was ready; ran 1.5 s, leased 20 s" in text
        assert "after a wait of 3 s since it was ready; ran for an unknown time" in text

    def test_an_ended_job_is_shown_from_its_result_or_its_events(self, client: Client) -> None:
        make(result_ttl_ms=60_000)
        enqueue(NewJob(data={"a": 1}, key="k1"))
        job = one()
        engine.run(engine.finish([Ending(job.seq, job.token, {"sum": 42})], "worker-1"))
        text = look(client, "job_change", job.seq).text
        for words in ("completed", "k1", "sum: 42", "Attempt 1: completed"):
            assert words in text
        make("forgetful")
        (seq,) = put(queue="forgetful")
        engine.run(engine.ack([one("forgetful").seq], "worker-1"))
        text = look(client, "job_change", seq).text
        for words in ("no result is kept of it", "Attempt 1: completed"):
            assert words in text

    def test_a_letter_that_moved_links_there_and_back(self, client: Client) -> None:
        make(max_deliveries=1, exhaust_at="release", dead_letter="graves")
        (seq,) = put()
        fail("shop.Declined", "card 1")
        moved = StoredJob.objects.get(source_seq=seq).pk
        links = [attrs.get("href") for tag, attrs in look(client, "job_change", seq).tags if tag == "a"]
        assert admin_url("job_change", moved) in links
        links = [attrs.get("href") for tag, attrs in look(client, "job_change", moved).tags if tag == "a"]
        assert admin_url("job_change", seq) in links

    @pytest.mark.parametrize("seq", [1, 2**62, 2**63, 10**30])
    def test_no_such_job(self, client: Client, seq: int) -> None:
        assert client.get(admin_url("job_change", seq)).status_code == 404


class TestPayload:
    def test_without_the_permission_only_the_shape_is_seen(self) -> None:
        make()
        enqueue(NewJob(data={"card": "4111", "n": 7, "ok": True, "list": ["private"]}, meta={"who": "ann"}))
        page = look(signed_in("view_job"), "job_change", one().seq)
        for hidden in ("4111", "private", "ann"):
            assert hidden not in page.text
        assert 'card: "[text]"' in page.text
        assert 'n: "[number]"' in page.text

    def test_the_hook_of_the_settings_decides_what_is_shown(self, client: Client, settings: Any) -> None:
        settings.LEASEQUEUE = {"ADMIN": {"REDACT": "tests.admin.test_job_page.shout"}}
        make()
        enqueue(NewJob(data={"user": "ann"}, name="shop.pay"))
        assert '"data of work/shop.pay, 1 names"' in look(client, "job_change", one().seq).text

    @pytest.mark.parametrize("hook", ["tests.admin.test_job_page.stumble", "tests.admin.no_such.thing"])
    def test_a_hook_that_fails_shows_nothing_and_hides_no_job(
        self, client: Client, settings: Any, caplog: pytest.LogCaptureFixture, hook: str
    ) -> None:
        settings.LEASEQUEUE = {"ADMIN": {"REDACT": hook}}
        make()
        enqueue(NewJob(data={"user": "ann"}))
        page = look(client, "job_change", one().seq)
        assert "[hidden]" in page.text
        assert '"ann"' not in page.text
        assert "REDACT" in caplog.text

    def test_secrets_are_hidden_binaries_sized_and_large_ones_cut(self, client: Client) -> None:
        make()
        secret = {"user": "ann", "password": "hunter2", "nested": [{"api_key": "k-1", "Authorization": "B"}]}
        jobs = [NewJob(data=data) for data in (secret, list(range(5_000)), "x" * 300_000, ["y" * 10_000])]
        hidden, many, long, wide, binary = (
            look(client, "job_change", answer.seq).text for answer in enqueue(*jobs, NewJob(body=b"\x00secret" * 200))
        )
        assert 'user: "ann"' in hidden
        assert "hunter2" not in hidden
        assert "k-1" not in hidden
        assert "and 3,000 more" in many
        assert "too long to be shown here" in long
        assert "10,002 characters in all" in wide
        assert "binary, 1,400 bytes" in binary
        assert "secret" not in binary


def stumble(value: Any, **_: Any) -> Any:
    raise KeyError("card")


def shout(value: Any, *, kind: str, queue: str, task: str | None) -> str:
    return f"{kind} of {queue}/{task}, {len(value)} names"


class TestButtons:
    def test_release_takes_the_lease_that_was_seen_and_no_other(self, client: Client) -> None:
        make()
        (seq,) = put()
        first = one()
        engine.run(engine.nack([seq], "worker-1"))
        second = one(node="worker-2")
        assert "the lease that you saw has ended" in act(client, seq, action="release", claim=first.token)
        assert state(seq) == "leased"
        assert "was taken from worker-2 and is ready" in act(client, seq, action="release", claim=second.token)
        assert state(seq) == "ready"

    def test_cancel_takes_out_what_nobody_started(self, client: Client) -> None:
        make()
        first, second = put(2)
        one()
        assert "was not cancelled" in act(client, first, action="cancel")
        assert "was cancelled" in act(client, second, action="cancel")
        assert (state(first), state(second)) == ("leased", None)
        assert "is not there any more" in act(client, second, action="cancel")

    def test_what_no_button_says_is_not_done(self, client: Client) -> None:
        make()
        (seq,) = put()
        assert client.post(admin_url("job_act", seq), {"action": "purge"}).status_code == 404

    def test_a_dead_job_has_the_buttons_of_dead_letters(self, client: Client) -> None:
        make(max_deliveries=1, exhaust_at="release", dead_letter="self")
        (seq,) = put()
        fail("shop.Declined", "card 1")
        ids = look(client, "job_change", seq).ids()
        assert {"job-retry", "job-discard"} <= set(ids)
        assert not {"job-cancel", "job-release"} & set(ids)


class TestList:
    url = staticmethod(partial(admin_url, "job_changelist"))

    def test_pages_by_key_through_every_job_once(self, client: Client) -> None:
        queue = make()
        wanted = put(120)
        url: str | None = self.url(queue=queue, state="ready")
        seen: list[int] = []
        while url:
            answer = client.get(url)
            seen += [job.seq for job in answer.context["jobs"]]
            url = answer.context["next"] and admin_url("job_changelist") + answer.context["next"]
        assert seen == wanted

    def test_the_first_state_that_has_jobs_is_shown(self, client: Client) -> None:
        queue = make()
        put()
        one()
        answer = client.get(self.url(queue=queue))
        assert answer.context["state"] == "leased"

    @pytest.mark.parametrize("query", [
        {"queue": "x"}, {"queue": 10**30}, {"state": "nonsense"}, {"after": "nonsense"}, {"q": "\x00"}, {"q": 10**30},
    ])  # fmt: skip
    def test_nonsense_is_no_trouble(self, client: Client, query: dict[str, Any]) -> None:
        queue = make()
        assert client.get(self.url(**{"queue": queue, **query})).status_code == 200

    def test_a_search_by_number_or_key_goes_to_the_job(self, client: Client) -> None:
        make()
        enqueue(NewJob(key="order-1"))
        seq = one().seq
        there = admin_url("job_change", seq)
        assert client.get(self.url(q="order-1"))["Location"] == there
        assert client.get(self.url(q=seq))["Location"] == there
        assert "No job matches" in client.get(self.url(q="order-2")).content.decode()

    def test_a_key_of_two_queues_finds_both(self, client: Client) -> None:
        make()
        make("other")
        enqueue(NewJob(key="same"))
        enqueue(NewJob(key="same"), queue="other")
        assert len(client.get(self.url(q="same")).context["found"]) == 2
