"""OpenTelemetry: the context travels with the job, spans are linked; the recipe for Sentry: a failure is an event."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from asgiref.sync import async_to_sync
from django.conf import settings
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_leasequeue import engine
from django_leasequeue.conf import loglines
from django_leasequeue.engine import metadata
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.metrics import otel
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import Worker, load_options
from tests.support.environment import python
from tests.tasks import batch_samples, samples
from tests.worker.handlers import ScriptHandler
from tests.worker.support import burst

SPANS = InMemorySpanExporter()
READER = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def _providers() -> None:
    """The SDK, once: OpenTelemetry lets its providers be set only once in a process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([READER]))


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    SPANS.clear()
    otel.instrument()
    yield SPANS
    metadata.begin_trace = metadata.wrap_handler = None


def every(spans: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is kind]


def one(spans: InMemorySpanExporter, kind: SpanKind) -> ReadableSpan:
    (found,) = every(spans, kind)
    return found


class Nested(ScriptHandler):
    def run(self, job: engine.LeasedJob, control: Any) -> str | None:
        with trace.get_tracer("app").start_as_current_span("the job's own"):
            return super().run(job, control)


def test_a_run_is_linked_to_its_enqueue(work: str, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        engine.run(engine.enqueue("work", [engine.NewJob({"do": "end"}, name="shop.mail", key="k", meta={"mine": 1})]))
    burst(Nested())
    request, own = (next(s for s in spans.get_finished_spans() if s.name == n) for n in ("request", "the job's own"))
    sent, run = one(spans, SpanKind.PRODUCER), one(spans, SpanKind.CONSUMER)
    assert sent.parent.span_id == request.context.span_id
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]
    assert (run.parent.span_id, own.parent.span_id) == (sent.context.span_id, run.context.span_id)
    assert {span.context.trace_id for span in (request, sent, run, own)} == {request.context.trace_id}
    assert (sent.name, run.name) == ("enqueue work", "process work")
    assert dict(sent.attributes) == {
        "messaging.system": "django_leasequeue", "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send", "messaging.destination.name": "work",
    }  # fmt: skip
    assert (run.attributes["messaging.message.id"], run.attributes["leasequeue.job.name"]) == ("k", "shop.mail")


def test_each_of_many_jobs_and_an_async_one(work: str, spans: InMemorySpanExporter) -> None:
    jobs = [engine.NewJob({"do": "end", "async": number == 0}) for number in range(200)]
    async_to_sync(engine.arun)(engine.enqueue("work", jobs))
    burst()
    sent = one(spans, SpanKind.PRODUCER)
    assert sent.attributes["messaging.batch.message_count"] == 200
    runs = every(spans, SpanKind.CONSUMER)
    assert (len(runs), {link.context.span_id for run in runs for link in run.links}) == (200, {sent.context.span_id})


def test_each_job_of_a_batch_is_a_span_with_its_own_end(work: str, spans: InMemorySpanExporter) -> None:
    for word in ("ok", "fail", 3):
        batch_samples.mixed.using(queue_name=work, max_attempts=1).enqueue(word)
    burst(TaskHandler())
    sent, runs = every(spans, SpanKind.PRODUCER), every(spans, SpanKind.CONSUMER)
    ends = {run.links[0].context.span_id: run.status.status_code for run in runs}
    assert [ends[span.context.span_id] for span in sent] == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET]


def test_failures_and_figures(work: str, spans: InMemorySpanExporter) -> None:
    engine.run(engine.enqueue("work", [engine.NewJob({"do": "end"}), engine.NewJob({"do": "raise", "give_up": True})]))
    burst()
    runs = every(spans, SpanKind.CONSUMER)
    failed = [span.attributes["error.type"] for span in runs if span.status.status_code is StatusCode.ERROR]
    assert (len(runs), failed) == (2, ["ValueError"])
    data = READER.get_metrics_data()
    found = {
        (metric.name, point.attributes.get("error.type")): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if point.attributes["messaging.destination.name"] == "work"
    }
    assert found["messaging.client.sent.messages", None].value >= 2
    assert found["messaging.client.consumed.messages", "ValueError"].value >= 1
    for name in ("messaging.process.duration", "messaging.client.operation.duration"):
        assert found[name, None].count >= 1
    SPANS.clear()
    with pytest.raises(LeaseQueueError):
        engine.run(engine.enqueue("nowhere", [engine.NewJob()], create=False))
    assert one(spans, SpanKind.PRODUCER).status.status_code is StatusCode.ERROR


def test_a_retry_and_a_job_of_others_without_context(work: str, spans: InMemorySpanExporter) -> None:
    engine.run(engine.enqueue("work", [engine.NewJob({"do": "raise"})]))
    burst()
    burst()
    metadata.begin_trace = metadata.wrap_handler = None
    engine.run(engine.enqueue("work", [engine.NewJob({"do": "end"})]))
    assert LiveJob.objects.latest("seq").meta is None, "what is switched off leaves nothing on jobs"
    otel.instrument()
    burst()
    runs = every(spans, SpanKind.CONSUMER)
    assert sorted(len(run.links) for run in runs) == [0, 1, 1]
    assert {run.status.status_code for run in runs if not run.links} == {StatusCode.UNSET}, "that of others ended well"


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "imported"), [("{}", False), ("{'METRICS': {'OPENTELEMETRY': True}}", True)])
def test_nothing_is_imported_unless_it_is_asked_for(subprocess_env: dict[str, str], asked: str, imported: bool) -> None:
    program = f"""
import sys, django
from django.conf import settings
settings.LEASEQUEUE = {asked}
django.setup()
import django_leasequeue.worker
from django_leasequeue.engine import metadata
print('opentelemetry' in sys.modules, 'prometheus_client' in sys.modules, metadata.begin_trace is not None)
"""
    assert python("-c", program, env=subprocess_env).stdout.split() == [str(imported), "False", str(imported)]


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
    loglines.set_up_logging(as_json=False, verbosity=1)
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
