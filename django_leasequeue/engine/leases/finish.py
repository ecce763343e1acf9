"""Ending leased jobs: completed with a result, or failed for good."""

from __future__ import annotations

from collections.abc import Sequence

from ... import conf
from ...enums import ResultState
from ...exceptions import InvalidOption, PayloadTooLarge
from ...words import TokenBit
from .. import arrays, codec
from ..operation import Statements, operation
from ..payloads import link_steps, result_limit, store_results_steps
from ..rows import Ending, Outcome, Settled
from ..store import Reference
from .settle import (
    Scope,
    check_batch,
    check_ran,
    check_scope,
    check_ttl,
    failure_columns,
    outcome_steps,
    scope_parameters,
    token_steps,
    tokens_of,
)  # fmt: skip


@operation
def finish(endings: Sequence[Ending], node: str, *, project: str = "", queue: str | None = None) -> Statements[Settled]:
    """End leased jobs: completed (``failure`` is ``None``) or failed for good by the worker's word.

    Job, result, event and the notification of a waiting caller change in one statement. Endings without a token are
    held by the node's name alone. A job that is not held any more is not changed.
    """
    return (yield from finish_steps(endings, check_scope(node, project, queue)))


def finish_steps(endings: Sequence[Ending], scope: Scope) -> Statements[Settled]:
    """End leased jobs of a checked scope; see ``finish``."""
    check_batch(endings, Ending)
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
            check_ttl(ending.result_ttl_ms)
        if (ran := ending.ran_ms) and (type(ran) is not int or not 0 < ran < 2**31):
            check_ran(ran)
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


def _finish_plain(
    endings: Sequence[Ending], results: dict[int, str | None], tokens: dict[int, int | None], scope: Scope
) -> Statements[set[int]]:
    """Complete plain jobs by the leaner statements; return the seqs that ended."""
    needs_general = TokenBit.GENERAL.value
    if len(endings) > 1:
        needs_general |= TokenBit.CALLERS.value
    plain = [
        ending
        for ending in endings
        if ending.failure is None and ending.body is None and ending.result_ttl_ms is None
        and not (tokens[ending.seq] or 0) & needs_general
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
) -> Statements[set[int]]:
    seqs = [ending.seq for ending in endings]
    states = [ResultState.COMPLETED if ending.failure is None else ResultState.FAILED for ending in endings]
    params = {
        **scope_parameters(tokens, scope, seqs),
        "states": arrays.integers(states),
        "results": arrays.optional([results[seq] for seq in seqs], arrays.texts),
        "bodies": arrays.optional([ending.body for ending in endings], arrays.binaries),
        "ttls": arrays.optional([ending.result_ttl_ms for ending in endings]),
        "rans": arrays.optional([ending.ran_ms for ending in endings]),
        **failure_columns([ending.failure for ending in endings]),
    }
    return {seq for seq, *_ in (yield "finish", params)}


@operation
def ack(
    seqs: Sequence[int], node: str, *, tokens: Sequence[int] | None = None, project: str = "", queue: str | None = None
) -> Statements[Settled]:
    """Complete jobs without a result: ``finish`` for those who have only numbers."""
    endings = [Ending(seq, token) for seq, token in tokens_of(seqs, tokens).items()]
    return (yield from finish(endings, node, project=project, queue=queue))


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
