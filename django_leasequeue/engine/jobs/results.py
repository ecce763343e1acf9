"""What is known of a job from outside: its status, its result, and how long that is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...enums import JobState, ResultState
from ...exceptions import BatchTooLarge, LeaseQueueError
from .. import arrays, codec
from ..large import reading
from ..large.reference import is_reference
from ..limits import (
    MAX_BATCH,
    MAX_KEY_BYTES,
    MAX_SPAN_MS,
    check_integer,
    check_list,
    check_place,
    check_seqs,
    check_text,
)
from ..operation import Steps, only, operation
from .remove import remove_steps

#: Bytes (as stored) of a result that comes together with the status; a larger one is read by itself.
INLINE_BYTES = 65_536
#: Bytes of one slice of a large binary result.
SLICE_BYTES = 1_048_576

_ENDED = 10
#: The type of the failure of a job whose lease expired.
STALLED = "LEASE_EXPIRED"


class Status(NamedTuple):
    """State and result of a job, live or remembered. JSON columns stay text until they are read.

    ``result_size`` and ``body_size`` are the stored sizes of its result in bytes; ``result_json`` and ``result_body``
    are ``None`` where the result is larger than was asked for.
    """

    seq: int
    queue_id: int
    key: str | None
    name: str | None
    state_number: int
    deliveries: int
    max_deliveries: int | None
    created_at: datetime
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    available_at: datetime | None
    deadline: datetime | None
    expires_at: datetime | None
    node: str | None
    claim: int | None
    error_type: str | None
    error: str | None
    progress_json: str | None
    errors_json: str | None
    result_json: str | None
    result_size: int | None
    result_body: bytes | None
    body_size: int | None

    @property
    def state(self) -> str:
        """``queued``, ``processing``, ``failing``, ``completed``, ``failed`` or ``cancelled``.

        ``failing`` is a job between two tries, after an error of the first. A job whose lease expired is ``queued``
        again; a dead one is ``failed``.
        """
        number = self.state_number
        if number >= _ENDED:
            return str(ResultState(number - _ENDED).label)
        if number == JobState.LEASED:
            return "processing"
        if number == JobState.DEAD:
            return "failed"
        tried = self.deliveries > 0 and self.error_type not in (None, STALLED)
        return "failing" if tried else "queued"

    @property
    def ended(self) -> bool:
        """Whether the job is done, failed or dead: its state will not change by itself any more."""
        return self.state_number >= _ENDED or self.state_number == JobState.DEAD

    @property
    def exhausted(self) -> bool:
        """Whether the job is dead because it used up its deliveries, not because its handler gave up."""
        return self.state_number == JobState.DEAD

    @property
    def progress(self) -> Any:
        """What the job reported last."""
        return None if self.progress_json is None else codec.loads(self.progress_json)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts, oldest first, at most 20."""
        return [] if self.errors_json is None else codec.loads(self.errors_json)

    @property
    def left_behind(self) -> bool:
        """Whether there is a result that was too large to come with the status."""
        return (
            (self.result_json is None and self.result_size is not None)
            or (self.result_body is None and self.body_size is not None)
            or is_reference(self.result_json)
        )


def _keys(keys: Sequence[str]) -> list[str]:
    if len(check_list(keys, "the keys")) > MAX_BATCH:
        raise BatchTooLarge(f"one call names at most {MAX_BATCH} keys; there are {len(keys)}. Split them.")
    return list(dict.fromkeys(check_text(key, "key", MAX_KEY_BYTES) for key in keys))


@operation
def status(
    queue: str,
    *,
    keys: Sequence[str] = (),
    seqs: Sequence[int] = (),
    inline: int | None = None,
    project: str = "",
) -> Steps[list[Status]]:
    """Read what is known of jobs of one queue, by key or number: live ones first, then remembered results.

    A key stands for one job: the last that was enqueued with it.
    """
    check_place(project, queue)
    rows = yield (
        "job_status",
        {
            "project": project,
            "queue": queue,
            "keys": arrays.texts(_keys(keys)),
            "seqs": arrays.integers(check_seqs(seqs)),
            "inline": inline,
        },
    )
    return [Status._make(row) for row in rows]


def complete_steps(found: Status) -> Steps[Status]:
    """Steps that read the result that a status left behind: JSON at once, binary slice by slice.

    The slices keep one statement short and its memory small; the result itself is in memory once, at the end. What
    stands in a storage comes from there.
    """
    if found.result_json is None and found.result_size is not None:
        rows = yield "result_json", {"seq": found.seq}
        found = found._replace(result_json=only(rows))
    if is_reference(found.result_json):
        (found,) = yield from reading.steps([found], reading.RESULT)
        text, body = found.result_json, found.result_body
        return found._replace(
            result_size=None if text is None else len(text), body_size=None if body is None else len(body)
        )
    if found.result_body is None and found.body_size is not None:
        whole = bytearray()
        while len(whole) < found.body_size:
            piece = yield from slice_steps(found.seq, len(whole))
            if not piece:
                break
            whole += piece
        found = found._replace(result_body=bytes(whole))
    return found


def slice_steps(seq: int, start: int, size: int = SLICE_BYTES) -> Steps[bytes | None]:
    """Steps that read ``size`` bytes of a binary result from ``start``; ``None`` when it is not there any more."""
    rows = yield "result_slice", {"seq": seq, "start": start, "size": size}
    piece: bytes | None = only(rows)
    return piece


@operation
def result_slice(seq: int, start: int, size: int = SLICE_BYTES) -> Steps[bytes | None]:
    """Read one slice of a binary result: empty behind its end, ``None`` when it is not there any more."""
    return (yield from slice_steps(check_integer(seq, "the number of a job", 0, 2**63 - 1), start, size))


@operation
def update_result_ttl(
    queue: str, ttl_ms: int, *, key: str | None = None, seq: int | None = None, project: str = ""
) -> Steps[tuple[int, bool] | None]:
    """Change how long the end of a job is remembered."""
    ttl = check_integer(ttl_ms, "the result's time to live in milliseconds", 1, MAX_SPAN_MS)
    return (yield from _keep_for(queue, ttl, key, seq, project))


@operation
def forget(queue: str, found: Status, *, project: str = "") -> Steps[bool]:
    """Forget a job that has ended (done, failed, dead) now: its key is free at once."""
    if found.state_number == JobState.DEAD:
        return bool((yield from remove_steps(found.queue_id, [found.seq], [JobState.DEAD], reason="cancelled")))
    return found.ended and (yield from _keep_for(queue, 0, None, found.seq, project)) is not None


def _keep_for(
    queue: str, ttl_ms: int, key: str | None, seq: int | None, project: str
) -> Steps[tuple[int, bool] | None]:
    check_place(project, queue)
    params = {
        "project": project,
        "queue": queue,
        "ttl": ttl_ms,
        "key": None if key is None else check_text(key, "key", MAX_KEY_BYTES),
        "seq": None if seq is None else check_seqs([seq])[0],
    }
    for _ in range(5):
        rows = yield "result_ttl", params
        if not rows:
            return None
        (found, ended), *_ = rows
        if ended is not None:
            return found, ended
    raise LeaseQueueError("The job went elsewhere five times in a row; try the call again.")
