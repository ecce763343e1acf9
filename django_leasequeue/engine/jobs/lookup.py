"""What is known of jobs by key or number: live, or remembered as a result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...enums import JobState, ResultState
from ...exceptions import BatchTooLarge
from .. import arrays, codec
from ..large import reading
from ..limits import MAX_BATCH, MAX_KEY_BYTES, check_list, check_place, check_seqs, check_text
from ..operation import Steps, operation


class Found(NamedTuple):
    """What is known of a key: the number and the state of its job or result.

    ``state`` is ``ready``, ``delayed``, ``leased``, ``dead``, ``record``, ``completed``, ``failed`` or ``cancelled``.
    """

    key: str
    seq: int
    state: str


class StoredResult(NamedTuple):
    """The remembered end of a job. JSON columns stay text until somebody asks."""

    seq: int
    queue_id: int
    queue: str
    state_number: int
    key: str | None
    name: str | None
    tag: str | None
    node: str | None
    claim: int | None
    deliveries: int
    created_at: datetime
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime
    expires_at: datetime
    result_json: str | None
    result_body: bytes | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    progress_json: str | None
    errors_json: str | None
    error_type: str | None
    error: str | None
    fingerprint: str | None

    @property
    def state(self) -> str:
        """``completed``, ``failed`` or ``cancelled``."""
        return str(ResultState(self.state_number).label)

    @property
    def result(self) -> Any:
        """What the handler returned."""
        return None if self.result_json is None else codec.loads(self.result_json)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts, oldest first, at most 20."""
        return [] if self.errors_json is None else codec.loads(self.errors_json)


@operation
def find(keys: Sequence[str], *, queue: str | None = None, project: str = "") -> Steps[dict[str, Found]]:
    """Return what is known of clients' job ids; unknown ones are left out. A live job wins over a remembered result.

    Args:
        keys: at most 1,000.
        queue: only this queue; ``None`` for any of the project.
        project: the tenant.
    """
    _check_scope(project, queue)
    rows = yield "find_keys", {"project": project, "queue": queue, "keys": arrays.texts(_keys(keys))}
    found: dict[str, Found] = {}
    for key, seq, number in rows:
        state = JobState(number).label if number < 10 else ResultState(number - 10).label
        found.setdefault(key, Found(key, seq, str(state)))
    return found


@operation
def get_results(
    *, seqs: Sequence[int] = (), keys: Sequence[str] = (), queue: str | None = None, project: str = ""
) -> Steps[list[StoredResult]]:
    """Return remembered results by number or by key, in order of number; what is not remembered (any more) is left out.

    Args:
        seqs: at most 1,000 numbers.
        keys: at most 1,000 keys.
        queue: only of this queue; ``None`` for any of the project.
        project: the tenant.
    """
    _check_scope(project, queue)
    rows = yield (
        "results",
        {
            "project": project,
            "queue": queue,
            "seqs": arrays.integers(check_seqs(seqs)),
            "keys": arrays.texts(_keys(keys)),
        },
    )
    # A row that both a number and a key name comes twice.
    found = list({row[0]: StoredResult._make(row) for row in rows}.values())
    return (yield from reading.steps((yield from reading.steps(found)), reading.RESULT))


def _check_scope(project: str, queue: str | None) -> None:
    check_place(project, *([] if queue is None else [queue]))


def _keys(keys: Sequence[str]) -> list[str]:
    if len(check_list(keys, "the keys")) > MAX_BATCH:
        raise BatchTooLarge(f"one call asks for at most {MAX_BATCH} keys; there are {len(keys)}. Split them.")
    for key in keys:
        check_text(key, "a key", MAX_KEY_BYTES)
    return list(dict.fromkeys(keys))
