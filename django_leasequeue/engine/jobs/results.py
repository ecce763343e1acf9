"""A job seen from outside: status, progress, result, and the notification of its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...enums import JobState, ResultState
from ...exceptions import BatchTooLarge, InvalidOption, LeaseQueueError, PayloadTooLarge
from ...words import ENDED
from .. import arrays, codec, limits, payloads
from ..leases.settle import check_scope, outcome_steps, scope_parameters, token_steps
from ..operation import Statements, only, operation
from ..rows import Settled
from ..store import is_reference
from .remove import remove_steps

#: Bytes (as stored) of a result that comes together with the status; a larger one is read by itself.
INLINE_BYTES = 65_536
#: Bytes of one slice of a large binary result.
SLICE_BYTES = 1_048_576

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
        if number >= ENDED:
            return str(ResultState(number - ENDED).label)
        if number == JobState.LEASED:
            return "processing"
        if number == JobState.DEAD:
            return "failed"
        tried = self.deliveries > 0 and self.error_type not in (None, STALLED)
        return "failing" if tried else "queued"

    @property
    def ended(self) -> bool:
        """Whether the job is done, failed or dead: its state will not change by itself any more."""
        return self.state_number >= ENDED or self.state_number == JobState.DEAD

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


@operation
def status(
    queue: str, *, keys: Sequence[str] = (), seqs: Sequence[int] = (), inline: int | None = None, project: str = ""
) -> Statements[list[Status]]:
    """Read the status of jobs of one queue, by key or number: live ones first, then remembered results.

    A key stands for one job: the last that was enqueued with it.
    """
    limits.check_place(project, queue)
    if len(limits.check_list(keys, "the keys")) > limits.MAX_BATCH:
        raise BatchTooLarge(f"one call names at most {limits.MAX_BATCH} keys; there are {len(keys)}. Split them.")
    named = arrays.texts(dict.fromkeys(limits.check_text(key, "key", limits.MAX_KEY_BYTES) for key in keys))
    asked = {"project": project, "queue": queue, "keys": named, "seqs": arrays.integers(limits.check_seqs(seqs))}
    return [Status._make(row) for row in (yield "job_status", {**asked, "inline": inline})]


def complete_steps(found: Status) -> Statements[Status]:
    """Read the result that a status left behind, from a storage if it stands there."""
    if found.result_json is None and found.result_size is not None:
        rows = yield "result_json", {"seq": found.seq}
        found = found._replace(result_json=only(rows))
    if is_reference(found.result_json):
        (found,) = yield from payloads.steps([found], payloads.RESULT)
        text, body = found.result_json, found.result_body
        return found._replace(
            result_size=None if text is None else len(text), body_size=None if body is None else len(body)
        )
    if found.result_body is None and found.body_size is not None:
        whole = bytearray()
        while len(whole) < found.body_size:
            piece = yield from result_slice(found.seq, len(whole))
            if not piece:
                break
            whole += piece
        found = found._replace(result_body=bytes(whole))
    return found


@operation
def result_slice(seq: int, start: int, size: int = SLICE_BYTES) -> Statements[bytes | None]:
    """Read one slice of a binary result: empty behind its end, ``None`` when it is not there any more."""
    limits.check_integer(seq, "the number of a job", 0, limits.MAX_SEQ)
    piece: bytes | None = only((yield "result_slice", {"seq": seq, "start": start, "size": size}))
    return piece


@operation
def update_result_ttl(
    queue: str, ttl_ms: int, *, key: str | None = None, seq: int | None = None, project: str = ""
) -> Statements[tuple[int, bool] | None]:
    """Change how long the end of a job is remembered."""
    ttl = limits.check_integer(ttl_ms, "the result's time to live in milliseconds", 1, limits.MAX_SPAN_MS)
    return (yield from _keep_for(queue, ttl, key, seq, project))


@operation
def forget(queue: str, found: Status, *, project: str = "") -> Statements[bool]:
    """Forget a job that has ended (done, failed, dead) now: its key is free at once."""
    if found.state_number == JobState.DEAD:
        return bool((yield from remove_steps(found.queue_id, [found.seq], [JobState.DEAD], reason="cancelled")))
    return found.ended and (yield from _keep_for(queue, 0, None, found.seq, project)) is not None


def _keep_for(
    queue: str, ttl_ms: int, key: str | None, seq: int | None, project: str
) -> Statements[tuple[int, bool] | None]:
    limits.check_place(project, queue)
    if key is not None:
        limits.check_text(key, "key", limits.MAX_KEY_BYTES)
    if seq is not None:
        limits.check_seqs([seq])
    params = {"project": project, "queue": queue, "ttl": ttl_ms, "key": key, "seq": seq}
    for _ in range(5):
        rows = yield "result_ttl", params
        if not rows:
            return None
        (found, ended), *_ = rows
        if ended is not None:
            return found, ended
    raise LeaseQueueError("The job went elsewhere five times in a row; try the call again.")


MAX_PROGRESS_BYTES = 65_536


class Progress(NamedTuple):
    """How far one leased job is: ``value`` is any JSON."""

    seq: int
    token: int | None
    value: Any


@operation
def progress(
    reports: Sequence[Progress], node: str, *, project: str = "", queue: str | None = None
) -> Statements[Settled]:
    """Keep the progress of held jobs. It stays over retries until the next report."""
    scope = check_scope(node, project, queue)
    if len(limits.check_list(reports, "the reports")) > limits.MAX_BATCH:
        raise InvalidOption(f"one call reports on at most {limits.MAX_BATCH} jobs; there are {len(reports)}.")
    unique = {report.seq: report for report in reports}
    limits.check_seqs(list(unique))
    if not unique:
        return Settled({})
    values = {seq: codec.dumps(report.value, "the progress") for seq, report in unique.items()}
    if any(len(text.encode()) > MAX_PROGRESS_BYTES for text in values.values()):
        raise PayloadTooLarge(f"the progress of a job is at most {MAX_PROGRESS_BYTES} bytes of JSON.")
    asked = {seq: limits.check_token(report.token) for seq, report in unique.items()}
    tokens = yield from token_steps(asked, scope)
    seqs = sorted(seq for seq, token in tokens.items() if token is not None)
    kept: set[int] = set()
    if seqs:
        params = scope_parameters(tokens, scope, seqs)
        rows = yield "progress", {**params, "values": arrays.texts([values[seq] for seq in seqs])}
        kept = {seq for seq, *_ in rows}
    return Settled((yield from outcome_steps(asked, kept, scope)))


#: Characters of all the channels of one job: about 80 processes that wait for the same one.
MAX_CHANNELS_LENGTH = 4_096


@operation
def join(seq: int, channel: str) -> Statements[bool | None]:
    """Add ``channel`` to those that are notified of the end of a live job."""
    limits.check_seqs([seq])
    limits.check_text(channel, "the channel", limits.MAX_CHANNEL_BYTES)
    params = {"seq": seq, "channel": channel, "room": MAX_CHANNELS_LENGTH}
    for _ in range(5):  # the job may go from place to place meanwhile
        rows = yield "reply_join", params
        if not rows:
            return None
        (_, told), *_ = rows
        if told is not None:
            return bool(told)
    return False


@operation
def join_key(key: str, queue: str, channel: str, *, project: str = "") -> Statements[tuple[int | None, bool]]:
    """Add ``channel`` for the last job with a key: see ``join``."""
    found = yield from status(queue, keys=[key], project=project)
    if not found:
        return None, False
    told = yield from join(found[0].seq, channel)
    return found[0].seq, bool(told)


@operation
def ended(seqs: Sequence[int]) -> Statements[list[int]]:
    """Return which of these jobs (at most 1,000) do not live any more: done, failed, dead, cancelled or removed."""
    rows = yield "reply_check", {"seqs": arrays.integers(limits.check_seqs(seqs))}
    return [seq for (seq,) in rows]


class Reply(NamedTuple):
    """The result of a completed job. JSON stays text until it is read."""

    seq: int
    created_at: datetime
    result_json: str | None
    result_body: bytes | None

    @property
    def key(self) -> None:
        """Not read: callers by number know it."""


def result_steps(seqs: Sequence[int], inline: int) -> Statements[dict[int, Reply]]:
    """Read results of completed jobs: a fifth of the cost of ``status``."""
    rows = yield "reply_results", {"seqs": arrays.integers(seqs), "inline": inline}
    return {reply.seq: reply for reply in map(Reply._make, rows) if not is_reference(reply.result_json)}
