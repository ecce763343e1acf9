"""ddtrace: it wraps psycopg's connections and cursors. What it records stays here, as no agent listens."""

from typing import Any

from ddtrace import patch
from ddtrace.trace import TraceFilter, tracer

from tests.hosts.settings_plain import *  # noqa: F403

_resources: list[str] = []


class _Keep(TraceFilter):
    def process_trace(self, trace: Any) -> None:
        _resources.extend(str(span.resource) for span in trace)


tracer.configure(trace_processors=[_Keep()])
patch(django=True, psycopg=True)


def seen(response: Any) -> int:
    return sum("INSERT INTO leasequeue_job" in each for each in _resources)
