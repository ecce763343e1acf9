"""The filter of dead letters: one frozen object behind the admin, the command and the HTTP API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qs, urlencode

from ...exceptions import InvalidOption
from .. import arrays, clock, codec, metadata
from ..limits import MAX_KEY_BYTES, MAX_PROJECT_BYTES, MAX_QUEUE_BYTES, MAX_TAG_BYTES, check_text
from . import redaction

#: Stands in a query string for the empty project and the empty fingerprint: an empty value there means "any".
EMPTY = "-"
MAX_TESTS = 5
_MAX_QUERY = 8_000
_MAX_TEXT = 500
_SPAN = re.compile(r"(\d{1,6})\s*(s|min|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TEST = re.compile(r"(data|meta|tags)((?:\.[^.=!\s][^.=!]*)+?)\s*(!?=)\s*(.*)", re.DOTALL)
_DELIVERIES = re.compile(r"(?:(>=|<=|>|<|=)?\s*(\d{1,9})|(\d{1,9})\s*(?:\.\.|-)\s*(\d{1,9}))")


#: The texts of a filter, in the order of its query string, and their bytes.
_TEXTS: dict[str, int] = {
    "project": MAX_PROJECT_BYTES, "queue": MAX_QUEUE_BYTES, "task": _MAX_TEXT, "fingerprint": MAX_KEY_BYTES,
    "tag": MAX_TAG_BYTES, "text": _MAX_TEXT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PayloadTest:
    """One test of the payload: ``data.a.b = x``, or of a tag: ``tags.a = x``."""

    root: str
    #: Indexes of lists are numbers (``args.0``).
    path: tuple[str, ...]
    equal: bool
    value: str

    def __str__(self) -> str:
        return f"{'.'.join([self.root, *self.path])} {'=' if self.equal else '!='} {self.value}"

    @classmethod
    def parse(cls, text: str) -> PayloadTest:
        check_text(text, "a test of the payload", _MAX_TEXT)
        found = _TEST.fullmatch(text.strip())
        if found is None:
            raise InvalidOption(
                'A test of the payload is like data.kwargs.customer = 17, data.args.0 != "x" or tags.customer = 7;'
                f" it is {text[:80]!r}."
            )
        root, path, sign, value = found.groups()
        names = tuple(name.strip() for name in path[1:].split("."))
        if not all(names) or len(names) > 20:
            raise InvalidOption(f"The path of {text[:80]!r} has an empty name, or more than 20.")
        return cls(root, names, sign == "=", value.strip())

    @property
    def place(self) -> tuple[str, ...]:
        """The path in data or meta."""
        return (metadata.TAGS, *self.path) if self.root == "tags" else self.path

    @property
    def as_json(self) -> str:
        """The value parsed as JSON if PostgreSQL can compare it, else the text."""
        try:
            return codec.dumps(codec.loads(self.value))
        except ValueError:
            return codec.dumps(self.value)

    def hidden(self, queue: str | None, task: str | None) -> bool:
        """Return whether pages hide the value that it asks for, in jobs of a queue and a task."""
        if self.root == "tags":
            return False
        return redaction.hides(self.root, self.path, codec.loads(self.as_json), queue=queue or "", task=task)

    @property
    def word(self) -> str | None:
        """The value as plain text, so that ``17`` also finds ``"17"``; ``None`` where quotes say that text is meant."""
        return None if self.value[:1] in ('"', "{", "[") else self.value


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters: ``None`` (or empty) everywhere means any."""

    project: str | None = None
    queue: str | None = None
    task: str | None = None
    fingerprint: str | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    least: int | None = None
    most: int | None = None
    text: str | None = None
    payload: tuple[PayloadTest, ...] = ()
    prefixes: tuple[str, ...] = ()

    @property
    def indexed(self) -> bool:
        """Whether indexes answer it wholly, so that only matches are read."""
        return not (self.task or self.tag or self.text or self.payload) and self.least is None and self.most is None

    @property
    def empty(self) -> bool:
        return self == DeadFilter(prefixes=self.prefixes)

    def query(self, **changes: Any) -> str:
        """Return the filter as a query string, with some fields changed."""
        return urlencode(self._pairs() if not changes else replace(self, **changes)._pairs())

    def _pairs(self) -> list[tuple[str, str]]:
        texts = [(name, getattr(self, name)) for name in _TEXTS]
        pairs = [(name, value or EMPTY) for name, value in texts if value is not None]
        for name in ("since", "until"):
            at = getattr(self, name)
            if at is not None:
                pairs.append((name, at.astimezone(UTC).isoformat().replace("+00:00", "Z")))
        if self.least is not None or self.most is not None:
            pairs.append(("deliveries", self.deliveries))
        return pairs + [("payload", str(test)) for test in self.payload]

    @property
    def deliveries(self) -> str:
        """The bounds of deliveries as a filter says them: ``3``, ``>=3``, ``<=5``, ``3..5``."""
        if self.least is not None and self.most is not None:
            return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"
        if self.least is not None:
            return f">={self.least}"
        return "" if self.most is None else f"<={self.most}"

    def words(self) -> list[str]:
        return [f"{name} {value}" for name, value in self._pairs()]

    def frozen(self, at: datetime) -> DeadFilter:
        """Return the filter restricted to deaths up to ``at``."""
        return replace(self, until=at if self.until is None else min(self.until, at))

    def hidden(self, task: str | None) -> bool:
        """Return whether it asks for values that pages hide in jobs of a task."""
        return any(test.hidden(self.queue, task) for test in self.payload)

    def matching(self) -> dict[str, Any]:
        """Return the parameters of the statement ``dead_match``, all but the seqs."""
        return {
            **{name: getattr(self, name) for name in ("task", "tag", "least", "most", "text")},
            "roots": arrays.texts(["data" if test.root == "data" else "meta" for test in self.payload]),
            "paths": arrays.texts([arrays.texts(test.place) for test in self.payload]),
            "equal": arrays.flags(test.equal for test in self.payload),
            "jsons": arrays.texts([test.as_json for test in self.payload]),
            "words": arrays.texts([test.word for test in self.payload]),
        }


