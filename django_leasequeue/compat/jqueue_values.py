"""Values of ``compat.jqueue``: jobs, snapshots of a queue, and ids that know their lease."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

from .. import conf
from ..conf import process
from ..engine import clock
from ..engine.jobs.read import JobRow
from ..engine.jobs.results import Status
from ..engine.limits import MAX_KEY_BYTES, MAX_SPAN_MS, MAX_TAG_BYTES
from ..engine.queues.stats import Waiting
from ..engine.rows import LeasedJob
from ..exceptions import InvalidOption
from ..queue import outcomes as leases
from ..queue.queue import Queue

#: Bytes of a payload, unless ``LEASEQUEUE["MAX_PAYLOAD_BYTES"]`` allows more.
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024


class JobStatus(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    DEAD = "dead"


class JobId(str):
    """A job's id. From ``dequeue`` it knows its lease: an ack or heartbeat with it affects only this delivery."""

    __slots__ = ("lease",)

    lease: leases.ClaimedJob | None

    def __new__(cls, text: object, lease: leases.ClaimedJob | None = None) -> Self:
        made = super().__new__(cls, text)
        made.lease = lease
        return made


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one instant. Times are aware and in UTC; a lower ``priority`` is processed first."""

    id: str
    entrypoint: str
    payload: bytes
    status: JobStatus
    priority: int
    created_at: datetime
    #: When its lease was taken or renewed last, ``None`` while it is queued.
    heartbeat_at: datetime | None = None

    @classmethod
    def new(cls, entrypoint: str, payload: bytes, priority: int = 0) -> Self:
        """Return a queued job with a new id, without a queue; ``enqueue`` adds jobs."""
        return cls(str(uuid4()), entrypoint, payload, JobStatus.QUEUED, priority, datetime.now(UTC))

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """Return the fields as a dict, the payload as base64 text; of mode ``json`` status and times as text, too."""
        dumped: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        dumped |= {"id": str(self.id), "payload": base64.b64encode(self.payload).decode()}
        if _is_json(mode):
            times = {name: dumped[name] for name in ("created_at", "heartbeat_at") if dumped[name] is not None}
            dumped |= {name: time.isoformat().replace("+00:00", "Z") for name, time in times.items()}
            dumped["status"] = str(self.status)
        return dumped

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON text; ``indent`` is spaces of a level, ``None`` for one line."""
        return _dumps(self.model_dump(mode="json"), indent)


@dataclass(frozen=True, slots=True)
class QueueState:
    """A snapshot of a queue: the queued jobs in the order of their processing, then those in progress."""

    jobs: tuple[Job, ...] = ()
    #: Grows with every write.
    version: int = 0
    #: Whether it has all jobs; ``False``: there are more, queued or in progress, than were asked for.
    complete: bool = True

    def queued_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Return the queued jobs, by priority and age; of one entrypoint or of all."""
        queued = (job for job in self.jobs if job.status is JobStatus.QUEUED)
        return tuple(job for job in queued if entrypoint in (None, job.entrypoint))

    def in_progress_jobs(self) -> tuple[Job, ...]:
        """Return the leased jobs."""
        return tuple(job for job in self.jobs if job.status is JobStatus.IN_PROGRESS)

    def find(self, job_id: str) -> Job | None:
        """Return one job, ``None`` if it is not in the snapshot."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """Return the snapshot as a dict; see ``Job.model_dump``."""
        jobs = (job.model_dump(mode=mode) for job in self.jobs)
        shown = list(jobs) if _is_json(mode) else tuple(jobs)
        return {"jobs": shown, "version": self.version, "complete": self.complete}

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the snapshot as JSON text; see ``Job.model_dump_json``."""
        return _dumps(self.model_dump(mode="json"), indent)


def payload_limit() -> int:
    """Return how many bytes a payload may have."""
    return max(MAX_PAYLOAD_BYTES, conf.settings.MAX_PAYLOAD_BYTES)


def payload_of(given: bytes | str) -> bytes:
    """Return a payload as bytes; text must be base64."""
    if isinstance(given, str):
        try:
            return base64.b64decode(given, validate=True)
        except ValueError as error:
            raise InvalidOption(f"payload must be bytes, or base64 as text: {error}.") from error
    if not isinstance(given, bytes):
        raise InvalidOption(f"payload must be bytes, or base64 as text; it is a {type(given).__name__}.")
    return given


def tag_of(entrypoint: str) -> str:
    """Return the tag of an entrypoint: its text, or a digest if that is too long or empty."""
    if not isinstance(entrypoint, str):
        raise InvalidOption(f"entrypoint must be text; it is a {type(entrypoint).__name__}.")
    try:
        raw = entrypoint.encode()
    except UnicodeEncodeError:
        raw = b"\x00"
    if b"\x00" in raw:
        raise InvalidOption(f"entrypoint must be text without NUL and lone surrogates; it is {entrypoint[:80]!r}.")
    return entrypoint if 0 < len(raw) <= MAX_TAG_BYTES else f"sha256:{hashlib.sha256(raw).hexdigest()}"


