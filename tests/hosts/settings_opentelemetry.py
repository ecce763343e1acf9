"""OpenTelemetry's instrumentation of psycopg, which writes a comment into every statement."""

from typing import Any

from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.hosts.settings_plain import *  # noqa: F403

_spans = InMemorySpanExporter()
_provider = TracerProvider()
_provider.add_span_processor(SimpleSpanProcessor(_spans))
PsycopgInstrumentor().instrument(tracer_provider=_provider, enable_commenter=True)


def seen(response: Any) -> int:
    statements = [str((span.attributes or {}).get("db.statement")) for span in _spans.get_finished_spans()]
    return sum("INSERT INTO leasequeue_job" in each for each in statements)
