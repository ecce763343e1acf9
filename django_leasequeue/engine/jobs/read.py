"""Reading jobs without changing them: by number, by key, page by page. Every read is bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from ...exceptions import BatchTooLarge, InvalidOption
from .. import arrays, codec, payloads
from ..codec import decode_cursor, encode_cursor
from ..flow.declared import HELD, WAITING
from ..limits import MAX_BATCH, MAX_KEY_BYTES, MAX_SEQ, check_count, check_place, check_seqs, check_text
from ..operation import Steps, operation
from ..queues.queues import require

#: Bytes of the payloads of one page; the first job of a page always fits.
MAX_PAGE_BYTES = 16_777_216

#: The parameters that make the cursor of a state's listing, in the order in which its statement returns them.
_CURSORS: dict[str, tuple[str, ...]] = {
    "ready": ("rank", "position"),
    "delayed": ("at", "seq"),
    "leased": ("deadline", "claim", "part", "seq"),
    "dead": ("after_fingerprint", "at", "seq"),
    "record": ("seq",),
}


class JobRow(NamedTuple):
    """A live job or record, and where it stands. JSON columns stay text until they are read."""

    seq: int
    queue_id: int
    queue: str
    state_number: int
    rank: int
    position: int
    created_at: datetime
    available_at: datetime | None
    expires_at: datetime | None
    key: str | None
    name: str | None
    tag: str | None
    origin: str | None
    reply_to: str | None
    deliveries: int
    max_deliveries: int | None
    node: str | None
    claim: int | None
    deadline: datetime | None
    first_claimed_at: datetime | None
    claimed_at: datetime | None
    dead_at: datetime | None
    source_queue: int | None
    source_seq: int | None
    error_type: str | None
    error: str | None
    fingerprint: str | None
    data_json: str | None
    meta_json: str | None
    body: bytes | None
    progress_json: str | None
    errors_json: str | None

    @property
    def state(self) -> str:
        """``ready``, ``delayed``, ``leased``, ``dead`` or ``record``; ``waiting``: a limit or workflow holds it."""
        held = self.available_at is not None and self.available_at >= HELD
        return WAITING if held else str(JobState(self.state_number).label)

    @property
    def data(self) -> Any:
        """The payload; ``None`` as well where the page was read without payloads."""
        return None if self.data_json is None else codec.loads(self.data_json)

    @property
    def meta(self) -> Any:
        """The producer's metadata."""
        return None if self.meta_json is None else codec.loads(self.meta_json)

    @property
    def progress(self) -> Any:
        """What an attempt reported last."""
        return None if self.progress_json is None else codec.loads(self.progress_json)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failed attempts so far, oldest first, at most 20."""
        return [] if self.errors_json is None else codec.loads(self.errors_json)


class Page(NamedTuple):
    """One page of jobs; ``next`` is the cursor of the page behind it, ``None`` at the end."""

    jobs: list[JobRow]
    next: str | None


def _decode(state: str, cursor: str | None) -> dict[str, Any]:
    """Return the cursor's parameters for the listing of ``state``."""
    names = _CURSORS[state]
    kinds = [str, *(str if name == "after_fingerprint" else int for name in names)]
    values = decode_cursor(cursor, kinds, low=-MAX_SEQ)
    if values is None:
        return dict.fromkeys(names)
    listed, *place = values
    if listed != state:
        raise InvalidOption(f"the cursor {cursor!r} is one of a listing of other jobs than {state} ones.")
    return dict(zip(names, place, strict=True))


@operation
def list_jobs(
    queue: str,
    state: str = "ready",
    *,
    project: str = "",
    after: str | None = None,
    size: int = 100,
    payload: bool = True,
    fingerprint: str | None = None,
) -> Steps[Page]:
    """List the jobs of a queue that are in one state, a page at a time.

    Order: ``ready`` as a claim takes them; ``delayed`` the next due first; ``leased`` by the end of their claims;
    ``dead`` by fingerprint and time of death; ``record`` (of a log) by number. Jobs that change their state between two
    pages may be missing or come again: the listing holds no lock.

    ``after`` is ``next`` of the page before. A page may be shorter than ``size`` (16 MiB of payload, jobs that went on)
    and still have a ``next``. ``payload``: whether data, meta and body are wanted; ``fingerprint``: one of ``dead``.
    """
    if state not in _CURSORS:
        raise InvalidOption(f"a state is one of {', '.join(_CURSORS)}; it is {state!r}.")
    check_place(project, queue)
    size = check_count(size, "size", conf.settings.MAX_PAGE, 1)
    place = _decode(state, after)
    params = {"project": project, "queue": queue, "size": size, **place}
    if state == "dead":
        params["fingerprint"] = (
            None if fingerprint is None else check_text(fingerprint, "fingerprint", MAX_KEY_BYTES, 0)
        )
    listed = yield f"list_{state}", params
    seqs, places = [seq for seq, *_ in listed], [place for _, *place in listed]
    if not seqs:
        yield from require(project, queue, leases=False)
    fitting, rest = yield from _rows(project, queue, seqs, payload, [JobState[state.upper()]])
    jobs = yield from payloads.page_steps(fitting, MAX_PAGE_BYTES)
    cut = [job.seq for job in fitting[len(jobs) :]] + rest
    if cut:
        return Page(jobs, encode_cursor(state, *places[seqs.index(cut[0]) - 1]))
    return Page(jobs, encode_cursor(state, *places[-1]) if len(places) == size else None)


def _rows(
    project: str, queue: str | None, seqs: Sequence[int], payload: bool, states: Sequence[int] | None
) -> Steps[tuple[list[JobRow], list[int]]]:
    """Read jobs in the order asked; return those that fit into one answer, and the numbers of the rest."""
    if not seqs:
        return [], []
    rows = yield (
        "jobs",
        {
            "project": project,
            "queue": queue,
            "seqs": arrays.integers(seqs),
            "states": None if states is None else arrays.integers(states),
            "payload": payload,
            "bytes": MAX_PAGE_BYTES,
        },
    )
    found = [(fits, JobRow._make(job)) for _, fits, *job in rows]
    return [job for fits, job in found if fits], [job.seq for fits, job in found if not fits]


@operation
def get_jobs(seqs: Sequence[int], *, project: str = "") -> Steps[list[JobRow]]:
    """Return live jobs and records by number, in the order asked, with their payloads; ended ones are left out."""
    check_place(project)
    asked = [seq for at in range(0, len(seqs), MAX_BATCH) for seq in check_seqs(seqs[at : at + MAX_BATCH])]
    if len(asked) > 2 * MAX_BATCH:
        raise BatchTooLarge(f"one call reads at most {2 * MAX_BATCH} jobs; there are {len(asked)}. Split them.")
    found: list[JobRow] = []
    while asked:
        # What is beyond the bytes of one statement comes with the next: the first job always fits.
        fitting, asked = yield from _rows(project, None, asked, True, None)
        found += yield from payloads.steps(fitting)
    return found
