"""What readers must have got: each record of a topic once and in order, each event of the lease log once."""

from __future__ import annotations

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
    """What one reader got of one topic."""

    items: dict[int, int] = field(default_factory=dict)
    last: int = 0
    #: When it got something last, and how often it was sent back.
    at: int = 0
    resets: int = 0


class Ledgers:
    """Holds writers, readers and the tables against each other."""

    def __init__(self, sure: frozenset[str], readers: frozenset[str], incidents: Incidents) -> None:
        self._sure = sure
        self._incidents = incidents
        self._kept: dict[str, set[int]] = {}
        self._tried: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self._dropped: dict[str, set[int]] = {}
        self._readings: dict[tuple[str, str], Reading] = {}
        self._readers = readers
        self._there: dict[str, dict[int, int]] = {}
        #: Rows of the lease log that were read, and their transactions.
        self._events: dict[int, int] = {}
        self._claims: set[int] = set()
        self.upto = 0
        self.read_records = 0

    @property
    def read_events(self) -> int:
        """How many rows of the lease log were read."""
        return len(self._events)

    def put(self, at: int, items: list[int]) -> None:
        """Note what is about to be written."""
        self._tried.update(dict.fromkeys(items, at))

    def kept(self, at: int, topic: str, items: list[int]) -> None:
        """Note what was written for sure, as far as a server that takes over has to know."""
        kept = self._kept.setdefault(topic, set())
        kept.update(item for item in items if not self._incidents.may_be_lost(self._tried.get(item, at), at))
        self._answered.update(dict.fromkeys(items, at))

    def forget_lost(self) -> None:
        """Let go of what was written for sure by a server that has taken it along."""
        for kept in self._kept.values():
            lost = self._incidents.may_be_lost
            kept -= {item for item in kept if lost(self._tried.get(item, 0), self._answered[item])}

    def reset(self, at: int, reader: str, topic: str, cursor: int) -> Iterator[Broken]:
        """Note that a reader was sent back; yield if no failover can have been the reason."""
        reading = self._readings.setdefault((reader, topic), Reading())
        reading.resets += 1
        if reading.resets > self._incidents.failovers():
            yield Broken(REPEATED, at, "", f"{reader} was sent back to {cursor} of {topic} without a failover")
        if topic == "events":
            self._events = {number: txid for number, txid in self._events.items() if txid <= cursor}
            return
        reading.items = {item: seq for item, seq in reading.items.items() if seq <= cursor}
        reading.last, reading.at = cursor, at

    def dropped(self, topic: str, items: list[int]) -> None:
        """Note what was rolled back for sure."""
        self._dropped.setdefault(topic, set()).update(items)

    def there(self, topic: str, pairs: list[Pair]) -> None:
        """Note what the table holds at the end."""
        self._there.setdefault(topic, {}).update((item, seq) for seq, item in pairs)

    def read(self, at: int, reader: str, topic: str, pairs: list[Pair]) -> Iterator[Broken]:
        """Note what a reader got; yield what is wrong with it by itself."""
        reading = self._readings.setdefault((reader, topic), Reading())
        dropped = self._dropped.get(topic, set())
        for seq, item in pairs:
            self.read_records += 1
            if item in reading.items or seq <= reading.last:
                yield Broken(
                    REPEATED, at, "",
                    f"{reader} got record {seq} of {topic} (item {item}) after {reading.last}"
                    f" (item {item} had number {reading.items.get(item)})",
                )  # fmt: skip
            if item in dropped:
                yield Broken(TAKEN_BACK, at, "", f"{reader} got item {item} of {topic}, which was rolled back")
            for other in self._readers - {reader}:
                theirs = self._reading(other, topic)
                # What they got of a server that is gone says nothing about what comes from the other one.
                behind = self._incidents.lost_tail(theirs.at - SECOND, at)
                if not behind and theirs.last > seq and item not in theirs.items:
                    yield Broken(SKIPPED, at, "", f"{other} got {theirs.last} of {topic}, and not {seq} (item {item})")
            reading.items[item] = seq
            reading.last, reading.at = max(reading.last, seq), at

    def events(self, at: int, rows: list[Event]) -> Iterator[Broken]:
        """Note rows of the lease log; yield what came again."""
        for number, txid, _, claim, *_ in rows:
            if number in self._events:
                yield Broken(REPEATED, at, "", f"the event stream gave row {number} again")
            self._events[number] = txid
            if claim:
                self._claims.add(claim)

    def read_upto(self, at: int) -> None:
        """Note that every event older than this was read."""
        self.upto = max(self.upto, at)

    def behind(self) -> int:
        """Return how many records that were kept some reader has not got yet."""
        return sum(
            len(self._kept.get(topic, set()) - self._reading(reader, topic).items.keys())
            for topic in self._sure
            for reader in self._readers
        )

    def _reading(self, reader: str, topic: str) -> Reading:
        return self._readings.get((reader, topic)) or Reading()

    def finish(self, at: int, claims: set[int]) -> Iterator[Broken]:
        """Yield what readers skipped, and what they were told that is not there."""
        for topic in self._kept.keys() | self._there.keys() - {"events"}:
            there = self._there.get(topic, {})
            for item in sorted(self._kept.get(topic, set()) - there.keys() if topic in self._sure else ())[:5]:
                yield Broken(SKIPPED, at, "", f"item {item} of {topic} was committed, and is not there")
            for reader in sorted(self._readers):
                reading = self._reading(reader, topic)
                for item in sorted(there.keys() - reading.items.keys())[:5]:
                    yield Broken(SKIPPED, at, "", f"{reader} never got record {there[item]} of {topic} (item {item})")
                for item, seq in sorted(reading.items.items()):
                    if there.get(item) != seq:
                        yield Broken(
                            TAKEN_BACK, at, "", f"{reader} got record {seq} of {topic} (item {item}): it is not there"
                        )
                        break
        events = self._there.get("events", {}).keys()
        for number in sorted(events - self._events.keys())[:5]:
            yield Broken(SKIPPED, at, "", f"the event stream never gave row {number}")
        for number in sorted(self._events.keys() - events)[:5]:
            yield Broken(TAKEN_BACK, at, "", f"the event stream gave row {number}: it is not there")
        for claim in sorted(claims - self._claims)[:5]:
            yield Broken(SKIPPED, at, "", f"jobs were started under claim {claim}: the event stream never said so")


def seconds(since: int, at: int) -> str:
    """Return the time between two moments as text."""
    return f"{(at - since) / SECOND:.3f} s"
