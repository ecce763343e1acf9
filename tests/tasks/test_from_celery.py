"""The pages about Celery: what they translate does what they say."""

import sys
from typing import Any

import pytest

from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import JobFailed
from django_leasequeue.models import Job
from django_leasequeue.tasks.api import TaskResultDoesNotExist
from django_leasequeue.testing import Harness
from tests.support.pages import run_page

pytestmark = pytest.mark.django_db


def here(text: str) -> str:
    """Leave out what runs with Celery."""
    return "" if text.startswith("# with Celery") else text


def test_canvas(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness, clock: Clock) -> None:
    names = run_page("how-to/move-from-celery-canvas.md", monkeypatch, here)
    assert names["timed"].status.open == 2
    leasequeue.drain()
    assert [names[name].status.open for name in ("timed", "skewed")] == [1, 2]
    clock.advance(seconds=11)
    leasequeue.drain()
    waited = {name: found.wait() for name, found in names.items() if name in VALUES}
    assert waited == VALUES
    with pytest.raises(JobFailed, match="broken"):
        names["failing"].wait()
    assert names["failing"]["log_error"].value == "here: builtins.ValueError broken"
    assert (names["left"], names["restored"].status.label) == (11, "completed")
    assert names["aborted"]
    with pytest.raises(TaskResultDoesNotExist):
        names["counting"].refresh()
    tags = [job.tags for job in Job.objects.filter(tags__customer=7).order_by("pk")]
    assert tags == [{"customer": 7}, {"customer": 7, "step": "second"}]


VALUES: dict[str, Any] = {
    "later": 4, "six": 6, "linked": [20, 5], "timed": 8, "mapped": [2 * n for n in range(25)],
    "chunked": [[2 * n for n in range(start, min(start + 10, 25))] for start in (0, 10, 20)], "skewed": [0, 2, 4],
    "summed": 90, "replaced": 13, "stamped": 8, "any_graph": {"total": 6},
}  # fmt: skip


def test_calling_tasks(monkeypatch: pytest.MonkeyPatch, leasequeue: Harness) -> None:
    def as_a_module(text: str) -> str:
        return "" if "send_receipt" in text else text

    names = run_page("how-to/move-from-celery.md", monkeypatch, as_a_module)
    assert names == {"__builtins__": names["__builtins__"]}
    calls = sys.modules["shop.calls"].calls()
    many = calls.pop("many")
    assert calls.pop("by name")
    assert [ran.state for ran in leasequeue.drain()] == ["completed"] * 7
    for name, value in {"delay": "Hi Ann", "options": "Hi Ann", "once": "Hello Ann", "ignored": None}.items():
        assert calls[name].wait() == value
    assert [call.wait() for call in many] == ["Hello Ann", "Hello Bob"]
    assert [calls[name].job.state for name in ("countdown", "eta")] == ["delayed"] * 2
