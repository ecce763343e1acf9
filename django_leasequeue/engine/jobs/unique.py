"""Unique jobs: at most one job holds a key; a new call ignores, replaces or reschedules it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from ...enums import JobState
from ...exceptions import LeaseQueueError, QueueNotFound
from ...words import KeyVerdict
from .. import arrays
from ..leases.sweep import promote
from ..operation import BEGIN, LOOK, Statements, announce
from ..rows import Enqueued, EnqueueStatus, NewJob
from .new_jobs import check_job, is_unique, payloads
from .remove import existing, remove_steps

#: Looks at a key whose job is claimed or becomes due at the same moment.
_ROUNDS = 5
_KEY, _UNIQUE_KEY = map(itemgetter, map(NewJob._fields.index, ("key", "unique_key")))
_WAITING = (JobState.READY.label, JobState.DELAYED.label)

#: Steps that add jobs.
Add = Callable[[Sequence[NewJob]], Statements[list[Enqueued]]]


class _Ask(NamedTuple):
    """One call's request for a key: the job to add if the key is free, and the action on a waiting one."""

    key: str
    job: NewJob
    #: Place of that job in the call; the other calls for the key are answered with the same one.
    place: int
    conflict: str

    def kept(self, result_ttl_ms: int) -> _Ask:
        """Return this with a result of the job that is kept for as long as the key holds, at least."""
        usual = result_ttl_ms if self.job.result_ttl_ms is None else self.job.result_ttl_ms
        span = self.job.unique_for_ms or 0
        return self._replace(job=self.job._replace(result_ttl_ms=span)) if span > usual else self


class _Key(NamedTuple):
    """A row of ``unique_look``: the job that has a key, its state, and whether it still may hold it."""

    key: str
    seq: int
    state: int
    verdict: int


def key_of(job: NewJob) -> str:
    """Return the key of a unique job."""
    key = job.key if job.unique_key is None else job.unique_key
    assert key is not None, "it is checked"
    return key


def hold_steps(project: str, queue: str, jobs: Sequence[NewJob]) -> Statements[None]:
    """Lock the keys of a call of several batches in one order, so that two such calls do not deadlock."""
    if not any(map(_UNIQUE_KEY, jobs)) and not any(map(_KEY, jobs)):  # the quickest way to know it of many
        return
    keys = sorted({key_of(job) for job in jobs if check_job(job)})
    if keys:
        yield "unique_take", {"project": project, "queue": queue, "keys": arrays.texts(keys)}


def unique_steps(
    project: str, queue: str, jobs: Sequence[NewJob], add: Add, hold: Callable[[], Statements[None]]
) -> Statements[list[Enqueued]]:
    """Add checked jobs of which some are unique."""
    payloads(jobs)  # none is too large: refuse before anything is locked
    asks = _asks(jobs)
    found: dict[str, Enqueued] = {}
    if all(ask.conflict == "ignore" for ask in asks.values()):
        # A key that is held is the usual case of callers who do not mind: it costs them no transaction.
        rows = yield from _look(project, queue, asks)
        found = {row.key: existing(row.seq, row.state) for row in rows if row.verdict != KeyVerdict.FREE}
        if len(found) == len(asks) and all(is_unique(job) for job in jobs):
            return _answers(jobs, asks, found, {})
    yield BEGIN, {}
    open_keys = sorted(asks.keys() - found.keys())
    queue_id, result_ttl_ms, before = yield from _take(project, queue, open_keys, hold)
    if before:
        found |= yield from _decided(project, queue, queue_id, [asks[key] for key in open_keys if key in before])
    asks = {key: ask.kept(result_ttl_ms) for key, ask in asks.items()}
    new = yield from _made(queue, project, queue_id, jobs, asks, found, add)
    made = [ask for key, ask in asks.items() if key not in found and new[ask.place].status is EnqueueStatus.QUEUED]
    if made:
        note = {
            "queue": queue_id,
            "keys": arrays.texts(ask.key for ask in made),
            "seqs": arrays.integers(new[ask.place].seq for ask in made),
            "spans": arrays.integers(ask.job.unique_for_ms for ask in made),
            "starts": arrays.integers(int(ask.job.unique_until == "start") for ask in made),
        }
        yield "unique_note", note
    return _answers(jobs, asks, found, new)


def _asks(jobs: Sequence[NewJob]) -> dict[str, _Ask]:
    """Return the request for each key: its jobs of the call, folded in order."""
    asks: dict[str, _Ask] = {}
    for index, job in enumerate(jobs):
        if not is_unique(job):
            continue
        key, conflict = key_of(job), job.on_conflict or "ignore"
        first = asks.get(key)
        if first is None or conflict == "replace":
            asks[key] = _Ask(key, job, index, conflict)
        elif conflict == "reschedule":
            moved = first.job._replace(run_at=job.run_at, delay_ms=job.delay_ms)
            stronger = "replace" if first.conflict == "replace" else "reschedule"
            asks[key] = first._replace(job=moved, conflict=stronger)
    return asks


