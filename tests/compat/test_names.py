"""Every name of the originals is there, or their page says what takes its place."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from django_leasequeue.compat import jobqueue, jqueue
from django_leasequeue.exceptions import InvalidOption
from tests.support.pages import run_page

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
    "": "Queue Reaper MemoryStorage FileStorage RedisStorage SQLiteStorage PgStorage Storage JsonSerde"
    " create_json_serde JobQueueError MaxRetriesError TimeoutError JobFailedError JobNotFoundError JobCancelledError"
    " StorageError",
    "Queue": "start stop enqueue enqueue_and_wait cancel get_result get_status update_result_ttl execute on"
    " payload_serde result_serde worker_id concurrency blockTimeout max_retries visibility_timeout processingQueueTTL"
    " result_ttl after_execution logger",
    "Reaper": "start stop on leaderElection", "Job": "id payload attempts signal",
    "MessageStatus": "id state created_at attempts result error", "EnqueueResult": "status existing_state result",
    "AbortSignal": "aborted reason", "JsonSerde": "serialize deserialize",
}  # fmt: skip


def has(owner: Any, name: str) -> bool:
    fields = [field.name for field in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
    code = getattr(getattr(owner, "__init__", None), "__code__", None)
    return hasattr(owner, name) or name in fields or (code is not None and name in code.co_varnames)


@pytest.mark.parametrize(("modules", "page", "table"), [
    ([jqueue], "move-from-jqueue.md", JQUEUE), ([jobqueue], "move-from-jobqueue.md", JOB_QUEUE),
])  # fmt: skip
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


#: Calls as the originals' documents write them: what is called, positional arguments, names of keyword arguments.
CALLS: list[tuple[Any, int, str]] = [
    (jqueue.BrokerQueue, 2, ""), (jqueue.DirectQueue, 1, ""), (jqueue.HeartbeatManager, 3, ""),
    (jqueue.HeartbeatManager, 2, "interval"), (jqueue.DirectQueue.enqueue, 4, ""),
    (jqueue.DirectQueue.enqueue, 2, "payload priority"), (jqueue.BrokerQueue.dequeue, 2, "batch_size"),
    (jqueue.DirectQueue.requeue_stale, 1, "timeout"), (jqueue.DirectQueue.nack, 1, "job_id"),
    (jqueue.QueueState.queued_jobs, 1, "entrypoint"), (jqueue.Job, 7, ""), (jqueue.Job.new, 3, ""),
    (jobqueue.Queue, 1, "worker_id concurrency max_retries visibility_timeout result_ttl payload_serde result_serde"),
    (jobqueue.Queue.enqueue, 3, "max_attempts result_ttl"),
    (jobqueue.Queue.enqueue_and_wait, 3, "timeout max_attempts result_ttl"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "positional", "names"), CALLS)
def test_a_call_is_written_as_there(function: Any, positional: int, names: str) -> None:
    inspect.signature(function).bind(*range(positional), **dict.fromkeys(names.split()))


def test_a_storage_says_what_takes_its_place() -> None:
    examples = {jqueue: r"BrokerQueue\('mail'\)", jobqueue: r"Queue\('images'\)"}
    storages = [
        (kind, f"storage must be the name of a queue, as in {example}; it is a {name}")
        for module, example in examples.items()
        for name, kind in vars(module).items()
        if name.endswith("Storage")
    ]
    assert len(storages) == 4 + 5
    for kind, says in storages:
        with pytest.raises(jobqueue.JobQueueError, match=says):
            kind(bucket="b", key="k")
    with pytest.raises(InvalidOption, match="name of a queue"):
        jqueue.DirectQueue(Mock(spec=jqueue.ObjectStoragePort))


# codeQ


@pytest.mark.django_db
def test_the_page_about_moving_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_page("how-to/move-from-codeq.md", monkeypatch)
    assert (names["again"].status, names["again"].seq) == ("duplicate", names["receipt"].seq)
    assert [names["video"].tag, names["mail"].tag] == ["RENDER_VIDEO", "SEND_MAIL"]
    assert (names["finished"].state, names["result"]) == ("completed", {"url": "/videos/j-1"})
    assert names["back"].state == "delayed"
