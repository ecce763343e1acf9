"""Names and patterns of queues in the options of a worker. The only wildcard is ``*``, for any characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from ..engine.queues.presets import NAME

#: Patterns and exclusions of one worker: each is compared with the name of every queue.
MAX_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queues that a worker takes: names and patterns in order of preference, and what patterns leave out."""

    entries: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, given: Sequence[str]) -> QueueChoice:
        """Return the choice of the option ``queues``; ``ImproperlyConfigured``: it is invalid."""
        check_names("queues", given, "names, patterns ('mail*') and exclusions ('-mail.bulk')", sign="-")
        excluded = tuple(dict.fromkeys(entry[1:] for entry in given if entry[0] == "-"))
        entries = tuple(dict.fromkeys(entry for entry in given if entry[0] != "-")) or ("*",)
        choice = cls(entries, excluded)
        if both := sorted({*entries} & {*excluded}):
            raise ImproperlyConfigured(f"queues takes {both[0]!r} and excludes it as well: keep one of the two.")
        if excluded and not choice.patterns:
            raise ImproperlyConfigured(
                f"queues excludes {excluded[0]!r}, but only patterns can leave out a queue, and it has none: add '*' or"
                " remove the exclusion."
            )
        return choice

    @property
    def names(self) -> list[str]:
        return [entry for entry in self.entries if "*" not in entry]

    @property
    def patterns(self) -> list[str]:
        return [entry for entry in self.entries if "*" in entry]

    def grouped(self, found: Iterable[str]) -> list[list[str]]:
        """Return the queues of each entry in order: a queue stands at its name, else at the first fitting pattern."""
        groups: dict[str, list[str]] = {entry: [] for entry in self.entries}
        for name in found:
            if (place := best(name, groups)) is not None:
                groups[place].append(name)
        return [group for group in groups.values() if group]


def check_names(option: str, given: Sequence[str], takes: str, sign: str = "") -> None:
    """Check names and patterns, which may have a sign in front; ``takes``: what the option takes, in words."""
    for entry in given:
        name = entry.removeprefix(sign)
        if not NAME.match(name.replace("*", "x")) or name[0] == "-":
            raise ImproperlyConfigured(
                f"{option} takes {takes}, of letters, digits, '.', '_', ':', '-' and the wildcard '*', with at most 255"
                f" characters; one of them is {entry!r}."
            )
    if (count := sum("*" in entry or entry[0] == "-" for entry in given)) > MAX_PATTERNS:
        raise ImproperlyConfigured(f"{option} takes at most {MAX_PATTERNS} patterns and exclusions; it has {count}.")


def best(name: str, entries: Iterable[str] | Mapping[str, object]) -> str | None:
    """Return the entry for a queue: its name, else the first pattern that fits."""
    if name in entries:
        return name
    return next((entry for entry in entries if "*" in entry and fits(name, entry)), None)


def fits(name: str, pattern: str) -> bool:
    """Return whether a name fits a pattern, in linear time."""
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(name) - len(last)
    if end < at or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in middle:
        if (found := name.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True


def like(pattern: str) -> str:
    """Return the pattern for LIKE; of its special characters names may have only ``_``."""
    return pattern.replace("_", "\\_").replace("*", "%")
