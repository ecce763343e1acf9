"""The progress of a user's own task: a page that follows it without being loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Ending
from django_leasequeue.engine.jobs.results import Progress, progress
from django_leasequeue.models import Job

if TYPE_CHECKING:
    from .person import Person

_FILLED = "const bar = document.querySelector('progress'); return [bar.position, bar.matches(':indeterminate')]"


@pytest.mark.slow
def test_a_page_follows_a_task_to_its_end(person: Person) -> None:
    person.sign_in()
    person.open("/demo/")
    person.choose("//button[contains(text(), 'Count the lines')]")
    person.wait_for("Waiting")
    assert person.run(_FILLED) == [-1, True]
    person.check("progress-waiting")
    loaded = person.run("return performance.timeOrigin")

    (job,) = engine.run(engine.claim("demo", "worker-1"))
    engine.run(progress([Progress(job.seq, job.token, {"done": 1, "of": 4, "text": "1 of 4 files"})], "worker-1"))
    person.wait_for("Running 1 of 4 files")
    assert person.run(_FILLED) == [0.25, False]
    person.wait_until(lambda: person.run("return document.querySelector('[data-refresh]').hidden"), "the link stays")
    person.check("progress-running")

    engine.run(engine.finish([Ending(job.seq, job.token, {"files": 4, "lines": 300})], "worker-1"))
    person.wait_for("Done")
    assert person.run(_FILLED) == [1, False]
    assert person.run("return performance.timeOrigin") == loaded, "it was not loaded again"
    person.choose("//a[text()='Show the result']")
    person.wait_for("300 lines in 4 files")
    person.check("progress-done")


@pytest.mark.slow
def test_a_page_says_that_a_task_is_gone(person: Person) -> None:
    person.sign_in()
    person.open("/demo/")
    person.choose("//button[contains(text(), 'Count the lines')]")
    person.wait_for("Waiting")
    engine.run(engine.cancel("demo", keys=[str(Job.objects.get().key)]))
    person.wait_for("No longer known")
    assert person.run("return document.querySelector('leasequeue-progress').dataset.ended") == ""
