"""Ending, releasing and extending leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from .. import conf
from ..enums import JobState, ResultState
from ..exceptions import BatchTooLarge, InvalidOption, PayloadTooLarge
from . import arrays, clock, codec
from .announce import announce
from .deadletter import retire_steps
from .limits import (
    MAX_BATCH,
    MAX_SPAN_MS,
    check_claim,
    check_integer,
    check_list,
    check_node,
    check_place,
    check_seqs,
    clamp_delay,
    clamp_lease,
)
from .operation import Rows, Steps, operation
from .rows import Ending, Failure, Outcome, Release, Released, Settled

#: Characters of a traceback, of a message, of a type or fingerprint that are kept.
MAX_TRACEBACK = 16_384
MAX_MESSAGE = 1_024
MAX_TYPE = 256


def _record(failure: Failure, node: str) -> str:
    """The attempt as it is appended to the job's ``errors``."""
    at: datetime = clock.now()
    return codec.dumps(
        {
            "at": at.isoformat(),
            "node": node,
            "type": _clean(failure.type)[:MAX_TYPE],
            "message": _clean(failure.message)[:MAX_MESSAGE],
            "traceback": _clean(failure.traceback)[-MAX_TRACEBACK:],
        }
    )


def _clean(text: str) -> str:
    """Text of an exception may hold anything: make it storable instead of failing to record the failure."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _check_call(node: str, project: str, queue: str | None) -> None:
    check_node(node)
    check_place(project, *(() if queue is None else (queue,)))


def _check_batch(items: Sequence[Ending] | Sequence[Release], kind: type[Ending] | type[Release]) -> None:
    if len(check_list(items, f"what to settle, {kind.__name__} values,")) > MAX_BATCH:
        raise BatchTooLarge(f"one call settles at most {MAX_BATCH} jobs; there are {len(items)}. Split them.")
    for item in items:
        if not isinstance(item, kind):
            raise InvalidOption(f"this call takes {kind.__name__} values; there is a {type(item).__name__}.")
        if item.claim is not None:
            check_claim(item.claim)
        if item.failure is not None and not isinstance(item.failure, Failure):
            raise InvalidOption(f"a failure is a Failure; it is a {type(item.failure).__name__}.")
    check_seqs([item.seq for item in items])


def _failure_columns(failures: Sequence[Failure | None], node: str) -> dict[str, str]:
    if arrays.absent(failures):
        return dict.fromkeys(("error_types", "errors", "records", "fingerprints"), arrays.EMPTY)
    return {
        "error_types": arrays.texts([_clean(f.type)[:MAX_TYPE] if f else None for f in failures]),
        "errors": arrays.texts([_clean(f.message)[:MAX_MESSAGE] if f else None for f in failures]),
        "records": arrays.texts([_record(f, node) if f else None for f in failures]),
        "fingerprints": arrays.texts([_clean(f.fingerprint)[:MAX_TYPE] if f else None for f in failures]),
    }


def _optional(values: Sequence[int | None]) -> str:
    return arrays.EMPTY if arrays.absent(values) else arrays.integers(values)


def _result(ending: Ending) -> str | None:
    if ending.result_json is not None:
        text = ending.result_json
    elif ending.result is None:
        return None
    else:
        text = codec.dumps(ending.result, "the result")
    limit = conf.settings.MAX_RESULT_BYTES
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise _too_large(limit)
    return text


def _body(body: bytes) -> bytes:
    if not isinstance(body, bytes):
        raise InvalidOption(f"the body of a result must be bytes; it is a {type(body).__name__}.")
    if len(body) > conf.settings.MAX_RESULT_BYTES:
        raise _too_large(conf.settings.MAX_RESULT_BYTES)
    return body


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"A result of more than {limit} bytes was refused. Keep it elsewhere and return a reference, or raise"
        " LEASEQUEUE['MAX_RESULT_BYTES']."
    )


def _ttl(result_ttl_ms: int) -> int:
    return check_integer(result_ttl_ms, "result_ttl_ms", 0, MAX_SPAN_MS)


@operation
def finish(endings: Sequence[Ending], node: str, *, project: str = "", queue: str | None = None) -> Steps[Settled]:
    """End leased jobs: completed (``failure`` is ``None``) or failed for good by the worker's word.

    Job, result, event and the notification of a waiting caller change in one statement (spec/library P13).

    Args:
        endings: at most 1,000; those without ``claim`` are held by the node's name alone.
        node: the holder.
        project: the tenant.
        queue: only jobs of this queue; ``None`` for any.

    Returns:
        An outcome per job. A job that is not held any more is not changed.

    Raises:
        BatchTooLarge, InvalidOption, PayloadTooLarge: nothing was ended.
    """
    _check_call(node, project, queue)
    _check_batch(endings, Ending)
    unique = {ending.seq: ending for ending in endings}
    ordered = sorted(unique.values(), key=lambda ending: ending.seq)
    if not ordered:
        return Settled({})
    results = [_result(ending) for ending in ordered]
    bodies = [None if ending.body is None else _body(ending.body) for ending in ordered]
    ttls = [None if ending.result_ttl_ms is None else _ttl(ending.result_ttl_ms) for ending in ordered]
    rows = yield (
        "finish",
        {
            "project": project,
            "queue": queue,
            "node": node,
            "seqs": arrays.integers([ending.seq for ending in ordered]),
            "claims": _optional([ending.claim for ending in ordered]),
            "states": arrays.integers(
                [ResultState.COMPLETED if ending.failure is None else ResultState.FAILED for ending in ordered]
            ),
            "results": arrays.EMPTY if arrays.absent(results) else arrays.texts(results),
            "bodies": arrays.EMPTY if arrays.absent(bodies) else arrays.binaries(bodies),
            "ttls": _optional(ttls),
            **_failure_columns([ending.failure for ending in ordered], node),
        },
    )
    ended = {row[0] for row in rows}
    claims = {seq: ending.claim for seq, ending in unique.items()}
    return Settled((yield from outcome_steps(claims, ended, node, project, queue)))


@operation
def ack(
    seqs: Sequence[int],
    node: str,
    *,
    claims: Sequence[int] | None = None,
    project: str = "",
    queue: str | None = None,
) -> Steps[Settled]:
    """Complete jobs without a result: ``finish`` for those who have only numbers (seed 000, ack)."""
    endings = [Ending(seq, claim) for seq, claim in _tokens(seqs, claims).items()]
    return (yield from finish(endings, node, project=project, queue=queue).steps())


@operation
def release(
    releases: Sequence[Release],
    node: str,
    *,
    project: str = "",
    queue: str | None = None,
    unstarted: bool = False,
) -> Steps[Settled]:
    """Give leased jobs back: ready at once, or after a delay (the queue's backoff if none is named).

    Where deliveries end at release and are used up the job is dead-lettered instead (option ``exhaust_at``).

    Args:
        releases: at most 1,000.
        node: the holder.
        unstarted: the handlers never ran: these deliveries do not count.

    Returns:
        An outcome per job, and where each went in ``released``.

    Raises:
        BatchTooLarge, InvalidOption: nothing was released.
    """
    _check_call(node, project, queue)
    _check_batch(releases, Release)
    unique = {item.seq: item for item in releases}
    ordered = sorted(unique.values(), key=lambda item: item.seq)
    if not ordered:
        return Settled({})
    rows = yield (
        "release",
        {
            "project": project,
            "queue": queue,
            "node": node,
            "unstarted": unstarted,
            "seqs": arrays.integers([item.seq for item in ordered]),
            "claims": _optional([item.claim for item in ordered]),
            "delays": _optional([clamp_delay(item.delay_ms) for item in ordered]),
            **_failure_columns([item.failure for item in ordered], node),
        },
    )
    released: dict[int, Released] = {}
    used_up: dict[int, list[int]] = {}
    for seq, outcome, available_at, deliveries, queue_id, key, name, *_ in rows:
        if outcome == JobState.LEASED:  # bound for another topic
            used_up.setdefault(queue_id, []).append(seq)
            released[seq] = Released(JobState.DEAD.label, None, deliveries)
            continue
        released[seq] = Released(JobState(outcome).label, available_at, deliveries)
        if outcome == JobState.DEAD:
            yield from announce(
                "dead_lettered", queue=queue_id, project=project, seq=seq, key=key, name=name, deliveries=deliveries
            )
    for queue_id, seqs in used_up.items():
        yield from _retire(queue_id, seqs, node, project)
    claims = {seq: item.claim for seq, item in unique.items()}
    return Settled((yield from outcome_steps(claims, set(released), node, project, queue)), released=released)


def _retire(queue_id: int, seqs: Sequence[int], node: str, project: str) -> Steps[None]:
    rows = yield "queue_by_id", {"queue": queue_id}
    held = yield "settle_outcomes", {"project": project, "queue": None, "seqs": arrays.integers(seqs)}
    claims = [claim for _, holder, claim, _ in held if holder == node]
    if rows and rows[0][2]:
        yield from retire_steps(queue_id, rows[0][0], rows[0][2], seqs, node, claims)


@operation
def nack(
    seqs: Sequence[int],
    node: str,
    *,
    delay_ms: int | None = 0,
    claims: Sequence[int] | None = None,
    project: str = "",
    queue: str | None = None,
) -> Steps[Settled]:
    """Give jobs back with one delay: ``release`` for those who have only numbers (seed 000, nack)."""
    releases = [Release(seq, claim, delay_ms) for seq, claim in _tokens(seqs, claims).items()]
    return (yield from release(releases, node, project=project, queue=queue).steps())


@operation
def extend(
    seqs: Sequence[int],
    node: str,
    lease_ms: int | None = None,
    *,
    claims: Sequence[int] | None = None,
    project: str = "",
    queue: str | None = None,
) -> Steps[Settled]:
    """Set the deadline of held leases to now + ``lease_ms`` (clamped; ``None``: each queue's own lease).

    Returns:
        An outcome per job, and the new deadlines.

    Raises:
        BatchTooLarge, InvalidOption: nothing was extended.
    """
    _check_call(node, project, queue)
    tokens = _tokens(seqs, claims)
    wanted = sorted(tokens)
    if not wanted:
        return Settled({})
    rows = yield (
        "extend",
        {
            "project": project,
            "queue": queue,
            "node": node,
            "lease_ms": clamp_lease(lease_ms),
            "seqs": arrays.integers(wanted),
            "claims": _optional([tokens[seq] for seq in wanted]),
        },
    )
    deadlines = {row[0]: row[1] for row in rows}
    return Settled((yield from outcome_steps(tokens, set(deadlines), node, project, queue)), deadlines=deadlines)


def _tokens(seqs: Sequence[int], claims: Sequence[int] | None) -> dict[int, int | None]:
    """Each seq once, in the order asked, with its fence if there is one."""
    wanted = check_seqs(seqs)
    if claims is None:
        return dict.fromkeys(wanted)
    if len(check_list(claims, "the claims")) != len(seqs):
        raise InvalidOption(f"there must be one token per seq in claims; there are {len(claims)} for {len(seqs)}.")
    return dict(zip(seqs, map(check_claim, claims), strict=True))


def outcome_steps(
    claims: dict[int, int | None], settled: set[int], node: str, project: str, queue: str | None
) -> Steps[dict[int, Outcome]]:
    """Say of every job what became of it; only when some were refused is the database asked why."""
    if len(settled) == len(claims):
        return dict.fromkeys(claims, Outcome.OK)
    refused = [seq for seq in claims if seq not in settled]
    rows: Rows = yield "settle_outcomes", {"project": project, "queue": queue, "seqs": arrays.integers(refused)}
    there = {row[0]: row[1:] for row in rows}
    outcomes = {}
    for seq, token in claims.items():
        if seq in settled:
            outcomes[seq] = Outcome.OK
        elif seq not in there:
            outcomes[seq] = Outcome.NOT_FOUND
        else:
            holder, claim, late = there[seq]
            if token is not None and holder is not None and claim != token:
                outcomes[seq] = Outcome.STALE_TOKEN
            elif holder != node:
                outcomes[seq] = Outcome.NOT_HELD
            elif late:
                outcomes[seq] = Outcome.EXPIRED
            else:
                outcomes[seq] = Outcome.NOT_HELD
    return outcomes
