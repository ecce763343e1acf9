"""Plain values that go to the server, and those that come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Record:
    """One record to append: a job, where the topic is a queue.

    ``data`` is any JSON value, with ``meta`` (an object of at most 16 KiB and 64 keys) at most 1 MiB. ``tag`` is text
    of at most 256 bytes, by which records can be deleted; ``node`` the producer's name: readers can leave out what they
    wrote themselves; ``tags`` are at most 16 names and values (texts, integers, bools) to find the job by.
    """

    data: Any
    tag: str | None = None
    meta: Mapping[str, Any] | None = None
    node: str | None = None
    tags: Mapping[str, str | int] | None = None

    def body(self) -> dict[str, Any]:
        """Return it as the API takes it."""
        more = {name: getattr(self, name) for name in ("tag", "meta", "node", "tags")}
        return {"data": self.data, **{name: value for name, value in more.items() if value is not None}}


class _Answer:
    __slots__ = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Read it from an answer."""
        return cls(**{item.name: answer.get(item.name) for item in fields(cls)})  # type: ignore[arg-type]  # dataclasses


@dataclass(frozen=True, slots=True)
class Written(_Answer):
    """The outcome of a write: ``seqs`` in the order of the records."""

    topic: str
    seqs: list[int]
    count: int
    created: bool
    deduped: bool

    @property
    def seq(self) -> int:
        """The number of the first record."""
        return self.seqs[0]


@dataclass(eq=False, slots=True, weakref_slot=True)
class ClientJob:
    """A job that is leased to a node.

    ``lost`` becomes true when the client learns that the lease is over: stop then, its result is refused, and
    another worker may have the job already. ``cancelled`` becomes true when its workflow was cancelled: stop, and nack.
    """

    topic: str
    seq: int
    lease_id: str
    #: The end of the lease, unless it is extended.
    deadline: datetime
    #: The time of the write.
    created_at: datetime
    #: The number of deliveries, this one included.
    deliveries: int
    data: Any
    tag: str | None = None
    meta: Mapping[str, Any] | None = None
    lost: bool = False
    cancelled: bool = False
    #: In a handler of ``Worker``: ``JobSteps`` in a function, ``AsyncJobSteps`` in a coroutine function.
    steps: Any = field(default=None, repr=False)
    _on_stop: Callable[[], object] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, topic: str, item: Mapping[str, Any]) -> Self:
        """Read it from a claim's answer, or from an event of ``/work``."""
        return cls(
            topic,
            item["$seq"],
            item["lease_id"],
            moment(item["deadline"]),
            moment(item["$ts"]),
            item["deliveries"],
            item["data"],
            item.get("$tag"),
            item.get("meta"),
        )

    def when_stopped(self, callback: Callable[[], object] | None) -> None:
        """Have something called once, when the job is lost or cancelled; ``None``: nothing."""
        self._on_stop = callback

    def lose(self, *, cancelled: bool = False) -> None:
        """Note that the lease is over, or that the job is ``cancelled``."""
        before = self.lost or self.cancelled
        self.lost, self.cancelled = self.lost or not cancelled, self.cancelled or cancelled
        if self._on_stop is not None and not before:
            self._on_stop()


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of an ack, a nack or an extend.

    ``skipped`` were not held any more. When the request had to be ``repeated`` (the first answer got lost), a job in
    ``skipped`` may have been settled by the first one.
    """

    count: int
    skipped: list[int]
    repeated: bool = False
    #: After an extend: the new ends of the leases, by seq.
    deadlines: Mapping[int, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspension:
    """The state of a sleep or a wait.

    ``suspended``: the job was given back, and comes again within ``left_ms``. Else it is over: ``payload`` is what the
    event brought, unless it ``timed_out``.
    """

    suspended: bool
    left_ms: int
    payload: Any
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Page(_Answer):
    """Records of a read, as the API gives them (``$seq``, ``$ts``, ``data``, ...); read on from ``next_from_seq``.

    ``tombstone`` tells what a cap or the TTL took away before it could be read; ``None`` if nothing. ``timeline`` is
    the server's: give it to the next read. ``reset_to`` is where a read with ``reset`` began because a failover may
    have lost records; ``None`` if it did not.
    """

    records: list[dict[str, Any]]
    next_from_seq: int
    head_seq: int
    caught_up: bool
    tombstone: Mapping[str, Any] | None
    timeline: int | None = None
    reset_to: int | None = None


def moment(milliseconds: int) -> datetime:
    """Return a time of the API as an aware datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
