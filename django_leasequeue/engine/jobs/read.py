"""Reading jobs without changing them: by number, page by page, by tags. Every read is bounded in rows and in bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ... import conf
from ...enums import JobState
from ...exceptions import BatchTooLarge, InvalidOption
from ...words import HELD
from .. import arrays, codec, limits, payloads
from ..codec import decode_cursor, encode_cursor
from ..flow.declared import WAITING
from ..metadata import check_tags, tags_json
from ..operation import Statements, operation
from ..queues.queues import require

#: Bytes of the payloads of one page; the first job of a page always fits.
MAX_PAGE_BYTES = 16_777_216
#: Jobs of one page of those with tags.
MAX_TAGGED = 1_000
_TAG = re.compile(r"\s*([^=\s]+)\s*=\s*(.*)", re.DOTALL)

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
    values = decode_cursor(cursor, kinds, low=-limits.MAX_SEQ)
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
) -> Statements[Page]:
    """List the jobs of a queue that are in one state, a page at a time.

    Order: ``ready`` as a claim takes them; ``delayed`` the next due first; ``leased`` by the end of their claims;
    ``dead`` by fingerprint and time of death; ``record`` (of a log) by number. Jobs that change their state between two
    pages may be missing or come again: the listing holds no lock.

    ``after`` is ``next`` of the page before. A page may be shorter than ``size`` (16 MiB of payload, jobs that went on)
    and still have a ``next``. ``payload``: whether data, meta and body are wanted; ``fingerprint``: one of ``dead``.
    """
    if state not in _CURSORS:
        raise InvalidOption(f"a state is one of {', '.join(_CURSORS)}; it is {state!r}.")
    limits.check_place(project, queue)
    size = limits.check_count(size, "size", conf.settings.MAX_PAGE, 1)
    place = _decode(state, after)
    params = {"project": project, "queue": queue, "size": size, **place}
    if state == "dead":
        params["fingerprint"] = (
            None if fingerprint is None else limits.check_text(fingerprint, "fingerprint", limits.MAX_KEY_BYTES, 0)
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
) -> Statements[tuple[list[JobRow], list[int]]]:
    """Read jobs in the order asked; return those that fit into one answer, and the numbers of the rest."""
    if not seqs:
        return [], []
    wanted = {"seqs": arrays.integers(seqs), "states": None if states is None else arrays.integers(states)}
    rows = yield "jobs", {"project": project, "queue": queue, **wanted, "payload": payload, "bytes": MAX_PAGE_BYTES}
    found = [(fits, JobRow._make(job)) for _, fits, *job in rows]
    return [job for fits, job in found if fits], [job.seq for fits, job in found if not fits]


@operation
def get_jobs(seqs: Sequence[int], *, project: str = "") -> Statements[list[JobRow]]:
    """Return live jobs and records by number, in the order asked, with their payloads; ended ones are left out."""
    limits.check_place(project)
    parts = [seqs[at : at + limits.MAX_BATCH] for at in range(0, len(seqs), limits.MAX_BATCH)]
    asked = [seq for part in parts for seq in limits.check_seqs(part)]
    if len(asked) > 2 * limits.MAX_BATCH:
        raise BatchTooLarge(f"one call reads at most {2 * limits.MAX_BATCH} jobs; there are {len(asked)}. Split them.")
    found: list[JobRow] = []
    while asked:
        # What is beyond the bytes of one statement comes with the next: the first job always fits.
        fitting, asked = yield from _rows(project, None, asked, True, None)
        found += yield from payloads.steps(fitting)
    return found


class TaggedJob(NamedTuple):
    """A job with its tags. ``error`` is the beginning of its last failure."""

    seq: int
    key: str | None
    queue: str
    task: str | None
    state: str
    tag: str | None
    tags: dict[str, Any]
    deliveries: int
    enqueued_at: datetime
    available_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error_type: str | None
    error: str | None


def parse_tags(texts: Iterable[str]) -> dict[str, Any]:
    """Return the tags that texts as ``customer=7`` name; values that are no integer or bool in JSON are texts."""
    tags: dict[str, Any] = {}
    for text in texts:
        found = _TAG.fullmatch(text)
        if found is None or found[1] in tags:
            raise InvalidOption(f"a tag is a name and a value, as customer=7, each name once; it is {text[:80]!r}.")
        try:
            value = codec.loads(found[2])
        except ValueError:
            value = found[2].strip()
        tags[found[1]] = value if isinstance(value, (str, int)) else found[2].strip()
    return tags


@operation
def tagged_jobs(
    tags: dict[str, Any],
    *,
    project: str = "",
    queue: str | None = None,
    prefixes: tuple[str, ...] = (),
    state: str | None = None,
    below: int | None = None,
    size: int = 50,
) -> Statements[tuple[list[TaggedJob], int | None]]:
    """Return a page of the jobs with all of these tags, the newest first, and ``below`` of the next page, if any."""
    from ...enums import JobStatus

    check_tags(tags)
    if not tags:
        raise InvalidOption("name one tag at least, as customer=7: only jobs with tags are in their index.")
    if state is not None and state not in JobStatus.values:
        raise InvalidOption(f"a state is one of {', '.join(JobStatus.values)}; it is {state[:40]!r}.")
    limits.check_text(project, "the project", limits.MAX_PROJECT_BYTES, 0)
    if queue is not None:
        limits.check_text(queue, "the queue", limits.MAX_QUEUE_BYTES)
    size = limits.check_count(size, "size", MAX_TAGGED, 1)
    scope = {"project": project, "queue": queue, "prefixes": arrays.texts(prefixes) if prefixes else None}
    page = {"state": state, "below": limits.MAX_SEQ if below is None else below, "size": size}
    rows = yield "tagged_jobs", {"tags": tags_json(tags), **scope, **page}
    jobs = [TaggedJob._make((*row[1:7], codec.loads(row[7]), *row[8:])) for row in rows if row[1] is not None]
    return jobs, rows[0][0]
