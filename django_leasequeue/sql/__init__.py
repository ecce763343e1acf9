"""The SQL statements, one a file: ``statement("claim")`` gives the text of ``claim.sql`` without its comments."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_QUOTED = re.compile(r"('[^']*')")
_AROUND = re.compile(r" ?([,()=<>]) ?")


@cache
def statement(name: str) -> str:
    """Return the text of ``<name>.sql``, its comments and layout removed.

    Short texts matter: psycopg caches the parsed form of statements up to 4,096 characters only.
    """
    text = _SPACE.sub(" ", _COMMENT.sub("", (_HERE / f"{name}.sql").read_text(encoding="utf-8"))).strip()
    parts = _QUOTED.split(text)
    parts[::2] = [_AROUND.sub(r"\1", part) for part in parts[::2]]
    return "".join(parts)


def names() -> list[str]:
    """Return the names of all statements, sorted."""
    return sorted(path.stem for path in _HERE.glob("*.sql"))
