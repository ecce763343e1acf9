"""What running jobs say of themselves: kept on the job, over its retries, and with its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...exceptions import InvalidOption, PayloadTooLarge
from .. import arrays, codec
from ..leases.holders import check_scope, outcome_steps, scope_parameters, token_steps
from ..limits import MAX_BATCH, check_list, check_seqs, check_token
from ..operation import Steps, operation
from ..rows import Settled

#: Bytes of one job's progress.
MAX_PROGRESS_BYTES = 65_536


class Progress(NamedTuple):
    """How far one leased job is: ``value`` is any JSON."""

    seq: int
    token: int | None
    value: Any


@operation
def progress(reports: Sequence[Progress], node: str, *, project: str = "", queue: str | None = None) -> Steps[Settled]:
    """Keep what held jobs report. It stays over retries until the next report."""
    scope = check_scope(node, project, queue)
    if len(check_list(reports, "the reports")) > MAX_BATCH:
        raise InvalidOption(f"one call reports on at most {MAX_BATCH} jobs; there are {len(reports)}.")
    unique = {report.seq: report for report in reports}
    check_seqs(list(unique))
    if not unique:
        return Settled({})
    values = {seq: _dump(report.value) for seq, report in unique.items()}
    asked = {seq: check_token(report.token) for seq, report in unique.items()}
    tokens = yield from token_steps(asked, scope)
    seqs = sorted(seq for seq, token in tokens.items() if token is not None)
    kept: set[int] = set()
    if seqs:
        params = scope_parameters(tokens, scope, seqs)
        rows = yield "progress", {**params, "values": arrays.texts([values[seq] for seq in seqs])}
        kept = {seq for seq, *_ in rows}
    return Settled((yield from outcome_steps(asked, kept, scope)))


def _dump(value: Any) -> str:
    text = codec.dumps(value, "the progress")
    if len(text.encode()) > MAX_PROGRESS_BYTES:
        raise PayloadTooLarge(f"the progress of a job is at most {MAX_PROGRESS_BYTES} bytes of JSON.")
    return text
