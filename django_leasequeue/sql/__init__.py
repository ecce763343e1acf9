"""The SQL statements, one a file: ``statement("claim")`` gives the text of ``claim.sql`` without its comments."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_HEADING = re.compile(r"-- ([A-Z]\w*)(?:, [^:]*)?: (.*)")
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


@cache
def header(name: str) -> dict[str, str]:
    """Return what the comment at the top of ``<name>.sql`` says, by its words (``Purpose``, ``Index``, ``Pages``)."""
    found: dict[str, str] = {}
    word = ""
    for line in (_HERE / f"{name}.sql").read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            break
        begins = _HEADING.match(line)
        word = begins[1] if begins else word
        found[word] = f"{found[word]} {line[2:].strip()}" if not begins else begins[2]
    return found


@cache
def bears_any_plan(name: str) -> bool:
    """Whether a statement is run under whatever plan a host's planner makes (the word ``Host`` in its header)."""
    return "Host" in header(name)


def names() -> list[str]:
    """Return the names of all statements, those in folders as ``folder/name``, sorted."""
    return sorted(path.relative_to(_HERE).with_suffix("").as_posix() for path in _HERE.rglob("*.sql"))
