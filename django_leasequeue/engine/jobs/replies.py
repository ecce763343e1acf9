"""Being told of a job's end: joining the channels that it notifies, asking which jobs have ended, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from .. import arrays
from ..large.reference import is_reference
from ..limits import MAX_CHANNEL_BYTES, check_seqs, check_text
from ..operation import Steps, operation
from .results import status

#: Characters of all the channels of one job: about 80 processes that wait for the same one.
MAX_CHANNELS_LENGTH = 4_096
#: Looks at a job that goes from place to place meanwhile.
_TRIES = 5


@operation
def join(seq: int, channel: str) -> Steps[bool | None]:
    """Have the end of a live job told on ``channel`` as well, beside those that are told already."""
    params = {
        "seq": check_seqs([seq])[0],
        "channel": check_text(channel, "the channel", MAX_CHANNEL_BYTES),
        "room": MAX_CHANNELS_LENGTH,
    }
    for _ in range(_TRIES):
        rows = yield "reply_join", params
        if not rows:
            return None
        (_, told), *_ = rows
        if told is not None:
            return bool(told)
    return False


@operation
def join_key(key: str, queue: str, channel: str, *, project: str = "") -> Steps[tuple[int | None, bool]]:
    """Have the end of the last job with a key told on ``channel``: see ``join``."""
    found = yield from status(queue, keys=[key], project=project)
    if not found:
        return None, False
    told = yield from join(found[0].seq, channel)
    return found[0].seq, bool(told)


@operation
def ended(seqs: Sequence[int]) -> Steps[list[int]]:
    """Return which of these jobs (at most 1,000) do not live any more: done, failed, dead, cancelled or removed."""
    rows = yield "reply_check", {"seqs": arrays.integers(check_seqs(seqs))}
    return [seq for (seq,) in rows]


class Reply(NamedTuple):
    """The result of a completed job. JSON stays text until it is read."""

    seq: int
    created_at: datetime
    result_json: str | None
    result_body: bytes | None

    @property
    def key(self) -> None:
        """Not read: who asks by number has it."""


def result_steps(seqs: Sequence[int], inline: int) -> Steps[dict[int, Reply]]:
    """Steps that read results of completed jobs: a fifth of the cost of ``status``."""
    rows = yield "reply_results", {"seqs": arrays.integers(seqs), "inline": inline}
    return {reply.seq: reply for reply in map(Reply._make, rows) if not is_reference(reply.result_json)}
