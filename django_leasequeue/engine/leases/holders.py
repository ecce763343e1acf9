"""The holders of jobs: their tokens, why some were refused, and until when a lease is surely held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import arrays
from ..limits import check_node, check_place
from ..operation import Rows, Steps, operation
from ..rows import Outcome


class Scope(NamedTuple):
    """The jobs that a settle call may touch: those of a holder, of its tenant, in one queue or (``None``) any."""

    node: str
    project: str
    queue: str | None


def check_scope(node: str, project: str, queue: str | None) -> Scope:
    """Return the scope of a settle call."""
    check_place(project, *(() if queue is None else (queue,)))
    return Scope(check_node(node), project, queue)


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
    if len(settled) == len(tokens):
        return dict.fromkeys(tokens, Outcome.OK)
    refused = [seq for seq in tokens if seq not in settled]
    named = {token for seq in refused if (token := tokens[seq]) is not None}
    asked = {**scope._asdict(), "seqs": arrays.integers(refused), "tokens": arrays.integers(named)}
    rows: Rows = yield "settle_outcomes", asked
    there = {seq: (holder, valid, late) for seq, holder, valid, late in rows}
    outcomes = {}
    for seq, token in tokens.items():
        if seq in settled:
            outcomes[seq] = Outcome.OK
        elif seq not in there:
            outcomes[seq] = Outcome.NOT_FOUND
        else:
            holder, valid, late = there[seq]
            if token is not None and holder is not None and token != valid:
                outcomes[seq] = Outcome.STALE_TOKEN
            else:
                outcomes[seq] = Outcome.EXPIRED if holder == scope.node and late else Outcome.NOT_HELD
    return outcomes


class Standing(NamedTuple):
    """A lease that stands: the seconds until its deadline, and whether its workflow is being cancelled."""

    seconds: float
    cancelled: bool


@operation
def still_held(leases: Mapping[int, int]) -> Steps[dict[int, Standing]]:
    """Return those leases (token by seq) that still stand."""
    rows = yield ("work_held", {"seqs": arrays.integers(leases), "claims": arrays.integers(set(leases.values()))})
    return {seq: Standing(seconds, cancelled) for seq, token, seconds, cancelled in rows if leases[seq] == token}


@operation
def next_due(queue_id: int) -> Steps[float | None]:
    """Return the seconds until a queue has a delayed job that is due or a lease that expires, ``None`` for never."""
    ((seconds,),) = yield "work_due", {"queue": queue_id}
    return None if seconds is None else float(seconds)


#: Seconds before the end of a lease at which it counts as over: its worker has time to stop before another
#: one begins. At most so many, and of a short lease such a part. (A second is promised; the rest is for a machine that
#: is busy.)
NOTICE, PART = 1.5, 0.25


def surely_until(asked: float, lease: float) -> float:
    """Return the monotonic time until which a lease is surely held."""
    return asked + lease - min(NOTICE, PART * lease)
