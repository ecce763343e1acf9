"""What readers must have got: each record of a topic once and in order, each event of the lease log once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from .evidence import SECOND
from .incidents import Incidents
from .promises import REPEATED, SKIPPED, TAKEN_BACK, Broken

Pair = tuple[int, int]
#: A row of the lease log: number, transaction, kind, claim, when, deadline, jobs.
Event = tuple[int, int, int, int, int, int, list[int]]


@dataclass(slots=True)
class Reading:
    items: dict[int, int] = field(default_factory=dict)
    last: int = 0
    #: When it got something last, and how often it was sent back.
    at: int = 0
    resets: int = 0


class Ledgers:
    """Holds writers, readers and the tables against each other. Methods have the names of evidence."""

    def __init__(self, sure: frozenset[str], readers: frozenset[str], incidents: Incidents) -> None:
        self._sure, self._readers, self._incidents = sure, readers, incidents
        self._kept: defaultdict[str, set[int]] = defaultdict(set)
        self._tried: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self._dropped: defaultdict[str, set[int]] = defaultdict(set)
        self._readings: defaultdict[tuple[str, str], Reading] = defaultdict(Reading)
        self._there: defaultdict[str, dict[int, int]] = defaultdict(dict)
        #: Rows of the lease log that were read, and their transactions.
        self._events: dict[int, int] = {}
        self._claims: set[int] = set()
        #: Every event that is older than this was read.
        self.known = 0
        self.read_records = 0

    @property
    def read_events(self) -> int:
        return len(self._events)

    def put(self, at: int, items: list[int]) -> None:
        self._tried.update(dict.fromkeys(items, at))

    def kept(self, at: int, who: str, topic: str, items: list[int]) -> None:
        lost = self._incidents.may_be_lost
        self._kept[topic].update(item for item in items if not lost(self._tried.get(item, at), at))
        self._answered.update(dict.fromkeys(items, at))

    def forget_lost(self) -> None:
        """Let go of what was written for sure by a server that has taken it along."""
        lost = self._incidents.may_be_lost
        for kept in self._kept.values():
            kept -= {item for item in kept if lost(self._tried.get(item, 0), self._answered[item])}

    def reset(self, at: int, who: str, reader: str, topic: str, cursor: int) -> Iterator[Broken]:
        reading = self._readings[reader, topic]
        reading.resets += 1
        if reading.resets > self._incidents.failovers():
            yield Broken(REPEATED, at, "", f"{reader} was sent back to {cursor} of {topic} without a failover")
        if topic == "events":
            self._events = {number: txid for number, txid in self._events.items() if txid <= cursor}
            return
        reading.items = {item: seq for item, seq in reading.items.items() if seq <= cursor}
        reading.last, reading.at = cursor, at

    def dropped(self, at: int, who: str, topic: str, items: list[int]) -> None:
        self._dropped[topic].update(items)

    def there(self, at: int, who: str, topic: str, pairs: list[Pair]) -> None:
        self._there[topic].update((item, seq) for seq, item in pairs)

    def read(self, at: int, who: str, reader: str, topic: str, pairs: list[Pair]) -> Iterator[Broken]:
        reading = self._readings[reader, topic]
        for seq, item in pairs:
            self.read_records += 1
            if item in reading.items or seq <= reading.last:
                text = f"{reader} got record {seq} of {topic} (item {item}) after {reading.last}"
                yield Broken(REPEATED, at, "", f"{text} (item {item} had number {reading.items.get(item)})")
            if item in self._dropped[topic]:
                yield Broken(TAKEN_BACK, at, "", f"{reader} got item {item} of {topic}, which was rolled back")
            for other in self._readers - {reader}:
                theirs = self._readings[other, topic]
                # What they got of a server that is gone says nothing about what comes from the other one.
                behind = self._incidents.lost_tail(theirs.at - SECOND, at)
                if not behind and theirs.last > seq and item not in theirs.items:
                    yield Broken(SKIPPED, at, "", f"{other} got {theirs.last} of {topic}, and not {seq} (item {item})")
            reading.items[item] = seq
            reading.last, reading.at = max(reading.last, seq), at

    def events(self, at: int, rows: list[Event]) -> Iterator[Broken]:
        for number, txid, _, claim, *_ in rows:
            if number in self._events:
                yield Broken(REPEATED, at, "", f"the event stream gave row {number} again")
            self._events[number] = txid
            if claim:
                self._claims.add(claim)

    def upto(self, at: int, who: str, known: int) -> None:
        self.known = max(self.known, known)

    def behind(self) -> int:
        return sum(
            len(self._kept[topic] - self._readings[reader, topic].items.keys())
            for topic in self._sure
            for reader in self._readers
        )

    def finish(self, at: int, claims: set[int]) -> Iterator[Broken]:
        for topic in self._kept.keys() | self._there.keys() - {"events"}:
            there = self._there[topic]
            for item in sorted(self._kept[topic] - there.keys() if topic in self._sure else ())[:5]:
                yield Broken(SKIPPED, at, "", f"item {item} of {topic} was committed, and is not there")
            for reader in sorted(self._readers):
                reading = self._readings[reader, topic]
                for item in sorted(there.keys() - reading.items.keys())[:5]:
                    yield Broken(SKIPPED, at, "", f"{reader} never got record {there[item]} of {topic} (item {item})")
                for item, seq in sorted(set(reading.items.items()) - set(there.items()))[:1]:
                    text = f"{reader} got record {seq} of {topic} (item {item}): it is not there"
                    yield Broken(TAKEN_BACK, at, "", text)
        events = self._there["events"].keys()
        for number in sorted(events - self._events.keys())[:5]:
            yield Broken(SKIPPED, at, "", f"the event stream never gave row {number}")
        for number in sorted(self._events.keys() - events)[:5]:
            yield Broken(TAKEN_BACK, at, "", f"the event stream gave row {number}: it is not there")
        for claim in sorted(claims - self._claims)[:5]:
            yield Broken(SKIPPED, at, "", f"jobs were started under claim {claim}: the event stream never said so")


def seconds(since: int, at: int) -> str:
    return f"{(at - since) / SECOND:.3f} s"
