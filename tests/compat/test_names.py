"""Every name of the originals is there, or their page says what takes its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.compat import jobqueue, jobqueue_values, jqueue

PAGES = Path(__file__).parents[2] / "docs" / "how-to"

#: What the originals have, in Python's spelling: attributes and parameters of each name; "" is the module itself.
JQUEUE = {
    "": "BrokerQueue DirectQueue HeartbeatManager Job QueueState JobStatus JQueueError CASConflictError"
    " JobNotFoundError StorageError InMemoryStorage LocalFileSystemStorage S3Storage GCSStorage ObjectStoragePort",
    "BrokerQueue": "enqueue dequeue ack nack heartbeat read_state stale_timeout",
    "DirectQueue": "enqueue dequeue ack nack heartbeat read_state requeue_stale max_retries",
    "Job": "id entrypoint payload status priority created_at heartbeat_at new model_dump model_copy",
    "QueueState": "jobs version queued_jobs in_progress_jobs find model_validate",
}
JOB_QUEUE = {
    "": "Queue Reaper MemoryStorage FileStorage RedisStorage SQLiteStorage JsonSerde create_json_serde JobQueueError"
    " MaxRetriesError TimeoutError JobFailedError",
    "Queue": "start stop enqueue enqueue_and_wait cancel get_result get_status update_result_ttl execute on"
    " payload_serde result_serde worker_id concurrency blockTimeout max_retries visibility_timeout processingQueueTTL"
    " result_ttl after_execution logger",
    "Reaper": "start stop on leaderElection",
    "Job": "id payload attempts signal",
    "MessageStatus": "id state created_at attempts result error",
    "EnqueueResult": "status existing_state result",
    "AbortSignal": "aborted reason",
    "JsonSerde": "serialize deserialize",
}


def has(owner: Any, name: str) -> bool:
    fields = [field.name for field in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
    code = getattr(getattr(owner, "__init__", None), "__code__", None)
    return hasattr(owner, name) or name in fields or (code is not None and name in code.co_varnames)


@pytest.mark.parametrize(
    ("modules", "page", "table"),
    [([jqueue], "move-from-jqueue.md", JQUEUE), ([jobqueue, jobqueue_values], "move-from-jobqueue.md", JOB_QUEUE)],
)
def test_a_name_is_there_or_the_page_says_why_not(modules: list[Any], page: str, table: dict[str, str]) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    missing = [
        f"{owner}.{name}"
        for owner, names in table.items()
        for name in names.split()
        if not any(has(getattr(module, owner, None) if owner else module, name) for module in modules)
        and name not in text
    ]
    assert missing == []
