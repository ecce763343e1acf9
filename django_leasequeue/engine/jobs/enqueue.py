"""Adding jobs: those of a call, and those that Spark has staged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from ... import conf, signals
from ...enums import JobState
from ...exceptions import BatchTooLarge, LeaseQueueError, QueueNotFound
from ...words import KeyVerdict
from .. import arrays, metadata
from ..flow.declared import Limited, apply_limits, split
from ..limits import MAX_NODE_BYTES, check_integer, check_list, check_place, check_text
from ..operation import BEGIN, Rows, Statements, announce, operation
from ..payloads import contents_of, large_parts, link_steps, planned, put_steps, replaced
from ..queues.queues import find, make_declared
from ..rows import Enqueued, EnqueueStatus, NewJob, make_id
from ..store import Reference
from .new_jobs import COPY_FROM, MAX_BYTES, check_job, copy_steps, flags_of, parameters, payloads
from .remove import STATES, enforce_cap, existing, holder_steps
from .uniform import narrow, shared_by, uniform_steps
from .unique import unique_steps

_LIMIT = itemgetter(NewJob._fields.index("limit"))


def enqueue_steps(
    queue: str,
    jobs: Sequence[NewJob],
    *,
    project: str = "",
    origin: str | None = None,
    create: bool = True,
    fresh: bool = False,
) -> Statements[list[Enqueued]]:
    """Add jobs to a queue, or records to a log: all or none, in the caller's transaction if there is one.

    A job with a ``key`` that is taken is not added again: the answer names the existing one (option ``dedup_until``).
    A unique job follows its own words in place of that option: see ``NewJob`` and ``unique_steps``.

    ``create``: whether a missing queue is made (as declared in the settings, or with the default preset). ``fresh``:
    the keys are known to be new (random ids): many jobs may then go through COPY, and a key that is taken after all
    refuses the whole call with an ``IntegrityError``; jobs without keys need no such word.
    """
    check_place(project, queue)
    if not check_list(jobs, "what to enqueue, NewJob values,"):
        return []
    if origin is not None:
        check_text(origin, "origin", MAX_NODE_BYTES, 0)
    if len(jobs) > conf.settings.MAX_ENQUEUE:
        raise BatchTooLarge(f"One call enqueues at most {conf.settings.MAX_ENQUEUE} jobs; there are {len(jobs)}.")
    unique = sum(map(check_job, jobs))  # of all: none is left unchecked
    if metadata.begin_trace is not None and metadata.TRACE not in (jobs[0].meta or ()):
        how: dict[str, Any] = {"project": project, "origin": origin, "create": create, "fresh": fresh}
        with metadata.begin_trace(project, queue, len(jobs)) as context:
            traced = [job._replace(meta=metadata.Noted({**(job.meta or {}), metadata.TRACE: context})) for job in jobs]
            return (yield from enqueue_steps(queue, traced, **how))
    limits: list[Limited | None] = []
    if any(map(_LIMIT, jobs)):  # the quickest way to know it of many
        jobs, limits = split(jobs)
    large: dict[int, Reference] = {}
    if conf.settings.LARGE.ABOVE is not None:
        jobs, large = yield from _store(queue, jobs, project, create)
    if limits:
        yield BEGIN, {}
    add = partial(_add, queue, project=project, origin=origin, create=create, fresh=fresh)
    if unique:
        complete = yield from unique_steps(project, queue, jobs, add, partial(_hold, queue, project, create))
    else:
        complete = yield from add(jobs)
    if limits:
        yield from apply_limits(queue, complete, limits, project)
    if large:
        placed = [(complete[index], reference) for index, reference in large.items()]
        yield from link_steps({a.seq: reference for a, reference in placed if a.status is EnqueueStatus.QUEUED})
    if signals.enqueued.receivers:
        yield from _announce(queue, project, jobs, complete)
    return complete


enqueue = operation(enqueue_steps)


def _announce(queue: str, project: str, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> Statements[None]:
    for job, answer in zip(jobs, answers, strict=True):
        if answer.status is EnqueueStatus.QUEUED:
            key = job.key if job.id_end is None else make_id(answer.seq, job.id_end)
            told = {"seq": answer.seq, "key": key, "name": job.name, "status": answer.status}
            yield from announce("enqueued", queue=queue, project=project, **told)


def _store(
    queue: str, jobs: Sequence[NewJob], project: str, create: bool
) -> Statements[tuple[Sequence[NewJob], dict[int, Reference]]]:
    """Store large payloads; the rest of the operation is one transaction."""
    for job in jobs:
        if job.max_bytes is not None:
            check_integer(job.max_bytes, "max_bytes", 1, MAX_BYTES)
    contents = contents_of(jobs)
    numbered = dict(enumerate(contents))
    found = large_parts(numbered)
    large: dict[int, Reference] = {}
    if found:
        # What stays here is measured before anything is stored.
        payloads(replaced(jobs, contents, planned(numbered, found)))
        if (yield from find(project, queue)) is None:
            yield from _make_missing(queue, project, create)
        large = yield from put_steps(numbered, found)
        yield BEGIN, {}
    return replaced(jobs, contents, large), large


def _make_missing(queue: str, project: str, create: bool) -> Statements[None]:
    if not create:
        raise QueueNotFound(queue, project)
    yield from make_declared(project, queue)


def _hold(queue: str, project: str, create: bool) -> Statements[None]:
    """Make a queue that is missing; wait for a session that keeps it from writers. In a transaction of the caller's."""
    params = {"project": project, "name": queue}
    held = yield "queue_hold", params
    if not held or (yield from find(project, queue)) is None:
        yield from _make_missing(queue, project, create)
        yield "queue_hold", params


