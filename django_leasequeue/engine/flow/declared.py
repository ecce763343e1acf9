"""Limits by key: where the key of a job comes from, how many jobs of a key run at once or start in a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from string import Formatter
from typing import Any, NamedTuple

from ...enums import JobState, TurnKind
from ...exceptions import InvalidOption
from ...words import HELD
from .. import arrays, codec
from ..limits import check_integer, check_list, check_place, check_text, seconds_of
from ..operation import BEGIN, Statements, operation
from ..rows import Enqueued, EnqueueStatus, NewJob

#: Milliseconds that an ended workflow is kept.
KEEP_MS = 86_400_000

#: The word for its state.
WAITING = "waiting"

MAX_NAME_BYTES, MAX_KEY_BYTES = 255, 512
MAX_CONCURRENCY = 10_000
MAX_RATE = 1_000_000
#: Milliseconds that a rate may be counted over.
MIN_PER_MS, MAX_PER_MS = 100, 86_400_000


@dataclass(frozen=True, slots=True)
class LimitValues:
    """Values of a limit, which hold for each of its keys; ``None`` is no limit."""

    name: str
    #: Jobs ready or running at once.
    concurrency: int | None = None
    #: Jobs that start in ``per_ms``, and how many more may start at once.
    rate: int | None = None
    per_ms: int | None = None
    burst: int = 0
    #: Each job that is admitted goes to the back of its queue: keys take turns, with ``concurrency`` jobs each.
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
            raise InvalidOption("a rate is so many starts in a time: give both rate and per, or neither.")
        if self.rate is not None:
            check_integer(self.rate, "rate", 1, MAX_RATE)
            check_integer(self.per_ms, "per, in milliseconds,", MIN_PER_MS, MAX_PER_MS)
        check_integer(self.burst, "burst", 0, MAX_RATE)
        if self.fair and self.concurrency is None:
            raise InvalidOption(
                "a fair limit needs concurrency: the jobs of a key that are ready or run in each round."
            )


def limit_steps(
    queue: str,
    seqs: Sequence[int],
    keys: Sequence[str],
    limits: Sequence[LimitValues],
    project: str,
    workflow: int | None = None,
) -> Statements[None]:
    """Bring jobs that their transaction added (``flow=True``, ``run_at=HELD`` or later) under limits."""
    names = {values.name: values for values in limits}
    detail = {
        "limits": [[v.name, v.concurrency, v.rate, v.per_ms, v.burst, v.fair] for v in names.values()],
        "names": [values.name for values in limits],
        "keys": list(keys),
        "workflow": workflow,
    }
    turn = {"kind": int(TurnKind.JOIN), "key": None, "seqs": arrays.integers(seqs), "detail": codec.dumps(detail)}
    yield "turn_add", {"project": project, "queue": queue, **turn}


def check_key(key: Any) -> str:
    """Return the key of a limit."""
    return check_text(key, "the key of a limit", MAX_KEY_BYTES)


@operation
def set_limits(limits: Sequence[LimitValues], *, project: str = "") -> Statements[int]:
    """Set an operator's values, which the code's do not replace, also for waiting jobs; return how many changed."""
    check_place(project)
    check_list(limits, "the limits")
    yield BEGIN, {}
    return (yield from write_limits(limits, project, pin=True))


def write_limits(limits: Sequence[LimitValues], project: str, *, pin: bool) -> Statements[int]:
    """Write limits and have the jobs that wait for changed ones looked at again; return how many have changed."""
    values = {
        "names": arrays.texts([one.name for one in limits]),
        "concurrencies": arrays.integers([one.concurrency for one in limits]),
        "rates": arrays.integers([one.rate for one in limits]),
        "pers": arrays.integers([one.per_ms for one in limits]),
        "bursts": arrays.integers([one.burst for one in limits]),
        "fairs": arrays.flags([one.fair for one in limits]),
    }
    changed = yield "limit_set", {"project": project, **values, "pin": pin}
    yield from _look_again(changed)
    return len(changed)


class GivenBack(NamedTuple):
    """A limit that the code has again. ``named``: these are its values; else they stay until it names the limit."""

    id: int
    name: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    burst: int
    fair: bool
    named: bool


@operation
def reset_limit(name: str, *, project: str = "") -> Statements[GivenBack | None]:
    """Give a limit back to the code, also for jobs that wait already; ``None``: no operator had set it."""
    check_place(project)
    check_text(name, "the name of a limit", MAX_NAME_BYTES)
    yield BEGIN, {}
    rows = yield "limit_reset", {"project": project, "name": name}
    yield from _look_again(rows)
    return GivenBack._make(rows[0]) if rows else None


def _look_again(changed: Sequence[Sequence[Any]]) -> Statements[None]:
    if changed:
        yield "limit_waiting", {"limits": arrays.integers([row[0] for row in changed])}


_FORMATTER = Formatter()


class _Filler(Formatter):
    """Fills a template; separators in values are escaped, so two keys never collide."""

    def __init__(self, template: str) -> None:
        parts = list(_FORMATTER.parse(template))
        several = sum(name is not None for _, name, _, _ in parts) > 1
        # The text in front of the first field is told from values by its place.
        between = "".join(literal for literal, *_ in parts[1:]) if several else ""
        self._escapes = {ord(char): f"%{ord(char):02X}" for char in between if not char.isalnum()}

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = super().format_field(value, format_spec)
        return text.translate({**self._escapes, ord("%"): "%25"}) if self._escapes else text


class Limited(NamedTuple):
    """The limit of one job: its key, and the allowance per key."""

    key: str
    values: LimitValues


@dataclass(init=False, repr=False, unsafe_hash=True, slots=True)
class Limit:
    """A limit counted over all workers: ``Limit("customer:{customer_id}", concurrency=1)``.

    Each key has its own slots and its own rate. Tasks and queues that name the same limit share it; give them the same
    values.

    Args:
        template: the key of a job; ``{name}`` stands for the task's argument of that name, or for that field of a
            queue's payload. With ``key``: the limit's name.
        concurrency: how many jobs of a key run at once, 1 to 10,000. With 1 they run in the order of their enqueueing.
        rate: how many jobs of a key start in ``per``, 1 to 1,000,000.
        per: seconds or a timedelta, a tenth of a second to a day.
        burst: how many more may start at once after a pause.
        while_suspended: whether a job keeps its slot while it sleeps or waits for an event (``current().sleep``); it
            goes on then without waiting, and pays no second start of the rate.
        fair: whether keys take turns, each with ``concurrency`` jobs: one with many jobs does not keep others waiting.
        key: a function that returns the key, of the arguments of a task's call or of a queue's payload; its ``None``:
            this job is not limited.
        name: the limit's name, at most 255 bytes; the template by default.

    Raises:
        InvalidOption: a value is not allowed.
    """

    template: str
    key: Callable[..., str | None] | None
    values: LimitValues
    while_suspended: bool

    def __init__(
        self,
        template: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: float | timedelta | None = None,
        burst: int = 0,
        fair: bool = False,
        while_suspended: bool = False,
        key: Callable[..., str | None] | None = None,
        name: str | None = None,
    ) -> None:
        if key is not None and not callable(key):
            raise InvalidOption(f"key must be a function that returns the key; it is {key!r}.")
        self.template = check_text(template, "the template of a limit", MAX_KEY_BYTES)
        self.key = key
        name = template if name is None else name
        per_ms = None if per is None else round(seconds_of(per, "per") * 1000)
        self.while_suspended = while_suspended
        self.values = LimitValues(name, concurrency, rate, per_ms, burst, fair)
        if concurrency is None and rate is None:
            raise InvalidOption(f"the limit {name!r} limits nothing: give it concurrency=, or rate= and per=.")

    @property
    def name(self) -> str:
        return self.values.name

    def __repr__(self) -> str:
        given = {name: getattr(self.values, name) for name in ("concurrency", "rate", "per_ms", "burst", "fair")}
        said = "".join(f", {name}={value}" for name, value in given.items() if value)
        return f"Limit({self.template!r}{said}{', while_suspended=True' if self.while_suspended else ''})"

    def of_payload(self, payload: Any) -> Limited | None:
        """Return the limit of a job with this payload, if it is under it.

        Raises:
            InvalidOption: the key cannot be made of the payload, or is not allowed.
        """
        if self.while_suspended:
            raise InvalidOption(
                f"the limit {self.template!r} has while_suspended=True, which is for the limits of tasks: a consumer's"
                " function sets control.keeps_slot."
            )
        if self.key is not None:
            key: Any = self.key(payload)
        elif not isinstance(payload, Mapping) and fields_of(self.template, "the template of a limit"):
            raise InvalidOption(
                f"the limit {self.template!r} names fields of the payload, which is a {type(payload).__name__} and has"
                " none. Give it key=, a function of the payload."
            )
        else:
            fields = payload if isinstance(payload, Mapping) else {}
            key = filled(self.template, fields, "the key of a limit cannot be made of this payload")
        return None if key is None else Limited(check_key(key), self.values)


def fields_of(template: str, what: str) -> list[str]:
    """Return the field names of a template."""
    try:
        return [name for _, name, _, _ in _FORMATTER.parse(template) if name is not None]
    except ValueError as error:
        raise InvalidOption(f"{what} {template!r} is no template: {error}. Write {{{{ and }}}} for braces.") from error


def filled(template: str, values: Mapping[str, Any], refusal: str) -> str:
    """Return a template with these values."""
    try:
        return _Filler(template).vformat(template, (), values)
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise InvalidOption(f"{refusal}: {template!r}: {error!r}.") from error


def with_key(job: NewJob) -> NewJob:
    """Return a job whose limit has a key; a missing key is made from the payload."""
    if job.limit is None or isinstance(job.limit, Limited):
        return job
    if not isinstance(job.limit, Limit):
        raise InvalidOption(
            f"limit must be a Limit, such as Limit('customer:{{id}}', concurrency=1); it is {job.limit!r}."
        )
    return job._replace(limit=job.limit.of_payload(job.data))


def split(jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], list[Limited | None]]:
    """Return the jobs as held until their limits admit them, not before their own times; and those limits."""
    held: list[NewJob] = []
    limits: list[Limited | None] = []
    for given in jobs:
        job, limit = given, with_key(given).limit
        assert not isinstance(limit, Limit)
        if limit is not None:
            limit = limit._replace(key=check_key(limit.key))
            job = job._replace(limit=None, flow=True, run_at=job.run_at or (None if job.delay_ms else HELD))
        held.append(job)
        limits.append(limit)
    return held, limits


def apply_limits(
    queue: str, answers: Sequence[Enqueued], limits: Sequence[Limited | None], project: str
) -> Statements[None]:
    """Put the jobs that were added under their limits."""
    new = [
        (answer.seq, *limit)
        for answer, limit in zip(answers, limits, strict=True)
        if limit is not None and answer.status is EnqueueStatus.QUEUED
    ]
    if new:
        if answers[0].state == JobState.RECORD.label:
            raise InvalidOption(f"{queue!r} is a log: its records are not claimed, and no limit holds them.")
        seqs, keys, values = zip(*new, strict=True)
        yield from limit_steps(queue, seqs, keys, values, project)
