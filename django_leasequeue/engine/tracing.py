"""The seam for traces of enqueues and runs. Off until ``metrics.otel`` is switched on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .operation import Steps
from .rows import Enqueued, NewJob

#: Name in a job's metadata of the context of the trace that it belongs to (W3C: ``traceparent``, ``tracestate``).
META = "$trace"


class Meta(dict[str, Any]):
    """Metadata of a job that carry the context of a trace, the only ones that may have a name of our own."""


class Sending(Protocol):
    """One call that enqueues."""

    #: The context that its jobs carry.
    context: dict[str, str]

    def end(self, error: BaseException | None) -> None:
        """Hear that the call has ended."""


#: Called with project, queue and number of jobs by each call that enqueues; ``None`` while tracing is off.
begin: Callable[[str, str, int], Sending] | None = None
#: Called with each worker's handler and project, returns the handler that is used; ``None`` while tracing is off.
wrap: Callable[[Any, str], Any] | None = None


def carried(jobs: Sequence[NewJob]) -> bool:
    """Return whether jobs carry the context of a trace already."""
    return type(jobs[0].meta) is Meta if isinstance(jobs[0], NewJob) else False


def steps(
    project: str, queue: str, jobs: Sequence[NewJob], enqueue: Callable[[list[NewJob]], Steps[list[Enqueued]]]
) -> Steps[list[Enqueued]]:
    """Steps that enqueue jobs which carry the context of a trace, and tell the tracer when that has ended."""
    assert begin is not None
    sending = begin(project, queue, len(jobs))
    traced = [job._replace(meta=Meta({**(job.meta or {}), META: sending.context})) for job in jobs]
    try:
        answers = yield from enqueue(traced)
    except BaseException as error:
        sending.end(error)
        raise
    sending.end(None)
    return answers