def _one_parameters(job: NewJob, project: str, queue: str, origin: str | None) -> dict[str, Any]:
    (data,), (meta,) = payloads([job])
    return {
        "project": project,
        "queue": queue,
        "key": job.key,
        "id_end": job.id_end,
        "name": job.name,
        "tag": job.tag,
        "priority": None if job.priority is None else narrow(job.priority),
        "data": data,
        "meta": meta,
        "tagged": None if job.tags is None else metadata.tags_json(job.tags),
        "body": job.body,
        "ttl": job.ttl_ms,
        "reply_to": job.reply_to,
        "result_ttl": job.result_ttl_ms,
        "max_deliveries": job.max_deliveries,
        "origin": origin if job.origin is None else job.origin,
        "flags": flags_of(job, data, meta),
    }


def _add(
    queue: str, jobs: Sequence[NewJob], *, project: str, origin: str | None, create: bool, fresh: bool
) -> Statements[list[Enqueued]]:
    """Add checked jobs: one by the leanest statement, many through COPY, else by one statement."""
    if len(jobs) == 1 and not (jobs[0].run_at or jobs[0].delay_ms):
        found = yield "enqueue_one", _one_parameters(jobs[0], project, queue, origin)
        if found:
            seq, now, _ = found[0]
            answers = [None if seq is None else Enqueued(seq, EnqueueStatus.QUEUED, STATES[JobState.READY], now)]
            if seq is None:
                yield from _taken(jobs, answers, parameters(jobs, project, queue, origin))
            return [answer for answer in answers if answer is not None]
    elif len(jobs) >= COPY_FROM and (fresh or all(job.key is None for job in jobs)):
        datas, metas = payloads(jobs)
        yield BEGIN, {}
        shared = shared_by(jobs, datas)
        if shared is not None:
            generated = jobs[0].id_end is not None
            ids = [job.id_end if generated else job.key for job in jobs]
            stored = yield from uniform_steps((project, queue), shared, datas, ids, generated=generated, origin=origin)
            if stored is not None:
                columns = repeat(EnqueueStatus.QUEUED), repeat(STATES[JobState.READY]), repeat(stored.at)
                return list(map(Enqueued._make, zip(stored.seqs, *columns, strict=False)))
        added = yield from copy_steps(queue, jobs, datas, metas, project, origin)
        if added is None:
            yield from _hold(queue, project, create)
            added = yield from copy_steps(queue, jobs, datas, metas, project, origin, held=True)
        if added is None:
            raise QueueNotFound(queue, project)
        return added
    params = parameters(jobs, project, queue, origin)
    rows, capped = yield from rows_steps(params, create)
    answers = [row.answer() for row in rows]
    if None in answers:
        yield from _taken(jobs, answers, params)
    complete = [answer for answer in answers if answer is not None]
    if capped is not None:
        yield from enforce_cap(capped, [a.seq for a in complete if a.status is EnqueueStatus.QUEUED])
    return complete


class EnqueueRow(NamedTuple):
    """A row of ``enqueue``: a new job, or nulls where its key is taken; ``capped``: the queue, if it has a cap."""

    seq: int | None
    state: int
    now: datetime
    sent: object
    capped: int | None

    def answer(self) -> Enqueued | None:
        """Return the answer to who gave the job, ``None`` where its key is taken."""
        return None if self.seq is None else Enqueued(self.seq, EnqueueStatus.QUEUED, STATES[self.state], self.now)


def rows_steps(params: dict[str, Any], create: bool) -> Statements[tuple[list[EnqueueRow], int | None]]:
    """Run the statement; they make a missing queue, or wait for a session that keeps it from writers.

    Writers of a topic with a cap take turns: return its number as well, for ``enforce_cap``.
    """
    rows: Rows = yield "enqueue", {**params, "held": False}
    if not rows:
        # There is no such queue, or a session changes its row at this moment, perhaps to delete it.
        yield BEGIN, {}
        yield from _hold(params["queue"], params["project"], create)
        rows = yield "enqueue", {**params, "held": True}
    if not rows:
        raise QueueNotFound(params["queue"], params["project"])
    found = list(map(EnqueueRow._make, rows))
    capped = found[0].capped
    if capped is not None:  # nothing was added
        yield BEGIN, {}
        yield "cap_lock", {"queue": capped}
        params["locked"] = True
        found, _ = yield from rows_steps(params, create)
    return found, capped