#: The names that a query string may use for a filter.
FIELDS = ("project", "queue", "task", "since", "until", "deliveries", "tag", "fingerprint", "text", "payload")


def from_query(query: str) -> DeadFilter:
    """Return the filter that a query string says."""
    if len(query) > _MAX_QUERY:
        raise InvalidOption(f"A filter has at most {_MAX_QUERY} characters.")
    values = parse_qs(query.removeprefix("?"), keep_blank_values=True, max_num_fields=200)
    if unknown := unknown_name(values, FIELDS):
        raise InvalidOption(unknown)
    return from_values(values)


def unknown_name(given: Iterable[str], known: Sequence[str]) -> str:
    """Return the error for the first unknown name of a query string; empty if all are known."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            return f"{name[:80]!r} is no filter here.{hint} There are: {', '.join(known)}."
    return ""


def from_values(values: Mapping[str, Iterable[str]]) -> DeadFilter:
    """Return the filter that lists of values say (as ``QueryDict.lists()`` or ``parse_qs`` give); the last counts."""
    last = {name: list(values.get(name, ()))[-1:] for name in FIELDS}
    one = {name: found[0].strip() if found else "" for name, found in last.items()}
    least, most = _deliveries(one["deliveries"])
    tests = [text for text in values.get("payload", ()) if text.strip()]
    if len(tests) > MAX_TESTS:
        raise InvalidOption(f"A filter has at most {MAX_TESTS} tests of the payload; there are {len(tests)}.")
    texts: dict[str, Any] = {name: _word(one[name], name, size) for name, size in _TEXTS.items()}
    made = DeadFilter(
        **texts,
        since=moment(one["since"], "since"),
        until=moment(one["until"], "until"),
        least=least,
        most=most,
        payload=tuple(PayloadTest.parse(text) for text in tests),
    )
    for test in made.payload:
        if test.hidden(made.queue, made.task):
            where = ".".join([test.root, *test.path])
            raise InvalidOption(f"The values of {where[:80]!r} are hidden: no filter can search for them.")
    if made.since is not None and made.until is not None and made.since > made.until:
        raise InvalidOption("'since' is later than 'until': nothing can be between them.")
    return made


def _word(text: str, what: str, size: int) -> str | None:
    if not text:
        return None
    if text == EMPTY and what in ("project", "fingerprint"):
        return ""
    return check_text(text, what, size)


def moment(text: str, what: str) -> datetime | None:
    """Return the time in a text: ISO 8601 (UTC without an offset), or how long ago (``90min``, ``2h``, ``7d``)."""
    text = text.strip()
    if not text:
        return None
    try:
        if (ago := _SPAN.fullmatch(text.lower().removesuffix(" ago"))) is not None:
            return clock.now() - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidOption(
            f"{what!r} is a time such as 2026-11-20T18:30 (UTC) or how long ago, such as 90min, 2h, 7d;"
            f" it is {text[:60]!r}."
        ) from error


def _deliveries(text: str) -> tuple[int | None, int | None]:
    if not text:
        return None, None
    found = _DELIVERIES.fullmatch(text)
    if found is None:
        raise InvalidOption(f"'deliveries' is a number, or such as >=3, <=5, 3..5; it is {text[:40]!r}.")
    sign, number, low, high = found.groups()
    if low is not None:
        return int(low), int(high)
    count = int(number)
    bounds = {">=": (count, None), ">": (count + 1, None), "<=": (None, count), "<": (None, max(count - 1, 0))}
    return bounds.get(sign, (count, count))