def options_of(entrypoint: str) -> dict[str, Any]:
    """Return the options of a job of an entrypoint, which becomes its name or, if too long, its metadata."""
    options: dict[str, Any] = {"tag": tag_of(entrypoint), "max_bytes": payload_limit()}
    if len(entrypoint.encode()) > MAX_KEY_BYTES:
        return {**options, "name": None, "meta": {"entrypoint": entrypoint}}
    return {**options, "name": entrypoint or None, "meta": None}


def entrypoint_of(name: str | None, meta: Any) -> str:
    """Return the entrypoint of a job with this name and metadata."""
    if name is None and isinstance(meta, Mapping):
        return str(meta.get("entrypoint", ""))
    return name or ""


def leased_job(job: leases.ClaimedJob, job_id: JobId) -> Job:
    """Return a job as ``dequeue`` gives it."""
    lease = job.lease
    return Job(
        job_id,
        entrypoint_of(job.name, job.meta),
        b"" if lease.body is None else bytes(lease.body),
        JobStatus.IN_PROGRESS,
        lease.rank,
        job.created_at,
        job.claimed_at,
    )


def shown_job(seen: Waiting, row: JobRow) -> Job:
    """Return a job as a snapshot shows it."""
    return Job(
        JobId(row.key or row.seq),
        entrypoint_of(row.name, row.meta),
        row.body or b"",
        JobStatus.QUEUED if seen.deadline is None else JobStatus.IN_PROGRESS,
        row.rank,
        row.created_at.astimezone(UTC),
        None if seen.renewed_at is None else seen.renewed_at.astimezone(UTC),
    )


def milliseconds(value: timedelta, what: str) -> int:
    """Return the milliseconds of a time from 0 to 100 years; ``InvalidOption`` for anything else."""
    longest = timedelta(milliseconds=MAX_SPAN_MS)
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= longest:
        raise InvalidOption(f"{what} must be a timedelta from 0 to {longest.days} days; it is {value!r}.")
    return round(value / timedelta(milliseconds=1))


def _is_json(mode: str) -> bool:
    if mode not in ("python", "json"):
        raise InvalidOption(f"mode must be 'python' or 'json'; it is {mode!r}.")
    return mode == "json"


def _dumps(value: Any, indent: int | None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)


#: Leases that a queue object remembers, and that all of a process remember together.
MAX_REMEMBERED = 10_000

#: By database, project, queue and id of the job.
_of_process: OrderedDict[tuple[str, str, str, str], leases.ClaimedJob] = OrderedDict()
process.when_forgetting(_of_process.clear)


class Leases:
    """The newest lease that a queue object has taken of each job, by the job's id.

    Expired leases stay, so that a worker that lost a job cannot end the delivery of another worker with a plain text
    id. Without a lease of the object, the newest lease of the process counts.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._own: OrderedDict[tuple[str, str, str, str], leases.ClaimedJob] = OrderedDict()

    def _key(self, job_id: str) -> tuple[str, str, str, str]:
        return self._queue.using, self._queue.project, self._queue.name, job_id

    def taken(self, job: leases.ClaimedJob) -> JobId:
        """Note the lease of a dequeued job; return its id, which knows the lease."""
        # Without the payload: ids are kept, copied and sent.
        row = job.lease._replace(data_json=None, meta_json=None, body=None, errors_json=None, progress_json=None)
        lease = leases.ClaimedJob(row, job.node, asked=job.asked)
        key = self._key(job.id)
        for memory in (self._own, _of_process):
            memory.pop(key, None)
            memory[key] = lease
            if len(memory) > MAX_REMEMBERED:
                memory.popitem(last=False)
        return JobId(job.id, lease)

    def find(self, job_id: str) -> leases.ClaimedJob | None:
        """Return the lease of an id; ``None``: this process never had the job."""
        known = getattr(job_id, "lease", None)
        if known is not None:
            return known if isinstance(known, leases.ClaimedJob) else None
        key = self._key(job_id)
        return self._own.get(key) or _of_process.get(key)

    def ended(self, job_id: str) -> None:
        """Forget a job that is gone."""
        for memory in (self._own, _of_process):
            memory.pop(self._key(job_id), None)


def lease_of(row: Status, queue: str) -> leases.ClaimedJob | None:
    """Return the present lease of a job, or ``None``; its ``claimed_at`` is now."""
    if row.claim is None or row.deadline is None or row.node is None or row.ended:
        return None
    now = clock.now().timestamp()
    unread = ("tag", "data_json", "meta_json", "body", "reply_to", "errors_json", "progress_json")
    empty: dict[str, Any] = dict.fromkeys(unread)
    lease = LeasedJob(
        seq=row.seq, queue_id=row.queue_id, queue=queue, token=row.claim, key=row.key, name=row.name,
        deadline_epoch=row.deadline.timestamp(), created_epoch=row.created_at.timestamp(), claimed_epoch=now,
        first_claimed_epoch=now, deliveries=row.deliveries, max_deliveries=row.max_deliveries or 0, rank=0,
        position=0, **empty,
    )  # fmt: skip
    return leases.ClaimedJob(lease, row.node)
