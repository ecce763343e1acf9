"""An on-call person's evening, by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Release
from django_leasequeue.models import BulkOperation, LiveJob, OperatorAction, StoredJob
from tests.engine.helpers import make
from tests.support.sampling import sample

if TYPE_CHECKING:
    from .person import Person

#: The key, as WebDriver writes it.
ENTER = "\ue007"
_TRACEBACK = 'Traceback (most recent call last):\n  File "shop/pay.py", line 17, in pay\n    gateway.charge(card)\n'


def die(queue: str, count: int, task: str, *failures: tuple[str, str, str]) -> list[int]:
    """Let jobs of a queue fail for good: each try as it is said (error, message, fingerprint)."""
    make(queue, max_deliveries=len(failures), exhaust_at="release", dead_letter="self")
    jobs = [NewJob(data={"kwargs": {"order": n, "card": "4111"}}, name=task) for n in range(count)]
    seqs = [answer.seq for answer in engine.run(engine.enqueue(queue, jobs))]
    for _ in range(0, count, 1_000):
        for error, message, fingerprint in failures:
            failure = Failure(error, message, _TRACEBACK, fingerprint)
            leased = engine.run(engine.claim(queue, "worker-1", 1_000))
            engine.run(engine.release([Release(job.seq, job.token, 0, failure) for job in leased], "worker-1"))
    return seqs


@pytest.fixture
def trouble() -> dict[str, list[int]]:
    make("later")
    down = ("smtplib.SMTPServerDisconnected", "please run connect() first", "smtp")
    busy, declined = ("shop.Busy", "try later", "busy"), ("shop.Declined", "card was declined", "declined")
    found = {
        "mail": die("mail", 5_000, "mail.send", down),
        "shop": die("shop", 3, "shop.pay", busy, declined),
        "import": die("import", 40, "files.load", ("ValueError", "not a number: 'abc'", "value")),
    }
    sample()
    return found


@pytest.mark.slow
def test_an_evening_on_call(person: Person, reaper: None, trouble: dict[str, list[int]]) -> None:
    first, second, _ = trouble["shop"]
    person.sign_in()

    # How does it look?
    person.choose("//a[contains(@href, '/leasequeue/queue/') and text()='Queues']")
    person.go("Overview")
    person.wait_for("Throughput, jobs a minute")
    person.check("overview")

    # What has died, and of what?
    person.go("Dead letters")
    person.wait_for("SMTPServerDisconnected")
    assert "5,000" in person.text
    assert "shop.Declined" in person.text
    person.check("dead-letters")

    # One group, one of its jobs: its attempts and the timeline of its leases.
    person.choose("//th/a[text()='shop.Declined']")
    person.check()
    person.choose(f"//th/a[text()='{first}']")
    shown = ["Attempt 2", "Attempt 1", "card was declined", "another error: shop.Busy → shop.Declined", "Timeline"]
    assert [words for words in shown if words not in person.text] == []
    person.check("job")

    # Retry it.
    person.choose("#job-retry")
    person.wait_until(lambda: LiveJob.objects.get(pk=first).state == 0, "it was not retried")
    person.wait_for("ready")

    # Another one has to be corrected first.
    person.go("Dead letters")
    person.choose("//th/a[text()='shop.Declined']")
    person.choose(f"//th/a[text()='{second}']")
    person.choose("#job-edit")
    person.check()
    person.type("#lq-data", '{"kwargs": {"order": 1 "card": "5500"}}')
    person.choose("//button[text()='Show what changes']")
    person.wait_for('1: {"kwargs": {"order": 1 "card"')
    person.check()
    assert person.run("return document.activeElement.selectionStart") == 23
    person.type("#lq-data", '{"kwargs": {"order": 1, "card": "5500"}}')
    person.choose("//button[text()='Show what changes']")
    person.wait_for("What changes")
    assert "5500" in person.text
    person.check()
    person.choose("//button[text()='Retry with this data']")
    retried, data = LiveJob.objects.filter(state=0, source_seq=second), {"kwargs": {"order": 1, "card": "5500"}}
    person.wait_until(lambda: [job.data for job in retried.all()] == [data], "it was not retried")

    # The mail server is back: into another queue, gently. No, stop. It would take 100 s, so that it runs until then.
    person.go("Dead letters")
    person.choose("//button[starts-with(@aria-label, 'Redrive the group smtplib')]")
    person.wait_for("5,000")
    person.check()
    person.type("#lq-to", "later")
    person.type("#lq-rate", "50")
    person.type("#lq-typed", person.run("return document.querySelector('label[for=lq-typed] strong').textContent"))
    person.choose("//button[starts-with(normalize-space(), 'Redrive')]")
    operation = BulkOperation.objects.latest("pk")
    person.wait_until(lambda: BulkOperation.objects.get(pk=operation.pk).done >= 50, "nothing is carried out")
    person.wait_for("running")
    person.check("operation")
    person.choose("#lq-cancel")
    person.wait_for("cancelled")
    operation.refresh_from_db()
    assert operation.state == "cancelled"
    assert 50 <= operation.done < 5_000
    assert LiveJob.objects.filter(queue__name="later").count() == operation.done
    assert LiveJob.objects.filter(queue__name="mail", state=3).count() == 5_000 - operation.done

    # The import was garbage: away with it.
    person.go("Dead letters")
    person.choose("//button[starts-with(@aria-label, 'Discard the group ValueError')]")
    person.type("#lq-reason", "the customer sends the file again")
    person.choose("//button[starts-with(normalize-space(), 'Discard')]")
    person.wait_until(lambda: not LiveJob.objects.filter(queue__name="import").exists(), "they were not discarded")

    # Who did what?
    person.go("Operator actions")
    for words in ("retry", "edit", "redrive", "discard", "the customer sends the file again", "oncall"):
        assert words in person.text
    person.check()
    done = {action.split(".")[0] for action in OperatorAction.objects.values_list("action", flat=True)}
    assert done >= {"retry", "edit", "redrive", "discard"}


def test_pages_of_queues_and_workers_have_no_barriers(person: Person, trouble: dict[str, list[int]]) -> None:
    person.sign_in()
    queue = StoredJob.objects.filter(pk=trouble["shop"][0]).values_list("queue_id", flat=True).get()
    for name, args, picture in (
        ("queue_changelist", [], None), ("queue_change", [queue], "queue"), ("queue_options", [queue], None),
        ("job_changelist", [], None), ("worker_changelist", [], None), ("bulkoperation_changelist", [], None),
        ("recurringtask_changelist", [], None),
    ):  # fmt: skip
        person.open(reverse(f"admin:leasequeue_{name}", args=args))
        person.check(picture)
    person.open(reverse("admin:leasequeue_job_changelist", query={"queue": queue}))
    person.check()


def test_the_next_times_of_a_schedule_follow_what_is_typed(person: Person) -> None:
    person.sign_in()
    person.open(reverse("admin:leasequeue_recurringtask_add"))
    person.type("#id_schedule", "30 2 * * *")
    person.wait_for("02:30:00 UTC")
    person.type("#id_timezone", "Europe/Berlin")
    person.wait_for("02:30:00 CE")
    person.type("#id_schedule", "nonsense")
    person.wait_for("is not a schedule")
    person.type("#id_schedule", "@hourly")
    person.wait_for(":00:00 CE")
    person.check()


def test_a_queue_is_paused_and_purged_by_keyboard(person: Person, trouble: dict[str, list[int]]) -> None:
    person.sign_in()
    queue = StoredJob.objects.filter(pk=trouble["import"][0]).values_list("queue_id", flat=True).get()
    person.open(reverse("admin:leasequeue_queue_change", args=[queue]))
    person.choose("#queue-pause")
    person.wait_for("nothing is claimed from it")
    person.tab_to("[name=states][value=dead]")
    person.press(" ")
    person.type("#purge-typed", "import")
    person.choose("#queue-purge")
    person.wait_for("40 jobs of import were removed")


class TestRefresh:
    ASKED = "performance.getEntriesByType('resource').filter(e => e.initiatorType === 'xmlhttprequest').length"

    @pytest.fixture
    def watching(self, person: Person) -> Person:
        queue = make("work")
        person.sign_in()
        person.open(reverse("admin:leasequeue_queue_change", args=[queue]))
        assert self.ready(person) == "0"
        return person

    def ready(self, person: Person) -> str:
        return str(person.run("return document.querySelector('.lq-card dd').textContent"))

    def quicken(self, person: Person) -> None:
        """Make the page's script look again now, as after coming back to the tab."""
        person.run(
            "const now = Date.now; Date.now = () => now() + 60000;document.dispatchEvent(new Event('visibilitychange'))"
        )

    def enqueue(self, person: Person) -> None:
        engine.run(engine.enqueue("work", [NewJob()] * 3))
        self.quicken(person)

    def wait_for_them(self, person: Person) -> None:
        person.wait_until(lambda: self.ready(person) == "3", "it does not refresh")

    def test_figures_change_and_focus_and_open_details_stay(self, watching: Person) -> None:
        node = watching.tab_to("#throughput summary")
        watching.press(ENTER)
        self.enqueue(watching)
        self.wait_for_them(watching)
        assert watching.driver.switch_to.active_element == node
        assert watching.run("return document.querySelector('#throughput details').open")
        watching.check()

    def test_it_pauses_when_asked(self, watching: Person) -> None:
        watching.tab_to("[data-lq-pause]")
        watching.press(ENTER)
        watching.wait_for("paused")
        self.enqueue(watching)
        assert watching.run(f"return {self.ASKED}") == 0
        watching.press(ENTER)
        self.wait_for_them(watching)

    def test_it_asks_for_nothing_while_the_tab_is_hidden(self, watching: Person) -> None:
        watching.run("window.away = true; Object.defineProperty(document, 'hidden', {get: () => window.away})")
        self.enqueue(watching)
        assert watching.run(f"return {self.ASKED}") == 0
        watching.run("window.away = false")
        self.quicken(watching)
        self.wait_for_them(watching)
