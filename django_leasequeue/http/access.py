"""What a request may do: scopes, topics, project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..models.operators import ApiScope

READ, WRITE, DELETE, ADMIN, PROJECTS, EMIT = (str(scope) for scope in ApiScope.values)
ALL_SCOPES: frozenset[str] = frozenset(ApiScope.values)


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one request.

    ``who`` names the caller in logs and counts its requests; ``prefixes`` empty means every topic; ``rate`` is requests
    a second, ``None`` for the default. The scope ``projects`` (to act for other projects than ``project``) cannot stand
    beside prefixes.
    """

    who: str
    scopes: frozenset[str]
    prefixes: tuple[str, ...] = ()
    project: str = ""
    rate: int | None = None

    def __post_init__(self) -> None:
        if PROJECTS in self.scopes and self.prefixes:
            raise ValueError(
                "The scope 'projects' and prefixes exclude each other: prefixes are of one project's topics."
            )

    def missing(self, needed: Iterable[str]) -> list[str]:
        """Return the scopes that are needed but not there."""
        return sorted(set(needed) - self.scopes)

    def sees(self, topic: str) -> bool:
        """Return whether the topic is one of those it may touch."""
        return not self.prefixes or topic.startswith(self.prefixes)


#: Everybody, where the API is open.
OPEN = Access("everybody", ALL_SCOPES)
