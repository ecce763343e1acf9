"""The holders of jobs: the tokens of a settle call, and why some of its jobs were refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import arrays
from ..operation import Rows, Steps
from ..rows import Outcome


def token_steps(
    tokens: dict[int, int | None], node: str, project: str, queue: str | None
) -> Steps[dict[int, int | None]]:
    """Steps that complete the tokens of a settle call: a job without one is held by the node's name alone."""
    bare = [seq for seq, token in tokens.items() if token is None]
    if not bare:
        return tokens
    rows = yield "held", {"project": project, "queue": queue, "node": node, "seqs": arrays.integers(bare)}
    return {**tokens, **dict(rows)}


def scope_parameters(
    tokens: dict[int, int | None], node: str, project: str, queue: str | None, seqs: Sequence[int]
) -> dict[str, Any]:
    """Return the parameters that every settle statement has."""
    return {
        "project": project,
        "queue": queue,
        "node": node,
        "tokens": arrays.integers({tokens[seq] for seq in seqs}),
        "seqs": arrays.integers(seqs),
        "claims": arrays.integers([tokens[seq] for seq in seqs]),
    }


def outcome_steps(
    claims: dict[int, int | None], settled: set[int], node: str, project: str, queue: str | None
) -> Steps[dict[int, Outcome]]:
    """Say of every job what became of it; only when some were refused is the database asked why."""
    if len(settled) == len(claims):
        return dict.fromkeys(claims, Outcome.OK)
    refused = [seq for seq in claims if seq not in settled]
    named = {token for seq in refused if (token := claims[seq]) is not None}
    rows: Rows = yield (
        "settle_outcomes",
        {"project": project, "queue": queue, "seqs": arrays.integers(refused), "tokens": arrays.integers(named)},
    )
    there = {seq: (holder, claim, late) for seq, holder, claim, late in rows}
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
