"""Ending, releasing and extending leases, and why that was refused for some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState, ResultState
from ...exceptions import BatchTooLarge, InvalidOption, PayloadTooLarge
from .. import arrays, codec, limits
from ..dead.deadletter import announce_dead, retire_home_steps
from ..operation import Steps, operation
from ..payloads import link_steps, result_limit, store_results_steps
from ..rows import Ending, Failure, Outcome, Release, Released, Settled
from ..store import Reference

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


def token_steps(tokens: dict[int, int | None], scope: Scope) -> Steps[dict[int, int | None]]:
    """Steps that complete the tokens of a settle call: a job without one is held by the node's name alone."""
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


def outcome_steps(tokens: dict[int, int | None], settled: set[int], scope: Scope) -> Steps[dict[int, Outcome]]:
    """Steps that say of every job what became of it; only when some were refused is the database asked why."""
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
        else:
            outcomes[seq] = Outcome.EXPIRED if holder == scope.node and late else Outcome.NOT_HELD
    return outcomes


def _clean(text: str) -> str:
    """Text of an exception may hold anything: make it storable instead of failing to record the failure."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _check_batch(items: Sequence[Ending] | Sequence[Release], kind: type[Ending] | type[Release]) -> None:
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


def _failure_columns(failures: Sequence[Failure | None]) -> dict[str, str]:
    if arrays.absent(failures):
        return dict.fromkeys(("error_types", "errors", "tracebacks", "fingerprints"), arrays.EMPTY)
    return {
        "error_types": arrays.texts([_clean(f.type)[:MAX_TYPE] if f else None for f in failures]),
        "errors": arrays.texts([_clean(f.message)[:MAX_MESSAGE] if f else None for f in failures]),
        "tracebacks": arrays.texts([_clean(f.traceback)[-MAX_TRACEBACK:] if f else None for f in failures]),
        "fingerprints": arrays.texts([_clean(f.fingerprint)[:MAX_TYPE] if f else None for f in failures]),
    }


def _ran(ran_ms: int | None) -> int | None:
    return None if ran_ms is None else limits.check_integer(ran_ms, "ran_ms", 0, 2**31 - 1)


def _result(ending: Ending) -> str:
    """Return a result as JSON text. One that begins with a space is a reference, and only the engine writes those."""
    given = ending.result_json
    text = codec.dumps(ending.result, "the result") if given is None else given.lstrip(" ")
    limit = result_limit()
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise result_too_large(limit)
    return text


def result_too_large(limit: int) -> PayloadTooLarge:
    """Return the error of a result that has more bytes than it may."""
    return PayloadTooLarge(
        f"A result of more than {limit} bytes was refused. Keep it elsewhere and return a reference, or raise"
        " LEASEQUEUE['MAX_RESULT_BYTES']."
    )


def _ttl(result_ttl_ms: int) -> int:
    return limits.check_integer(result_ttl_ms, "result_ttl_ms", 0, limits.MAX_SPAN_MS)


def finish_steps(
    endings: Sequence[Ending], node: str, *, project: str = "", queue: str | None = None
) -> Steps[Settled]:
    """End leased jobs: completed (``failure`` is ``None``) or failed for good by the worker's word.

    Job, result, event and the notification of a waiting caller change in one statement. Endings without a token are
    held by the node's name alone. A job that is not held any more is not changed.
    """
    scope = check_scope(node, project, queue)
    _check_batch(endings, Ending)
    unique = {ending.seq: ending for ending in endings}
    if not unique:
        return Settled({})
    results: dict[int, str | None] = dict.fromkeys(unique)
    for seq, ending in unique.items():
        if ending.result is not None or ending.result_json is not None:
            results[seq] = _result(ending)
        if ending.body is not None:
            if not isinstance(ending.body, bytes):
                raise InvalidOption(f"the body of a result must be bytes; it is a {type(ending.body).__name__}.")
            if len(ending.body) > result_limit():
                raise result_too_large(result_limit())
        if ending.result_ttl_ms is not None:
            _ttl(ending.result_ttl_ms)
        if ending.ran_ms:
            _ran(ending.ran_ms)
    large: dict[int, Reference] = {}
    if conf.settings.LARGE.ABOVE is not None:
        large = yield from store_results_steps(unique, results)
    asked = {seq: ending.token for seq, ending in unique.items()}
    tokens = (yield from token_steps(asked, scope)) if None in asked.values() else asked
    open_seqs = sorted(seq for seq, token in tokens.items() if token is not None)
    ended = yield from _finish_plain([unique[seq] for seq in open_seqs], results, tokens, scope)
    if len(ended) < len(open_seqs):
        rest = [unique[seq] for seq in open_seqs if seq not in ended]
        ended |= yield from _finish_any(rest, results, tokens, scope)
    if large:
        yield from link_steps({seq: reference for seq, reference in large.items() if seq in ended})
    if len(ended) == len(asked):
        return Settled(dict.fromkeys(asked, Outcome.OK))
    return Settled((yield from outcome_steps(asked, ended, scope)))


finish = operation(finish_steps)


def _finish_plain(
    endings: Sequence[Ending], results: dict[int, str | None], tokens: dict[int, int | None], scope: Scope
) -> Steps[set[int]]:
    """Complete what has nothing unusual about it, by the leaner statements; return the seqs that were ended.

    The lowest bit of a token says whether its claim had something unusual; the next one, that only callers wait.
    """
    unfit = 1 if len(endings) == 1 else 3
    plain = [
        ending
        for ending in endings
        if ending.failure is None and ending.body is None and ending.result_ttl_ms is None
        and not (tokens[ending.seq] or 0) & unfit
    ]  # fmt: skip
    if not plain:
        return set()
    seqs = [ending.seq for ending in plain]
    if len(plain) == 1:
        (ending,) = plain
        place = {**scope._asdict(), "token": tokens[ending.seq], "seq": ending.seq}
        rows = yield "finish_one", {**place, "result": results[ending.seq], "ran": ending.ran_ms}
        return {seq for seq, *_ in rows}
    params = scope_parameters(tokens, scope, seqs)
    params["results"] = arrays.optional([results[seq] for seq in seqs], arrays.texts)
    params["rans"] = arrays.optional([ending.ran_ms for ending in plain])
    ((ended, *_), *_) = yield "finish_some", params
    return set(ended or ())


def _finish_any(
    endings: Sequence[Ending], results: dict[int, str | None], tokens: dict[int, int | None], scope: Scope
) -> Steps[set[int]]:
    seqs = [ending.seq for ending in endings]
    states = [ResultState.COMPLETED if ending.failure is None else ResultState.FAILED for ending in endings]
    params = {
        **scope_parameters(tokens, scope, seqs),
        "states": arrays.integers(states),
        "results": arrays.optional([results[seq] for seq in seqs], arrays.texts),
        "bodies": arrays.optional([ending.body for ending in endings], arrays.binaries),
        "ttls": arrays.optional([ending.result_ttl_ms for ending in endings]),
        "rans": arrays.optional([ending.ran_ms for ending in endings]),
        **_failure_columns([ending.failure for ending in endings]),
    }
    return {seq for seq, *_ in (yield "finish", params)}


@operation
def ack(
    seqs: Sequence[int], node: str, *, tokens: Sequence[int] | None = None, project: str = "", queue: str | None = None
) -> Steps[Settled]:
    """Complete jobs without a result: ``finish`` for those who have only numbers."""
    endings = [Ending(seq, token) for seq, token in _tokens(seqs, tokens).items()]
    return (yield from finish(endings, node, project=project, queue=queue))


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
) -> Steps[Settled]:
    """Give leased jobs back: ready at once, or after a delay (the queue's backoff if none is named).

    Where deliveries end at release and are used up the job is dead-lettered instead (option ``exhaust_at``).
    Deliveries do not count that are ``unstarted`` (no handler ran) or ``suspended`` (the handler sleeps or waits for an
    event, for any time; the numbers ``keeping`` keep the slots of their limits).
    """
    scope = check_scope(node, project, queue)
    _check_batch(releases, Release)
    unique = {item.seq: item for item in releases}
    if not unique:
        return Settled({})
    asked = {seq: item.token for seq, item in unique.items()}
    longest = limits.MAX_SPAN_MS if suspended else limits.MAX_DELAY_MS
    delays = {seq: limits.clamp_delay(item.delay_ms, longest) for seq, item in unique.items()}
    rans = {seq: _ran(item.ran_ms) for seq, item in unique.items()}
    ttls = {seq: None if item.dead_ttl_ms is None else _ttl(item.dead_ttl_ms) for seq, item in unique.items()}
    tokens = yield from token_steps(asked, scope)
    ordered = [item for seq, item in sorted(unique.items()) if tokens[seq] is not None]
    seqs = [item.seq for item in ordered]
    params = {
        **scope_parameters(tokens, scope, seqs),
        "unstarted": unstarted or suspended,
        "suspended": suspended,
        "keeping": arrays.integers(keeping),
        "delays": arrays.optional([delays[seq] for seq in seqs]),
        "rans": arrays.optional([rans[seq] for seq in seqs]),
        "ttls": arrays.optional([ttls[seq] for seq in seqs]),
        **_failure_columns([item.failure for item in ordered]),
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
) -> Steps[Settled]:
    """Give jobs back with one delay: ``release`` for those who have only numbers."""
    releases = [Release(seq, token, delay_ms) for seq, token in _tokens(seqs, tokens).items()]
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
) -> Steps[Settled]:
    """Set the deadline of held leases to now + ``lease_ms`` (clamped; ``None``: each queue's own lease)."""
    scope = check_scope(node, project, queue)
    asked = _tokens(seqs, tokens)
    length = limits.clamp_lease(lease_ms)
    held = yield from token_steps(asked, scope)
    wanted = sorted(seq for seq, token in held.items() if token is not None)
    rows = (yield "extend", {**scope_parameters(held, scope, wanted), "lease_ms": length}) if wanted else []
    deadlines = {seq: deadline for seq, deadline, *_ in rows}
    outcomes = yield from outcome_steps(asked, set(deadlines), scope)
    outcomes.update({seq: Outcome.CANCELLED for seq, *_, cancelled in rows if cancelled})
    return Settled(outcomes, deadlines=deadlines, seconds={seq: seconds for seq, _, _, seconds, _ in rows})


def _tokens(seqs: Sequence[int], tokens: Sequence[int] | None) -> dict[int, int | None]:
    """Return each seq once, in the order asked, with its token if there is one."""
    wanted = limits.check_seqs(seqs)
    if tokens is None:
        return dict.fromkeys(wanted)
    if len(limits.check_list(tokens, "the tokens")) != len(seqs):
        raise InvalidOption(f"there must be one token per seq in tokens; there are {len(tokens)} for {len(seqs)}.")
    return dict(zip(seqs, map(limits.check_token, tokens), strict=True))
