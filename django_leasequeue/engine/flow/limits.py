"""Limits by key: how many jobs of a key may run at once, and how many may start in a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...enums import TurnKind
from ...exceptions import InvalidOption
from .. import arrays, codec
from ..limits import check_integer, check_list, check_place, check_text
from ..operation import BEGIN, Steps, operation

#: The time at which a job stands in Delayed that a limit or a workflow holds. Nothing is due then.
HELD = datetime(9000, 1, 1, tzinfo=UTC)

#: Milliseconds that an ended workflow is kept.
KEEP_MS = 86_400_000

#: The word for its state.
WAITING = "waiting"

#: Bytes of the name of a limit, and of a key.
MAX_NAME_BYTES, MAX_KEY_BYTES = 255, 512
MAX_CONCURRENCY = 10_000
MAX_RATE = 1_000_000
#: Milliseconds that a rate may be counted over.
MIN_PER_MS, MAX_PER_MS = 100, 86_400_000


@dataclass(frozen=True, slots=True)
class LimitValues:
    """What a limit allows each of its keys.

    ``concurrency``: jobs ready or running at once. ``rate``: jobs that start in ``per_ms``; ``burst``: how many more
    may start at once. ``fair``: each job that is admitted goes to the back of its queue, so that keys take turns, with
    ``concurrency`` jobs each. ``None`` is no limit, and neither of them none at all.
    """

    name: str
    concurrency: int | None = None
    rate: int | None = None
    per_ms: int | None = None
    burst: int = 0
    fair: bool = False

    @classmethod
    def of(cls, row: Any) -> LimitValues:
        """Return the values of a limit, from a row with columns of these names."""
        return cls(row.name, row.concurrency, row.rate, row.per_ms, row.burst, row.fair)

    def __post_init__(self) -> None:
        check_text(self.name, "the name of a limit", MAX_NAME_BYTES)
        if self.concurrency is not None:
            check_integer(self.concurrency, "concurrency", 1, MAX_CONCURRENCY)
        if (self.rate is None) is not (self.per_ms is None):
            raise InvalidOption("a rate is so many starts in a time: give both rate= and per=, or neither.")
        if self.rate is not None:
            check_integer(self.rate, "rate", 1, MAX_RATE)
            check_integer(self.per_ms, "per, in milliseconds,", MIN_PER_MS, MAX_PER_MS)
        check_integer(self.burst, "burst", 0, MAX_RATE)
        if self.fair and self.concurrency is None:
            raise InvalidOption(
                "a fair limit needs concurrency=: the jobs of a key that are ready or run in each round."
            )


def limit_steps(
    queue: str,
    seqs: Sequence[int],
    keys: Sequence[str],
    limits: Sequence[LimitValues],
    project: str,
    workflow: int | None = None,
) -> Steps[None]:
    """Steps that bring jobs that their transaction added (``flow=True``, ``run_at=HELD`` or later) under limits."""
    names = {values.name: values for values in limits}
    detail = {
        "limits": [[v.name, v.concurrency, v.rate, v.per_ms, v.burst, v.fair] for v in names.values()],
        "names": [values.name for values in limits],
        "keys": list(keys),
        "workflow": workflow,
    }
    yield (
        "turn_add",
        {
            "project": project,
            "queue": queue,
            "kind": int(TurnKind.JOIN),
            "seqs": arrays.integers(seqs),
            "detail": codec.dumps(detail),
        },
    )


def check_key(key: Any) -> str:
    """Return the key of a limit."""
    return check_text(key, "the key of a limit", MAX_KEY_BYTES)


def values_parameters(limits: Sequence[LimitValues]) -> dict[str, str]:
    """Return the arrays that ``limit_set.sql`` takes."""
    return {
        "names": arrays.texts([one.name for one in limits]),
        "concurrencies": arrays.integers([one.concurrency for one in limits]),
        "rates": arrays.integers([one.rate for one in limits]),
        "pers": arrays.integers([one.per_ms for one in limits]),
        "bursts": arrays.integers([one.burst for one in limits]),
        "fairs": arrays.flags([one.fair for one in limits]),
    }


@operation
def set_limits(limits: Sequence[LimitValues], *, project: str = "", pin: bool = True) -> Steps[int]:
    """Change limits, also for the jobs that wait already: an operator's values, which the code's do not replace.

    Args:
        limits: the new values.
        project: the tenant.
        pin: ``False`` gives them back to the code: with these values until it says others.

    Returns:
        How many limits have changed.
    """
    check_place(project)
    check_list(limits, "the limits")
    yield BEGIN, {}
    changed = yield "limit_set", {"project": project, **values_parameters(limits), "pin": pin, "unpin": not pin}
    if changed:
        yield "limit_waiting", {"limits": arrays.integers([row[0] for row in changed])}
    return len(changed)
