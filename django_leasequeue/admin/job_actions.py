"""Actions of a job's page beside those of the engine: enqueue a job once more."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import engine
from ..engine import codec, tags
from ..engine.large import reading as large
from ..engine.operation import Steps, operation
from ..tasks.results import new_end


class Source(NamedTuple):
    """The values that a job was enqueued with."""

    seq: int
    project: str
    queue: str
    type: str
    priority: int | None
    keyed: bool
    name: str | None
    tag: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    max_deliveries: int | None
    result_ttl_ms: int | None


def _own_names(meta_json: str | None) -> dict[str, Any] | None:
    """Return the meta that the producer gave: names with ``$`` are the queue's, about the old job."""
    meta = {} if meta_json is None else codec.loads(meta_json)
    return {name: value for name, value in meta.items() if not name.startswith("$")} or None


@operation
def copy_job(seq: int, origin: str) -> Steps[int | None]:
    """Enqueue what a job, live or finished, was enqueued with: a new job, with a key of its own if that one had one.

    Args:
        seq: of the job.
        origin: who does it.

    Returns:
        The number of the new job; ``None`` if nothing is left of the old one.

    Raises:
        LeaseQueueError: its large payload cannot be read, or the queue does not take it.
    """
    rows = yield "admin/job_source", {"seq": seq}
    if not rows:
        return None
    (source,) = yield from large.steps([Source._make(rows[0])])
    job = engine.NewJob(
        data=None if source.data_json is None else codec.loads(source.data_json),
        body=source.body,
        name=source.name,
        tag=source.tag,
        priority=source.priority,
        meta=_own_names(source.meta_json),
        tags=tags.of_meta(source.meta_json),
        result_ttl_ms=source.result_ttl_ms,
        max_deliveries=source.max_deliveries,
        origin=origin,
        id_end=new_end() if source.keyed else None,
    )
    (answer,) = yield from engine.enqueue(source.queue, [job], project=source.project).steps()
    return answer.seq
