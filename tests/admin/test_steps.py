"""What people do with the steps of jobs: run again from one."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.engine.dead.bulkoperation import run_batch
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import BulkOperation, JobStep, OperatorAction
from django_leasequeue.worker import JobControl
from tests.admin.letters import NODE, bury, graves, start, states
from tests.admin.people import signed_in

pytestmark = pytest.mark.django_db

STEPS = ["charge", "page", "page#2", "mail"]


def dead(count: int = 1) -> list[int]:
    """Dead letters with steps."""
    graves(dead_letter="self")
    seqs = [answer.seq for answer in engine.run(engine.enqueue("work", [engine.NewJob()] * count))]
    for job in (leased := engine.run(engine.claim("work", NODE, count))):
        control = JobControl(job, NODE)
        for name in STEPS:
            control.step(name.partition("#")[0], int)
    engine.run(engine.release([engine.Release(job.seq, job.token, 0) for job in leased], NODE))
    return seqs


def kept(seq: int) -> list[str]:
    return list(JobStep.objects.filter(seq=seq).order_by("number").values_list("name", flat=True))


@pytest.fixture
def boss() -> Client:
    return signed_in("view_job", "retry_job", "view_bulkoperation", "change_job", "view_payload", name="boss")


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:leasequeue_{name}", args=args)


def test_from_the_page_of_a_job(boss: Client) -> None:
    (seq,) = dead()
    page = boss.get(url("job_change", seq)).content.decode()
    assert 'aria-label="Run again from page#2"' in page
    form = {"action": "retry", "scope": "selection", "seq": seq, "confirmed": "1", "from_step": "page#2"}
    boss.post(url("deadletters_act"), form)
    assert (states([seq]), kept(seq)) == (["ready"], STEPS[:2])
    line = OperatorAction.objects.get()
    assert (line.username, line.seqs, line.detail) == ("boss", [seq], {"from_step": "page#2"})
    assert "Run again from" not in boss.get(url("job_change", seq)).content.decode()


def test_of_many(boss: Client) -> None:
    seqs = dead(3)
    (other,) = bury(1)
    form = {"action": "retry", "scope": "filter", "filter": ""}
    page = boss.post(url("deadletters_act"), form)
    assert "From the step" in page.content.decode()
    form |= {"at": page.context["at"], "confirmed": "1", "from_step": "page"}
    boss.post(url("deadletters_act"), form)
    made = BulkOperation.objects.get()
    engine.run(run_batch(made.pk))
    assert states([*seqs, other]) == ["ready"] * 3 + ["dead"]
    assert [kept(seq) for seq in seqs] == [["charge"]] * 3
    made.refresh_from_db()
    assert made.conflict_counts == {"no_step": 1}
    assert "from the step page" in boss.get(url("operation", made.pk)).content.decode()
    assert OperatorAction.objects.get(action="retry").detail["from_step"] == "page"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = dead(2)
    call_command("leasequeue_dlq", "retry", "--seq", str(first), "--from-step", "mail", "--yes", "--here")
    assert "1 done" in capsys.readouterr().out
    assert (states([first, second]), kept(first), kept(second)) == (["ready", "dead"], STEPS[:3], STEPS)
    assert OperatorAction.objects.get(action="retry").detail["from_step"] == "mail"


@pytest.mark.parametrize(("kind", "name"), [("discard", "mail"), ("retry", ""), ("retry", "x" * 900), ("retry", 7)])
def test_what_is_refused(kind: str, name: Any) -> None:
    dead()
    with pytest.raises(InvalidOption):
        start(kind, reason="why", from_step=name)