def _taken(jobs: Sequence[NewJob], answers: list[Enqueued | None], params: dict[str, Any]) -> Statements[None]:
    """Find the holders of taken keys, free keys that are no longer needed, and enqueue their jobs.

    Each round looks anew: the insert may have waited for a session whose job has ended since.
    """
    project, queue = params["project"], params["queue"]
    for _ in range(5):
        keys = [jobs[index].key for index, answer in enumerate(answers) if answer is None]
        found = yield from holder_steps(project, queue, arrays.texts(list(dict.fromkeys(keys))))
        there = {holder.key: holder for holder in found}
        for index, answer in enumerate(answers):
            holder = there.get(jobs[index].key or "")
            if answer is None and holder is not None and holder.verdict == KeyVerdict.HELD:
                answers[index] = existing(holder.seq, holder.state)
        missing = [index for index, answer in enumerate(answers) if answer is None]
        if not missing:
            return
        left = [jobs[index] for index in missing]
        again = parameters(left, project, queue, params["origin"], locked=params["locked"])
        rows, _ = yield from rows_steps(again, create=False)
        for index, row in zip(missing, rows, strict=True):
            answers[index] = row.answer()
        if None not in answers:
            return
    raise LeaseQueueError("A key was taken and freed again five times in a row; try the call again.")


#: Dead letters that one statement takes out.
REPLAYED = 1_000


@operation
def lock_replayed(
    parts: Sequence[str], low: int, high: int, *, results: bool, project: str = ""
) -> Statements[list[dict[str, Any]]]:
    """Lock the dead letters (or failed jobs) that a range of the stage replays, in the caller's transaction.

    Return for ``remove_replayed`` where they stand, and which of them have let go of their keys.
    """
    taken = []
    place = {"parts": "{" + ",".join(parts) + "}", "project": project, "results": results}
    for start in range(low, high, REPLAYED):
        part = {**place, "low": start, "high": min(start + REPLAYED, high)}
        found = yield "replay", part
        for seq, homeless, _ in found:
            if homeless:
                raise QueueNotFound(f"the queue that dead letter {seq} came from", project)
        taken.append({**part, "freed": arrays.integers(seq for seq, _, freed in found if freed)})
    return taken


@operation
def remove_replayed(taken: Sequence[dict[str, Any]]) -> Statements[None]:
    """Remove the jobs that ``lock_replayed`` locked, once their replays are enqueued."""
    for part in taken:
        yield "replay_done", part


#: The columns of ``stage_jobs`` that are parameters of enqueue: arrays as text.
_STAGED = (
    "numbers", "keys", "names", "tags", "priorities", "datas", "metas", "bodies", "run_at", "ttls", "reply_to",
    "result_ttls", "max_deliveries",
)  # fmt: skip


def _staged(row: tuple[Any, ...]) -> tuple[list[int], str, dict[str, Any]]:
    """Return the ids of the staged jobs of a queue, the dead letters that they came from, and their parameters."""
    queue, ids, *columns, sources = row
    return ids, sources, {"queue": queue, **dict(zip(_STAGED, columns, strict=True))}


@operation
def enqueue_staged(
    parts: Sequence[str], low: int, high: int, *, project: str = "", origin: str | None = None
) -> Statements[int]:
    """Add the jobs of a range of the stage to their queues, but for taken keys; the caller removes the rows."""
    place = {"parts": "{" + ",".join(parts) + "}", "low": low, "high": high}
    rows = yield "stage_jobs", {**place, "ids": None}
    absent = dict.fromkeys(("origins", "delays", "flows", "id_ends", "tagged"), arrays.EMPTY)
    common = {"project": project, "origin": origin, **absent}
    added = 0
    for row in rows:
        ids, sources, staged = _staged(row)
        params = {**common, **staged, "locked": False}
        answers, capped = yield from rows_steps(params, create=False)
        seqs = yield from _with_freed(ids, sources, answers, place, params)
        if capped is not None:
            yield from enforce_cap(capped, seqs)
        added += len(seqs)
    return added


def _with_freed(
    ids: list[int], sources: str, answers: Sequence[EnqueueRow], place: dict[str, Any], params: dict[str, Any]
) -> Statements[list[int]]:
    """Record the origins of jobs; free keys that are no longer needed, and enqueue their jobs."""
    seqs: list[int] = []
    for _ in range(5):
        if sources.strip("{NUL,}"):
            yield "stage_sources", {"seqs": arrays.integers(answer.seq for answer in answers), "sources": sources}
        seqs += [answer.seq for answer in answers if answer.seq is not None]
        taken = [number for number, answer in zip(ids, answers, strict=True) if answer.seq is None]
        if not taken:
            return seqs
        (row,) = yield "stage_jobs", {**place, "ids": arrays.integers(taken)}
        ids, sources, staged = _staged(row)
        params |= staged
        found = yield from holder_steps(params["project"], params["queue"], params["keys"])
        if found and all(holder.verdict == KeyVerdict.HELD for holder in found):
            return seqs
        answers, _ = yield from rows_steps(params, create=False)
    raise LeaseQueueError("A key was taken and freed again five times in a row; write again.")
