"""The seam for traces of enqueues and runs. Off until ``metrics.otel`` is switched on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

#: Name in a job's metadata of the context of the trace that it belongs to (W3C: ``traceparent``, ``tracestate``).
META = "$trace"


class Meta(dict[str, Any]):
    """Metadata of a job that carry the context of a trace, the only ones that may have a name of our own."""


#: Called with project, queue and number of jobs by each call that enqueues, which is its block: it gives the context
#: that the jobs carry. ``None`` while tracing is off.
begin: Callable[[str, str, int], AbstractContextManager[dict[str, str]]] | None = None
#: Called with each worker's handler and project, returns the handler that is used; ``None`` while tracing is off.
wrap: Callable[[Any, str], Any] | None = None
