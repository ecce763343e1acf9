"""What the engine takes and gives: immutable values."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..exceptions import InvalidOption, LargeStorageError, PayloadAway
from . import codec
from .dead.redaction import scrub
from .payloads import load
from .store import MARK, is_reference

if TYPE_CHECKING:
    from .flow.declared import Limit, Limited

_LEASE_ID = re.compile(r"lease_([0-9a-f]{16})([0-9a-f]{16})\Z")


def make_lease_id(token: int, seq: int) -> str:
    """Return the lease of one job as text, its claim's token and its number: ``lease_`` and 32 hex digits."""
    return f"lease_{token:016x}{seq:016x}"


def parse_lease_id(lease_id: str) -> tuple[int, int]:
    """Return (token, seq) of a lease id."""
    match = _LEASE_ID.match(lease_id) if isinstance(lease_id, str) else None
    if match is None:
        raise InvalidOption(f"a lease id is 'lease_' and 32 hex digits, as the claim gave it; it is {lease_id!r}.")
    return int(match[1], 16), int(match[2], 16)


def make_id(seq: int, id_end: str) -> str:
    """Return the key of job ``seq`` whose random end is ``id_end``: a UUID of version 8 that begins with the number."""
    return f"{_id_begin(seq >> 12)}{seq & 4095:03x}-{id_end}"


_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def number_of(id: object) -> int | None:
    """Return the number of the job that an id begins with; ``None`` if it is no id of ``make_id``."""
    match = _ID.match(id) if isinstance(id, str) else None
    return None if match is None else int("".join(match.groups()), 16)


@lru_cache(maxsize=64)
def _id_begin(part: int) -> str:
    """Return what the keys of 4,096 jobs in a row begin with."""
    number = f"{part:012x}"
    return f"{number[:8]}-{number[8:]}-8"


class NewJob(NamedTuple):
    """A job to enqueue. Times in ms; ``run_at`` (aware) wins over ``delay_ms``.

    ``body`` holds bytes as they are; ``data`` any JSON. ``key`` is the client's id of the job, at most once in a queue.
    ``origin`` is the producing node, where it differs from the call's. ``id_end`` instead of a key: the key is made of
    the job's number and this random end (``make_id``); it leads to its job without an index. ``max_bytes`` is what its
    payload may have, in place of ``LEASEQUEUE["MAX_PAYLOAD_BYTES"]``. ``limit``: how many
    jobs of its key may run at once or start in a time. ``flow``: the same transaction brings it into a workflow.
    ``tags`` are names and values to find it by; they are stored in ``meta``.

    ``unique_until``, ``unique_for_ms`` and ``on_conflict`` make it a unique job, whose key holds as they say in place
    of the queue's ``dedup_until``; ``unique_key`` is that key where ``key`` is another id of the job.
    """

    data: Any = None
    body: bytes | None = None
    key: str | None = None
    name: str | None = None
    tag: str | None = None
    priority: int | None = None
    meta: dict[str, Any] | None = None
    tags: dict[str, Any] | None = None
    run_at: datetime | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    reply_to: str | None = None
    result_ttl_ms: int | None = None
    max_deliveries: int | None = None
    origin: str | None = None
    flow: bool | None = None
    unique_key: str | None = None
    unique_until: str | None = None
    unique_for_ms: int | None = None
    on_conflict: str | None = None
    id_end: str | None = None
    max_bytes: int | None = None
    limit: Limit | Limited | None = None


#: What a job with no more than data, key, name and an id's end has from ``TAG`` to ``END``: nothing else to look at.
TAG, END = NewJob._fields.index("tag"), NewJob._fields.index("id_end")
PLAIN = NewJob()[TAG:END]
#: The fields of a unique job from ``UNIQUE`` to ``UNIQUE_END``, and what others have there.
UNIQUE, UNIQUE_END = NewJob._fields.index("unique_key"), NewJob._fields.index("on_conflict") + 1
NOT_UNIQUE = NewJob()[UNIQUE:UNIQUE_END]


class EnqueueStatus(StrEnum):
    """What became of a job given to enqueue."""

    QUEUED = "queued"
    DUPLICATE = "duplicate"
    COMPLETED = "completed"


class Enqueued(NamedTuple):
    """The answer to one job given to enqueue."""

    #: The new job's number, or the existing one's where the key is taken (``duplicate``, ``completed``).
    seq: int
    status: EnqueueStatus
    #: Where that job is: ``ready``, ``delayed``, ``leased``, ``dead``, ``completed``, ``failed``.
    state: str
    created_at: datetime | None


