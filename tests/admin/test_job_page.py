"""The page of a job: what it says of attempts, leases and payloads, and what its buttons do."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Node, Release
from django_leasequeue.engine.clock import Clock, now
from django_leasequeue.models import StoredJob, Worker
from django_leasequeue.worker import JobControl
from django_leasequeue.worker.durable import Suspended
from tests.admin.letters import end, give_back
from tests.admin.pages import admin_url, look, messages, signed_in, walk
from tests.engine.helpers import NODE, claim, enqueue, make, one, put, state
from tests.support.rows import rows

pytestmark = pytest.mark.django_db
MAY = "view_job view_payload view_queue view_worker cancel_job release_job retry_job discard_job"
client = pytest.fixture(lambda: signed_in(*MAY.split()))


def act(client: Client, seq: int, **data: Any) -> str:
    answer = client.post(admin_url("job_act", seq), data, follow=True)
    assert answer.status_code in (200, 404)
    return messages(answer) if answer.context else ""


def fail(kind: str, message: str = "card 1", traceback: str = "File a.py, line 1", node: str = NODE) -> None:
    job = one(node=node)
    engine.run(engine.release([Release(job.seq, job.token, 0, Failure(kind, message, traceback, "print"))], node))


def shown(client: Client, seq: int) -> str:
    return look(client, "job_change", seq).text


def missing(text: str, *words: str) -> list[str]:
    return [each for each in words if each not in text]


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
        steps = shown(client, seq).partition("What the task has done")[2]
        places = [steps.index(words) for words in ("charge", "a secret number", "draw", "event packed:<7>")]
        assert places == sorted(places)
        assert missing(steps, "4.9 KB of JSON: too long to be shown here.", "waits for packed:<7> until") == []
        viewed = shown(signed_in("view_job"), seq)
        assert ("a secret number" in viewed, "charge" in viewed) == (False, True)
        assert "job-steps" not in look(client, "job_change", put()[0]).ids(), "without steps there is no table"


class TestWhatItSays:
    def test_every_attempt_with_its_worker_host_times_and_error(self, clock: Clock, client: Client) -> None:
        make(max_deliveries=3, dead_letter="self", exhaust_at="release")
        (seq,) = put(name="shop.pay")
        at = now()
        rows(Worker).create(node="worker-1", host="alpha", pid=1, concurrency=1, started_at=at, seen_at=at)
        for _ in range(2):
            fail("shop.Declined")
            clock.advance(seconds=60)
        fail("shop.Timeout", "no answer", "File b.py, line 2", "worker-2")
        page = look(client, "job_change", seq)
        assert missing(
            page.text, "Attempt 1: failed", "Attempt 2: failed", "Attempt 3: failed", "dead letter", "shop.pay",
            "worker-1, host alpha", "shop.Declined card 1", "nothing: the same error, by the same worker",
            "another error: shop.Declined → shop.Timeout", "another worker: worker-1 → worker-2", "File b.py, line 2",
            "-File a.py, line 1", "+File b.py, line 2", "Deliveries 3 of 3",
        ) == []  # fmt: skip
        assert page.text.index("Attempt 3") < page.text.index("Attempt 1")
        assert {"job-retry", "job-discard"} <= set(page.ids())
        assert not {"job-cancel", "job-release"} & set(page.ids())

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
        assert [tag for tag, _ in page.tags].count("title") >= 6
        assert missing(
            page.text, "1 enqueued, 2 claimed, 1 extended, 1 expired, 1 given back. The table below has each.",
            "extended, 2030-01-01 12:00:10, by worker-1", "Attempt 1: expired", "lease extended 1 time",
        ) == []  # fmt: skip
        titles = {attrs.get("aria-labelledby", "").split(" ")[0]: attrs for tag, attrs in page.tags if tag == "svg"}
        assert titles["timeline-title"]["role"] == "img"

    def test_extensions_of_one_lease_are_one_line(self, clock: Clock, client: Client) -> None:
        make()
        (seq,) = put()
        for extensions, pause in ((60, 60), (1, 0)):
            one(lease_ms=30_000)
            for _ in range(extensions):
                clock.advance(seconds=10)
                engine.run(engine.extend([seq], "worker-1", 30_000))
            clock.advance(seconds=pause)
        assert "2030-01-01 12:10:00.000 extended 60 times" in shown(client, seq)
        lines = client.get(admin_url("job_change", seq)).context["lines"]
        assert sum("extended" in line["what"] for line in lines) == 2

    def test_an_attempt_tells_its_wait_since_it_was_ready_and_its_run_time(self, clock: Clock, client: Client) -> None:
        make(max_deliveries=5)
        (seq,) = put()
        clock.advance(seconds=2)
        job = one()
        clock.advance(seconds=20)
        failure = Failure("shop.Declined", "card 1", "Traceback", "print")
        give_back(job, delay_ms=780_000, failure=failure, ran_ms=1_500)
        clock.advance(seconds=783)
        one()
        engine.run(engine.nack([seq], "worker-1"))
        text = shown(client, seq)
        assert "waited 2 s since it was ready; ran 1.5 s; leased 20 s" in text
        assert "waited 3 s since it was ready; ran for an unknown time" in text

    def test_an_ended_job_is_shown_from_its_result_or_its_events(self, client: Client) -> None:
        make(result_ttl_ms=60_000)
        enqueue(NewJob(data={"a": 1}, key="k1"))
        end(job := one(), result={"sum": 42})
        assert missing(shown(client, job.seq), "completed", "k1", "sum: 42", "Attempt 1: completed") == []
        make("forgetful")
        (seq,) = put(queue="forgetful")
        engine.run(engine.ack([one("forgetful").seq], "worker-1"))
        assert missing(shown(client, seq), "no result is kept of it", "Attempt 1: completed") == []

    def test_a_letter_that_moved_links_there_and_back(self, client: Client) -> None:
        make(max_deliveries=1, exhaust_at="release", dead_letter="graves")
        (seq,) = put()
        fail("shop.Declined")
        moved = StoredJob.objects.get(source_seq=seq).pk
        for here, there in ((seq, moved), (moved, seq)):
            links = [attrs.get("href") for tag, attrs in look(client, "job_change", here).tags if tag == "a"]
            assert admin_url("job_change", there) in links


class TestPayload:
    def test_secrets_are_hidden_large_ones_cut_and_others_see_the_shape_only(self, client: Client) -> None:
        make()
        secret = {"user": "ann", "password": "hunter2", "nested": [{"api_key": "k-1", "Authorization": "B"}]}
        jobs = [NewJob(data=data) for data in (secret, list(range(5_000)), "x" * 300_000, ["y" * 10_000])]
        texts = [shown(client, answer.seq) for answer in enqueue(*jobs, NewJob(body=b"\x00secret" * 200))]
        for text, words in zip(texts, (
            'user: "ann"', "and 3,000 more", "too long to be shown here", "10,002 characters in all",
            "binary, 1,400 bytes",
        ), strict=True):  # fmt: skip
            assert words in text
        hidden, *_, binary = texts
        assert ("hunter2" in hidden, "k-1" in hidden, "secret" in binary) == (False, False, False)
        data = {"card": "4111", "n": 7, "ok": True, "list": ["private"]}
        text = shown(signed_in("view_job", name="viewer"), enqueue(NewJob(data=data, meta={"who": "ann"}))[0].seq)
        assert missing(text, "4111", "private", "ann") == ["4111", "private", "ann"]
        assert missing(text, 'card: "[text]"', 'n: "[number]"') == []

    @pytest.mark.parametrize(("hook", "words"), [
        ("test_job_page.shout", '"data of work/shop.pay, 1 names"'), ("test_job_page.stumble", "[hidden]"),
        ("no_such.thing", "[hidden]"),
    ])  # fmt: skip
    def test_a_hook_decides_what_shows(self, client: Client, settings: Any, caplog: Any, hook: str, words: str) -> None:
        settings.LEASEQUEUE = {"ADMIN": {"REDACT": f"tests.admin.{hook}"}}
        make()
        enqueue(NewJob(data={"user": "ann"}, name="shop.pay"))
        text = shown(client, one().seq)
        assert (words in text, '"ann"' in text) == (True, False)
        assert ("REDACT" in caplog.text) is (words == "[hidden]")


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

    def test_cancel_takes_out_what_nobody_started_and_what_no_button_says_is_not_done(self, client: Client) -> None:
        make()
        first, second = put(2)
        one()
        assert client.post(admin_url("job_act", second), {"action": "purge"}).status_code == 404
        assert "was not cancelled" in act(client, first, action="cancel")
        assert "was cancelled" in act(client, second, action="cancel")
        assert (state(first), state(second)) == ("leased", None)
        assert "is not there any more" in act(client, second, action="cancel")


class TestList:
    url = staticmethod(partial(admin_url, "job_changelist"))

    def test_pages_by_key_through_every_job_once_and_the_first_state_that_has_jobs(self, client: Client) -> None:
        queue = make()
        wanted = put(120)
        answers = walk(client, "job_changelist", queue=queue, state="ready")
        assert [job.seq for answer in answers for job in answer.context["jobs"]] == wanted
        claim(120)
        assert client.get(self.url(queue=queue)).context["state"] == "leased"

    def test_a_search_by_number_or_key_goes_to_the_job(self, client: Client) -> None:
        make()
        make("other")
        enqueue(NewJob(key="order-1"), NewJob(key="same"))
        enqueue(NewJob(key="same"), queue="other")
        seq = one().seq
        there = admin_url("job_change", seq)
        assert client.get(self.url(q="order-1"))["Location"] == there
        assert client.get(self.url(q=seq))["Location"] == there
        assert "No job matches" in client.get(self.url(q="order-2")).content.decode()
        assert len(client.get(self.url(q="same")).context["found"]) == 2, "a key of two queues"
