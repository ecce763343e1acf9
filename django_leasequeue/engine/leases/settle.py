"""Releasing and extending leases, the checks and outcomes of all settling calls, and payloads from a storage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...enums import JobState
from ...exceptions import (
    BatchTooLarge,
    InvalidOption,
    LargePayloadLost,
    LargeStorageError,
    LeaseQueueError,
    PayloadAway,
)
from .. import arrays, limits, payloads
from ..dead.deadletter import announce_dead, retire_home_steps
from ..operation import Statements, operation
from ..rows import Ending, Failure, LeasedJob, Outcome, Release, Released, Settled

#: Characters of a traceback, of a message, of a type or fingerprint that are kept.
MAX_TRACEBACK, MAX_MESSAGE, MAX_TYPE = 16_384, 1_024, 256


class Scope(NamedTuple):
    """The jobs that a settle call may touch: those of a holder, of its tenant, in one queue or (``None``) any."""

    node: str
    project: str
    queue: str | None


def check_scope(node: str, project: str, queue: str | None) -> Scope:
    """Return the scope of a settle call."""
    limits.check_place(project, *(() if queue is None else (queue,)))
    return Scope(limits.check_node(node), project, queue)


def token_steps(tokens: dict[int, int | None], scope: Scope) -> Statements[dict[int, int | None]]:
    """Complete the tokens of a settle call: a job without one is held by the node's name alone."""
    bare = [seq for seq, token in tokens.items() if token is None]
    if not bare:
        return tokens
    rows = yield "held", {**scope._asdict(), "seqs": arrays.integers(bare)}
    return {**tokens, **dict(rows)}


def scope_parameters(tokens: dict[int, int | None], scope: Scope, seqs: Sequence[int]) -> dict[str, Any]:
    """Return the parameters that every settle statement has."""
    return {
        **scope._asdict(),
        "tokens": arrays.integers({tokens[seq] for seq in seqs}),
        "seqs": arrays.integers(seqs),
        "claims": arrays.integers([tokens[seq] for seq in seqs]),
    }


def outcome_steps(
    tokens: dict[int, int | None], settled: set[int], scope: Scope, held: Outcome = Outcome.NOT_HELD
) -> Statements[dict[int, Outcome]]:
    """Return the outcome of every job (``held``: of those held by now); ask the database only if some were refused."""
    outcomes = dict.fromkeys(tokens, Outcome.OK)
    if len(settled) == len(tokens):
        return outcomes
    refused = [seq for seq in tokens if seq not in settled]
    outcomes.update(dict.fromkeys(refused, Outcome.NOT_FOUND))
    named = {token for seq in refused if (token := tokens[seq]) is not None}
    asked = {**scope._asdict(), "seqs": arrays.integers(refused), "tokens": arrays.integers(named)}
    for seq, holder, valid, late in (yield "settle_outcomes", asked):
        token = tokens[seq]
        if token is not None and holder is not None and token != valid:
            outcomes[seq] = Outcome.STALE_TOKEN
        elif holder == scope.node:
            outcomes[seq] = Outcome.EXPIRED if late else held
        else:
            outcomes[seq] = Outcome.NOT_HELD
    return outcomes