class LeasedJob(NamedTuple):
    """One job as a claim gives it: immutable, with its token.

    JSON columns stay text until they are asked for, and times seconds since 1970: most are never looked at, and a
    ``datetime`` takes longer to make than all the other columns of a row.
    """

    seq: int
    queue_id: int
    queue: str
    token: int
    deadline_epoch: float
    created_epoch: float
    claimed_epoch: float
    deliveries: int
    max_deliveries: int
    rank: int
    key: str | None
    name: str | None
    tag: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    reply_to: str | None
    errors_json: str | None
    first_claimed_epoch: float
    progress_json: str | None
    position: int
    flags: int = 0

    @property
    def deadline(self) -> datetime:
        return datetime.fromtimestamp(self.deadline_epoch, UTC)

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_epoch, UTC)

    @property
    def claimed_at(self) -> datetime:
        return datetime.fromtimestamp(self.claimed_epoch, UTC)

    @property
    def first_claimed_at(self) -> datetime:
        return datetime.fromtimestamp(self.first_claimed_epoch, UTC)

    @property
    def lease_id(self) -> str:
        """This lease as text: the token and the job's number, as the HTTP API names it."""
        return make_lease_id(self.token, self.seq)

    @property
    def is_loaded(self) -> bool:
        """Whether the payload is here; if not, it stands in a storage."""
        return not is_reference(self.data_json)

    def loaded(self) -> LeasedJob:
        """Return the job with its payload; a large one is read from its storage, in this thread."""
        text = self.data_json
        if text is None or not text.startswith(MARK):
            return self
        try:
            return load(self)
        except LargeStorageError as error:
            raise PayloadAway(str(error), error.cause) from error

    async def aloaded(self) -> LeasedJob:
        """Return the job with its payload; a large one is read from its storage, in another thread."""
        return self if self.is_loaded else await asyncio.to_thread(self.loaded)

    @property
    def data(self) -> Any:
        """The payload. A large one that was not loaded is read from its storage, each time anew: see ``loaded``."""
        text = self.loaded().data_json
        return None if text is None else codec.loads(text)

    @property
    def meta(self) -> Any:
        return None if self.meta_json is None else codec.loads(self.meta_json)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts before this one, oldest first, at most 20."""
        return [] if self.errors_json is None else codec.loads(self.errors_json)

    @property
    def progress(self) -> Any:
        """What an earlier attempt reported last."""
        return None if self.progress_json is None else codec.loads(self.progress_json)


class Outcome(StrEnum):
    """What became of one job of a settle call."""

    OK = "ok"
    NOT_FOUND = "not_found"
    NOT_HELD = "not_held"
    STALE_TOKEN = "stale_token"  # nosec  # B105: a word of answers
    EXPIRED = "expired"
    #: Its workflow is being cancelled: it is to stop. The lease was extended, so its end still counts.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: what is kept on the job, and what groups dead letters."""

    type: str
    message: str = ""
    #: Cut to 16 KiB.
    traceback: str = ""
    #: Equal for failures of one cause.
    fingerprint: str = ""

    def __post_init__(self) -> None:
        # What is not kept needs no hiding: in pages, exports, answers, the lake.
        for name in ("message", "traceback"):
            object.__setattr__(self, name, scrub(getattr(self, name)))


class Ending(NamedTuple):
    """How one leased job ends: completed, or failed for good by the worker's word."""

    seq: int
    token: int | None = None
    result: Any = None
    result_json: str | None = None
    body: bytes | None = None
    failure: Failure | None = None
    result_ttl_ms: int | None = None
    ran_ms: int | None = None


class Release(NamedTuple):
    """One leased job to give back."""

    seq: int
    token: int | None = None
    #: ``None``: the queue's backoff.
    delay_ms: int | None = None
    failure: Failure | None = None
    ran_ms: int | None = None
    #: How long it is kept if it is dead now, in place of the job's and the queue's.
    dead_ttl_ms: int | None = None
    #: Whether it is a suspect from now on; ``None``, of all jobs of a call: what was unstarted stays as it was.
    suspect: bool | None = None


class Released(NamedTuple):
    """Where a released job went: ``ready``, ``delayed`` or ``dead``."""

    state: str
    available_at: datetime | None
    deliveries: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to a settle call: an outcome per seq, in the order asked."""

    outcomes: dict[int, Outcome]
    #: Of an extend: the new deadlines, and the seconds from the statement to them.
    deadlines: dict[int, datetime] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    #: Of a release.
    released: dict[int, Released] = field(default_factory=dict)

    @property
    def ok(self) -> list[int]:
        """The seqs that were settled."""
        return [seq for seq, outcome in self.outcomes.items() if outcome is Outcome.OK]

    @property
    def skipped(self) -> list[int]:
        """The seqs that were not settled."""
        return [seq for seq, outcome in self.outcomes.items() if outcome is not Outcome.OK]


class Swept(NamedTuple):
    """One job whose lease had expired: its state now is ``ready`` or ``dead``."""

    seq: int
    queue_id: int
    state: str
    key: str | None
    name: str | None
    node: str | None
    deliveries: int