def _answers(
    jobs: Sequence[NewJob], asks: dict[str, _Ask], found: dict[str, Enqueued], new: dict[int, Enqueued]
) -> list[Enqueued]:
    answers = []
    for index, job in enumerate(jobs):
        answer = new.get(index)
        if answer is None:
            ask = asks[key_of(job)]
            answer = found.get(ask.key)
            if answer is None:  # another job of this call has made it
                answer = new[ask.place]
                if answer.status is EnqueueStatus.QUEUED:
                    answer = answer._replace(status=EnqueueStatus.DUPLICATE, created_at=None)
        answers.append(answer)
    return answers


def _look(project: str, queue: str, keys: Iterable[str], *, free: bool = False) -> Statements[list[_Key]]:
    asked = {"project": project, "queue": queue, "keys": arrays.texts(keys), "free": free}
    return [_Key._make(row) for row in (yield "unique_look", asked if free else {**asked, LOOK: True})]


def _take(
    project: str, queue: str, keys: Sequence[str], hold: Callable[[], Statements[None]]
) -> Statements[tuple[int, int, set[str]]]:
    """Lock the keys; return the queue's number, how long it keeps results, and the keys that a job has taken."""
    if not keys:
        return 0, 0, set()
    params = {"project": project, "queue": queue, "keys": arrays.texts(keys)}
    rows = yield "unique_take", params
    if not rows:
        yield from hold()
        rows = yield "unique_take", params
    if not rows:
        raise QueueNotFound(queue, project)
    (queue_id, result_ttl_ms, *_), *_ = rows
    return queue_id, result_ttl_ms, {key for _, _, key, seq in rows if seq}


def _decided(project: str, queue: str, queue_id: int, asks: Sequence[_Ask]) -> Statements[dict[str, Enqueued]]:
    """Resolve taken keys under their locks; return the answers for keys that stay taken."""
    found: dict[str, Enqueued] = {}
    left = {ask.key: ask for ask in asks}
    for _ in range(_ROUNDS):
        rows = yield from _look(project, queue, left, free=True)
        wanted = {row.seq for row in rows if row.verdict == KeyVerdict.WAITS and left[row.key].conflict != "ignore"}
        locked = yield from _lock(queue_id, wanted)
        again = {}
        for row in rows:
            ask = left[row.key]
            if row.seq in locked:
                answer = yield from _change(queue, project, queue_id, row.seq, ask)
                if answer is not None:
                    found[row.key] = answer
            elif row.seq in wanted:
                again[row.key] = ask  # it was claimed, or has become due, since that look
            elif row.verdict != KeyVerdict.FREE:
                found[row.key] = existing(row.seq, row.state)
        if not again:
            return found
        left = again
    raise LeaseQueueError("The job of a key went from place to place while the call looked; try the call again.")


def _lock(queue_id: int, seqs: set[int]) -> Statements[set[int]]:
    if not seqs:
        return set()
    rows = yield "unique_lock", {"queue": queue_id, "seqs": arrays.integers(sorted(seqs))}
    return {seq for (seq,) in rows}


def _change(queue: str, project: str, queue_id: int, seq: int, ask: _Ask) -> Statements[Enqueued | None]:
    """Take out a locked job that is to be replaced, or move it to another time; return the answer if it stays."""
    if ask.conflict == "replace":
        for gone in (yield from remove_steps(queue_id, [seq], [JobState.READY, JobState.DELAYED], reason="replaced")):
            yield from announce("cancelled", queue=queue, project=project, seq=seq, key=gone.key, name=gone.name)
        return None
    delay = ask.job.delay_ms if ask.job.run_at is None else None
    ((state, due),) = yield "unique_move", {"seq": seq, "run_at": ask.job.run_at, "delay": delay}
    if due:
        yield from promote([queue_id])
    return existing(seq, state)


def _made(
    queue: str,
    project: str,
    queue_id: int,
    jobs: Sequence[NewJob],
    asks: dict[str, _Ask],
    found: dict[str, Enqueued],
    add: Add,
) -> Statements[dict[int, Enqueued]]:
    """Add the jobs that are new; return the answers by their places in the call."""
    makers = {ask.place: ask for key, ask in asks.items() if key not in found}
    new: dict[int, Enqueued] = {}
    todo = {index: job for index, job in enumerate(jobs) if index in makers or not is_unique(job)}
    todo |= {index: ask.job for index, ask in makers.items()}
    for _ in range(_ROUNDS):
        if not todo:
            break
        new |= zip(todo, (yield from add(list(todo.values()))), strict=True)
        # A job that is not in the table of unique keys may have the same key: it waits, or holds it as its queue says.
        again = {}
        for index in todo:
            ask, answer = makers.get(index), new[index]
            if ask is None or ask.conflict == "ignore" or answer.state not in _WAITING:
                continue
            if answer.status is EnqueueStatus.DUPLICATE and answer.seq in (yield from _lock(queue_id, {answer.seq})):
                moved = yield from _change(queue, project, queue_id, answer.seq, ask)
                if moved is None:
                    again[index] = ask.job
                else:
                    new[index] = moved
        todo = again
    return new
