"""The recipe for Sentry: each failure is one event, with the name of its task."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from django.conf import settings
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_leasequeue.worker import Worker, load_options, logs
from tests.tasks import samples


class Kept(Transport):
    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def sentry() -> Iterator[Kept]:
    """Sentry as the recipe of the docs sets it up."""
    text = (Path(settings.BASE_DIR) / "docs/how-to/monitoring.md").read_text()
    (recipe,) = re.findall(r"```python\n(import sentry_sdk\n.*?)```", text, re.DOTALL)
    transport = Kept()
    init = sentry_sdk.init
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        own = {"dsn": "http://k@localhost/1", "transport": transport}
        patch.setattr(sentry_sdk, "init", lambda **given: init(**{**given, **own}))
        exec(compile(recipe, "monitoring.md", "exec"), names)
    yield transport
    init()


def run_worker() -> None:
    logs.set_up_logging(as_json=False, verbosity=1)
    Worker(load_options(burst=True, reaper=False)).run()


@pytest.mark.slow
def test_one_event_a_failure_with_the_task(work: str, sentry: Kept) -> None:
    samples.fail_for_good.using(queue_name="work").enqueue()
    samples.add.using(queue_name="work").enqueue(1, 2)
    run_worker()
    (event,) = sentry.events
    assert event["transaction"] == "tests.tasks.samples.fail_for_good"
    assert event["tags"] == {"task": "tests.tasks.samples.fail_for_good", "queue": "work"}
    (exception,) = event["exception"]["values"]
    assert exception["type"] == "FailForGood"
    assert exception["stacktrace"]["frames"][0]["module"] == "tests.tasks.samples"


def test_a_retry_is_none_and_the_last_try_is_one(work: str, sentry: Kept) -> None:
    samples.fail.using(queue_name="work").enqueue("boom")
    for _ in range(50):
        run_worker()
        if sentry.events:
            break
    (event,) = sentry.events
    assert (event["extra"]["delivery"], event["exception"]["values"][0]["value"]) == (2, "boom")