def clean(text: str) -> str:
    """Text of an exception may hold anything: make it storable instead of failing to record the failure."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def check_batch(items: Sequence[Ending] | Sequence[Release], kind: type[Ending] | type[Release]) -> None:
    """Check the values of a settle call, and how many there are."""
    if len(limits.check_list(items, f"what to settle, {kind.__name__} values,")) > limits.MAX_BATCH:
        raise BatchTooLarge(f"one call settles at most {limits.MAX_BATCH} jobs; there are {len(items)}. Split them.")
    highest = limits.MAX_SEQ
    for item in items:
        if not isinstance(item, kind):
            raise InvalidOption(f"this call takes {kind.__name__} values; there is a {type(item).__name__}.")
        seq, token = item.seq, item.token
        if type(seq) is not int or not 0 <= seq <= highest:
            limits.check_seqs([seq])
        if token is not None and (type(token) is not int or not 0 <= token <= highest):
            limits.check_token(token)
        if item.failure is not None and not isinstance(item.failure, Failure):
            raise InvalidOption(f"a failure is a Failure; it is a {type(item.failure).__name__}.")


def failure_columns(failures: Sequence[Failure | None]) -> dict[str, str]:
    """Return the parameters of statements that keep failures."""
    if arrays.absent(failures):
        return dict.fromkeys(("error_types", "errors", "tracebacks", "fingerprints"), arrays.EMPTY)
    return {
        "error_types": arrays.texts([clean(f.type)[:MAX_TYPE] if f else None for f in failures]),
        "errors": arrays.texts([clean(f.message)[:MAX_MESSAGE] if f else None for f in failures]),
        "tracebacks": arrays.texts([clean(f.traceback)[-MAX_TRACEBACK:] if f else None for f in failures]),
        "fingerprints": arrays.texts([clean(f.fingerprint)[:MAX_TYPE] if f else None for f in failures]),
    }


def check_ran(ran_ms: int | None) -> int | None:
    """Return how many milliseconds a run took."""
    return None if ran_ms is None else limits.check_integer(ran_ms, "ran_ms", 0, 2**31 - 1)


def check_ttl(result_ttl_ms: int) -> int:
    """Return for how many milliseconds a result is kept."""
    return limits.check_integer(result_ttl_ms, "result_ttl_ms", 0, limits.MAX_SPAN_MS)


@operation
def release(
    releases: Sequence[Release],
    node: str,
    *,
    project: str = "",
    queue: str | None = None,
    unstarted: bool = False,
    suspended: bool = False,
    keeping: Sequence[int] = (),
) -> Statements[Settled]:
    """Give leased jobs back: ready at once, or after a delay (the queue's backoff if none is named).

    Where deliveries end at release and are used up the job is dead-lettered instead (option ``exhaust_at``).
    Deliveries do not count that are ``unstarted`` (no handler ran) or ``suspended`` (the handler sleeps or waits for an
    event, for any time; the numbers ``keeping`` keep the slots of their limits).
    """
    scope = check_scope(node, project, queue)
    check_batch(releases, Release)
    unique = {item.seq: item for item in releases}
    if not unique:
        return Settled({})
    asked = {seq: item.token for seq, item in unique.items()}
    longest = limits.MAX_SPAN_MS if suspended else limits.MAX_DELAY_MS
    delays = {seq: limits.clamp_delay(item.delay_ms, longest) for seq, item in unique.items()}
    rans = {seq: check_ran(item.ran_ms) for seq, item in unique.items()}
    ttls = {seq: None if item.dead_ttl_ms is None else check_ttl(item.dead_ttl_ms) for seq, item in unique.items()}
    tokens = yield from token_steps(asked, scope)
    ordered = [item for seq, item in sorted(unique.items()) if tokens[seq] is not None]
    seqs, suspects = [item.seq for item in ordered], arrays.integers(item.seq for item in ordered if item.suspect)
    params = {
        **scope_parameters(tokens, scope, seqs),
        "unstarted": unstarted or suspended,
        "suspended": suspended,
        "keeping": arrays.integers(keeping),
        "suspects": None if all(item.suspect is None for item in ordered) else suspects,
        "delays": arrays.optional([delays[seq] for seq in seqs]),
        "rans": arrays.optional([rans[seq] for seq in seqs]),
        "ttls": arrays.optional([ttls[seq] for seq in seqs]),
        **failure_columns([item.failure for item in ordered]),
    }
    rows = (yield "release", params) if seqs else []
    released: dict[int, Released] = {}
    used_up: dict[int, dict[int, int]] = {}
    for seq, outcome, available_at, deliveries, queue_id, key, name, token, *_ in rows:
        if outcome == JobState.LEASED:  # bound for another topic
            used_up.setdefault(queue_id, {})[seq] = token
            released[seq] = Released(JobState.DEAD.label, None, deliveries)
            continue
        released[seq] = Released(JobState(outcome).label, available_at, deliveries)
        if outcome == JobState.DEAD:
            yield from announce_dead(queue_id, project, seq, key, name, deliveries)
    for queue_id, held in used_up.items():
        yield from retire_home_steps(queue_id, list(held), node, list(held.values()))
    return Settled((yield from outcome_steps(asked, set(released), scope)), released=released)


@operation
def nack(
    seqs: Sequence[int],
    node: str,
    *,
    delay_ms: int | None = 0,
    tokens: Sequence[int] | None = None,
    project: str = "",
    queue: str | None = None,
) -> Statements[Settled]:
    """Give jobs back with one delay: ``release`` for those who have only numbers."""
    releases = [Release(seq, token, delay_ms) for seq, token in tokens_of(seqs, tokens).items()]
    return (yield from release(releases, node, project=project, queue=queue))


@operation
def extend(
    seqs: Sequence[int],
    node: str,
    lease_ms: int | None = None,
    *,
    tokens: Sequence[int] | None = None,
    project: str = "",
    queue: str | None = None,
    waits: bool = True,
) -> Statements[Settled]:
    """Set the deadline of held leases to now + ``lease_ms`` (clamped; ``None``: each queue's own lease).

    ``waits``: for a transaction that settles a job of the same claim; else that claim is left out: its jobs are OK, and
    have no new deadline.
    """
    scope = check_scope(node, project, queue)
    asked = tokens_of(seqs, tokens)
    length = limits.clamp_lease(lease_ms)
    held = yield from token_steps(asked, scope)
    wanted = sorted(seq for seq, token in held.items() if token is not None)
    place = {**scope_parameters(held, scope, wanted), "lease_ms": length, "waits": waits}
    rows = (yield "extend", place) if wanted else []
    deadlines = {seq: deadline for seq, deadline, *_ in rows}
    still_held = Outcome.NOT_HELD if waits else Outcome.OK
    outcomes = yield from outcome_steps(asked, set(deadlines), scope, still_held)
    outcomes.update({seq: Outcome.CANCELLED for seq, *_, cancelled in rows if cancelled})
    return Settled(outcomes, deadlines=deadlines, seconds={seq: seconds for seq, _, _, seconds, _ in rows})


def tokens_of(seqs: Sequence[int], tokens: Sequence[int] | None) -> dict[int, int | None]:
    """Return each seq once, in the order asked, with its token if there is one."""
    wanted = limits.check_seqs(seqs)
    if tokens is None:
        return dict.fromkeys(wanted)
    if len(limits.check_list(tokens, "the tokens")) != len(seqs):
        raise InvalidOption(f"there must be one token per seq in tokens; there are {len(tokens)} for {len(seqs)}.")
    for token in tokens:
        if type(token) is not int or not 0 <= token <= limits.MAX_SEQ:
            limits.check_token(token)
    return dict(zip(seqs, tokens, strict=True))


logger = logging.getLogger("django_leasequeue")

#: Bytes of payload in one answer; the first job always fits.
MAX_CLAIM_BYTES = 16 * 1024 * 1024

#: The type and the fingerprint of the failure of an attempt whose payload was lost.
_LOST = f"{LargePayloadLost.__module__}.{LargePayloadLost.__qualname__}"


def load_steps(jobs: Sequence[LeasedJob], node: str, project: str) -> Statements[list[LeasedJob]]:
    """Return leased jobs with the payloads that stand in a storage, 16 MiB of these at most.

    What is beyond that goes back at once, and what stands in a storage that is away after 10 s: neither counts
    as a delivery. A payload that is lost is the failure of its job's attempt.
    """
    count = payloads.fitting(jobs, MAX_CLAIM_BYTES)
    back = [Release(job.seq, job.token, 0) for job in jobs[count:]]
    failed: list[Release] = []
    loaded: list[LeasedJob] = []
    away: LeaseQueueError | None = None
    for job, found in zip(jobs, (yield from payloads.try_steps(jobs[:count])), strict=False):
        if isinstance(found, LargePayloadLost):
            failed.append(Release(job.seq, job.token, failure=Failure(_LOST, str(found), fingerprint=_LOST)))
        elif isinstance(found, LeaseQueueError):
            away = found
            back.append(Release(job.seq, job.token, PayloadAway.back_after_ms))
        else:
            loaded.append(found)
    if back:
        yield from release(back, node, project=project, unstarted=True)
    if failed:
        yield from release(failed, node, project=project)
    if away is not None and not loaded:
        raise LargeStorageError(str(away), away)
    return loaded


@operation
def load_hands(
    hands: Sequence[Sequence[LeasedJob]], nodes: Sequence[str], *, project: str = ""
) -> Statements[list[list[LeasedJob]]]:
    """Return the jobs of several claimers with the payloads that stand in a storage; see ``load_steps``."""
    loaded: list[list[LeasedJob]] = []
    for jobs, node in zip(hands, nodes, strict=True):
        try:
            loaded.append((yield from load_steps(jobs, node, project)) if payloads.any_large(jobs) else list(jobs))
        except LargeStorageError as error:
            logger.warning("Jobs went back, their payloads cannot be read: %s", error)
            loaded.append([])
    return loaded
