"""References: they stand in the database in place of large content, and only the engine can write them."""

from __future__ import annotations

import json
from typing import NamedTuple

#: JSON text that begins so is a reference. No text of a client does: ``codec.dumps`` writes no space in front.
MARK = ' {"$large":'
_INLINE = ',"data":'
_decode = json.JSONDecoder().raw_decode


class StoredPart(NamedTuple):
    """One object in a storage: the id under which it is noted, its storage's alias, its name, SHA-256 and bytes."""

    id: int
    storage: str
    name: str
    digest: str
    size: int


class Reference(NamedTuple):
    """The parts of a payload or result that stand elsewhere.

    ``data`` is the JSON and ``body`` the bytes that stand in a storage; ``inline`` is JSON text that stands here,
    because only the body was large.
    """

    data: StoredPart | None = None
    body: StoredPart | None = None
    inline: str | None = None

    @property
    def parts(self) -> list[StoredPart]:
        """The objects."""
        return [part for part in (self.data, self.body) if part is not None]

    @property
    def size(self) -> int:
        """The bytes that stand elsewhere."""
        return sum(part.size for part in self.parts)

    def text(self) -> str:
        """Return what stands in the database."""
        parts = {name: part._asdict() for name, part in (("data", self.data), ("body", self.body)) if part is not None}
        inline = "" if self.inline is None else f"{_INLINE}{self.inline}"
        return f"{MARK}{json.dumps(parts, separators=(',', ':'))}{inline}}}"


def is_reference(text: str | None) -> bool:
    """Return whether a JSON column holds a reference."""
    return text is not None and text.startswith(MARK)


def parse(text: str) -> Reference:
    """Return the reference that ``text`` is."""
    parts, end = _decode(text, len(MARK))
    inline = text[end + len(_INLINE) : -1] if text.startswith(_INLINE, end) else None
    data, body = (StoredPart(**parts[name]) if name in parts else None for name in ("data", "body"))
    return Reference(data, body, inline)
