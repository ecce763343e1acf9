"""Traces and figures for OpenTelemetry (extra ``otel``), by its semantic conventions for messaging.

``LEASEQUEUE["METRICS"] = {"OPENTELEMETRY": True}`` switches them on. The project's SDK exports them; without an SDK
the API has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..engine import LeasedJob, metadata
from . import load_extra

SYSTEM = "django_leasequeue"

_Attributes = dict[str, str | int]


def instrument() -> None:
    """Trace and measure the enqueues and runs of this process from now on."""
    load_extra("opentelemetry.trace", "otel")
    load_extra("opentelemetry.metrics", "otel")
    telemetry = Telemetry()
    metadata.begin_trace = telemetry.enqueueing
    metadata.wrap_handler = lambda handler, project: TracedHandler(handler, project, telemetry)


def _about(project: str, queue: str, operation: str, kind: str) -> _Attributes:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": f"{project}/{queue}" if project else queue,
    }


def _labels(about: _Attributes, error: BaseException | None) -> _Attributes:
    """Return the attributes of a metric, of low cardinality."""
    kept = {name: value for name, value in about.items() if name != "messaging.operation.type"}
    return kept if error is None else {**kept, "error.type": _type(error)}


def _type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Telemetry:
    """The tracer and the instruments of this process."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        from .. import __version__

        self.tracer = trace.get_tracer(SYSTEM, __version__)
        meter = metrics.get_meter(SYSTEM, __version__)
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Jobs that were run.")
        self.sending = meter.create_histogram("messaging.client.operation.duration", "s", "Time of calls that enqueue.")
        self.processing = meter.create_histogram("messaging.process.duration", "s", "Time that handlers ran.")

    @contextmanager
    def enqueueing(self, project: str, queue: str, count: int) -> Iterator[dict[str, str]]:
        """Trace an enqueue; its jobs carry the yielded context."""
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        about = _about(project, queue, "enqueue", "send")
        batch: _Attributes = {"messaging.batch.message_count": count} if count > 1 else {}
        span = self.tracer.start_span(f"enqueue {queue}", kind=trace.SpanKind.PRODUCER, attributes={**about, **batch})
        began = time.monotonic()
        context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(context, trace.set_span_in_context(span))
        error: BaseException | None = None
        try:
            yield context
        except BaseException as raised:
            error = raised
            span.set_attribute("error.type", _type(raised))
            span.record_exception(raised)
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(raised)))
            raise
        else:
            self.sent.add(count, _labels(about, None))
        finally:
            self.sending.record(time.monotonic() - began, _labels(about, error))
            span.end()

    @contextmanager
    def running(self, job: LeasedJob, project: str) -> Iterator[None]:
        """Make the span of a run current during the block, linked to the span of the enqueue."""
        from opentelemetry import trace

        about = _about(project, job.queue, "process", "process")
        more: _Attributes = {
            "messaging.message.id": job.key or str(job.seq),
            "leasequeue.job.seq": job.seq,
            "leasequeue.job.delivery": job.deliveries,
            **({} if job.name is None else {"leasequeue.job.name": job.name}),
        }
        context = _context_of(job)
        link = trace.get_current_span(context).get_span_context() if context is not None else None
        error: BaseException | None = None
        began = time.monotonic()
        try:
            with self.tracer.start_as_current_span(
                f"process {job.queue}",
                context=context,
                kind=trace.SpanKind.CONSUMER,
                attributes={**about, **more},
                links=[] if link is None or not link.is_valid else [trace.Link(link)],
            ) as span:
                try:
                    yield
                except BaseException as raised:
                    error = raised
                    span.set_attribute("error.type", _type(raised))
                    raise
        finally:
            labels = _labels(about, error)
            self.consumed.add(1, labels)
            self.processing.record(time.monotonic() - began, labels)


def _context_of(job: LeasedJob) -> Any:
    """Return the context of a job, or ``None``."""
    if job.meta_json is None or metadata.TRACE not in job.meta_json:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = job.meta.get(metadata.TRACE) if isinstance(job.meta, dict) else None
    return TraceContextTextMapPropagator().extract(carrier) if isinstance(carrier, dict) else None


class TracedHandler:
    """A worker's handler whose runs are spans; ``project`` is the tenant whose jobs it runs."""

    def __init__(self, handler: Any, project: str, telemetry: Telemetry) -> None:
        self._handler = handler
        self._telemetry = telemetry
        self._project = project

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def run(self, job: LeasedJob, control: Any) -> str | None:
        with self._telemetry.running(job, self._project):
            result: str | None = self._handler.run(job, control)
            return result

    async def arun(self, job: LeasedJob, control: Any) -> str | None:
        with self._telemetry.running(job, self._project):
            result: str | None = await self._handler.arun(job, control)
            return result

    def run_batch(self, jobs: Sequence[LeasedJob], control: Any) -> list[Any]:
        with self._each(jobs) as answers:
            answers.extend(self._handler.run_batch(jobs, control))
            return answers

    async def arun_batch(self, jobs: Sequence[LeasedJob], control: Any) -> list[Any]:
        with self._each(jobs) as answers:
            answers.extend(await self._handler.arun_batch(jobs, control))
            return answers

    @contextmanager
    def _each(self, jobs: Sequence[LeasedJob]) -> Iterator[list[Any]]:
        """Make a span for each job of a run; the block adds their answers. None is current: it belongs to all."""
        from opentelemetry import trace

        answers: list[Any] = []
        spans = [self._telemetry.running(job, self._project) for job in jobs]
        for span in spans:
            span.__enter__()
        try:
            with trace.use_span(trace.INVALID_SPAN):
                yield answers
        finally:
            for number in reversed(range(len(spans))):
                error: BaseException | None = answers[number][1] if answers else None
                spans[number].__exit__(None if error is None else type(error), error, None)
