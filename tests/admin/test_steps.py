"""What people do with the steps of jobs: run again from one, wake a sleeper, emit what is waited for, list them."""

from datetime import timedelta

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import EventTimeout
from django_leasequeue.metrics.figures import look
from django_leasequeue.models import BulkOperation, Job, JobStep, OperatorAction
from django_leasequeue.worker import JobControl
from tests.admin.letters import NODE, bury, carry_out, end, give_back, graves, states, suspended
from tests.admin.pages import admin_url, signed_in, told, walk
from tests.engine.helpers import claim, one, put
from tests.support.commands import said

pytestmark = pytest.mark.django_db
MAY = ("view_job", "view_payload", "view_bulkoperation", "retry_job", "change_job", "emit_event")
boss = pytest.fixture(lambda: signed_in(*MAY, name="boss"))

STEPS = ["charge", "page", "page#2", "mail"]


def dead(count: int = 1) -> list[int]:
    graves(dead_letter="self")
    seqs = put(count)
    for job in (leased := claim(count)):
        control = JobControl(job, NODE)
        for name in STEPS:
            control.step(name.partition("#")[0], int)
    give_back(*leased, delay_ms=0)
    return seqs


def kept(seq: int) -> list[str]:
    return list(JobStep.objects.filter(seq=seq).order_by("number").values_list("name", flat=True))


def page(who: Client, seq: int) -> str:
    return str(who.get(admin_url("job_change", seq)).content.decode())


def test_from_the_page_of_a_job(boss: Client) -> None:
    (seq,) = dead()
    assert 'aria-label="Run again from page#2"' in page(boss, seq)
    form = {"action": "retry", "scope": "selection", "seq": seq, "confirmed": "1", "from_step": "page#2"}
    boss.post(admin_url("deadletters_act"), form)
    assert (states([seq]), kept(seq)) == (["ready"], STEPS[:2])
    line = OperatorAction.objects.get()
    assert (line.username, line.seqs, line.detail) == ("boss", [seq], {"from_step": "page#2"})
    assert "Run again from" not in page(boss, seq)


def test_of_many(boss: Client) -> None:
    seqs = dead(3)
    (other,) = bury(1)
    form = {"action": "retry", "scope": "filter", "filter": ""}
    asked = boss.post(admin_url("deadletters_act"), form)
    assert "From the step" in asked.content.decode()
    form |= {"shown": asked.context["shown"], "confirmed": "1", "from_step": "page"}
    boss.post(admin_url("deadletters_act"), form)
    carry_out(made := BulkOperation.objects.get())
    assert (states([*seqs, other]), [kept(seq) for seq in seqs]) == (["ready"] * 3 + ["dead"], [["charge"]] * 3)
    assert made.conflict_counts == {"no_step": 1}
    assert "from the step page" in boss.get(admin_url("bulkoperation_change", made.pk)).content.decode()
    assert OperatorAction.objects.get(action="retry").detail["from_step"] == "page"


def test_the_command() -> None:
    first, second = dead(2)
    assert "1 done" in said("leasequeue_dlq", "retry", "--seq", str(first), "--from-step", "mail", "--yes", "--here")
    assert (states([first, second]), kept(first), kept(second)) == (["ready", "dead"], STEPS[:3], STEPS)
    assert OperatorAction.objects.get(action="retry").detail["from_step"] == "mail"


def again() -> JobControl:
    return JobControl(one(), NODE)


def test_a_sleeper_is_woken(boss: Client, clock: Clock) -> None:
    seq = suspended()
    assert '<span class="lq-state lq-state-waiting">sleeping</span>' in page(boss, seq)
    assert "Wake now" in page(boss, seq)
    assert "nap is over" in told(boss, "job_act", seq, action="wake")
    again().sleep("nap", hours=1)
    line = OperatorAction.objects.get()
    assert (line.action, line.username, line.seqs) == ("wake", "boss", [seq])
    assert "neither sleeps nor waits" in told(boss, "job_act", seq, action="wake")
    assert "Wake now" not in page(boss, seq)


def test_a_wait_is_timed_out_by_who_may(boss: Client, clock: Clock) -> None:
    seq = suspended(event="packed")
    assert '<span class="lq-state lq-state-waiting">waiting for an event</span>' in page(boss, seq)
    assert "Time out now" in page(boss, seq)
    viewed = page(signed_in("view_job"), seq)
    assert ("Time out now" in viewed, "Emit event" in viewed) == (False, False)
    told(boss, "job_act", seq, action="wake")
    with pytest.raises(EventTimeout):
        again().wait_for("packed")


def test_what_it_waits_for_is_emitted(boss: Client, clock: Clock) -> None:
    event = "packed <7>"
    seq = suspended(event=event)

    def emit(event: str = event, **payload: str) -> str:
        return told(boss, "job_act", seq, action="emit", event=event, **payload)

    assert "Payload of packed &lt;7&gt;" in page(boss, seq)
    assert "not JSON" in emit(payload="{")
    assert "must not begin" in emit("$result:1")
    assert not OperatorAction.objects.exists()
    assert "was emitted" in emit(payload='{"parcel": 3}')
    assert "emitted before" in emit()
    line = OperatorAction.objects.get()
    assert (line.action, line.username, line.detail["event"]) == ("emit", "boss", event)
    assert again().wait_for(event) == {"parcel": 3}


def test_the_lists(boss: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = []
    for queue in ("work", "other", "other"):
        naps.append(suspended(queue=queue))
        clock.advance(seconds=1)
    waiter = suspended(event="packed")
    monkeypatch.setattr("django_leasequeue.admin.job_list.LOOK", 2)

    def listed(**query: str) -> list[int]:
        return [job["seq"] for answer in walk(boss, "job_changelist", **query) for job in answer.context["suspended"]]

    assert listed(state="sleeping") == naps
    assert listed(state="sleeping", queue="other") == naps[1:]
    assert listed(state="sleeping", task="none") == []
    wrong = boss.get(admin_url("job_changelist"), {"state": "sleeping", "task": "a\0b"})
    assert (wrong.status_code, "without NUL" in wrong.content.decode()) == (200, True)
    assert listed(state="waiting for an event") == [waiter]
    assert "packed" in boss.get(admin_url("job_changelist"), {"state": "waiting for an event"}).content.decode()
    Job.objects.filter(pk=naps[0]).cancel()
    assert listed(state="sleeping") == naps[1:]


def test_the_figures(clock: Clock) -> None:
    assert engine.run(look(None, 10)).suspended == []
    suspended()
    clock.advance(seconds=5)
    suspended()
    suspended(event="packed")
    found = engine.run(look(None, 10))
    assert found.suspended == [("", "event", 1, 0), ("", "sleep", 2, 5)]


def test_attempts_leave_the_sleep_out(boss: Client, clock: Clock) -> None:
    seq = suspended()
    clock.advance(hours=1)
    engine.run(engine.promote([Job.objects.get().queue_id]))
    end(*claim(), ran_ms=20)
    shown = boss.get(admin_url("job_change", seq)).context
    last, first = shown["attempts"]
    assert (first.outcome, first.failing, last.outcome) == ("suspended", False, "completed")
    assert (last.waited, last.ran) == (timedelta(0), timedelta(milliseconds=20))
    assert [line["what"] for line in shown["lines"]][:4] == ["completed", "claimed", "suspended", "claimed"]
