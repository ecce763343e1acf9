"""The SQL statements, one a file: ``statement("claim")`` gives that of ``leases/claim.sql``.

Its comments are removed. The folders mirror those of the code that runs the statements. An engine's statement is named
by its file alone; those of the admin, of the lake and of the log's partitions are named with their folder, as
``admin/ended``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
#: Folders whose statements are named with them.
_NAMED = ("admin", "ddl", "lake")
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
    text = _SPACE.sub(" ", _COMMENT.sub("", path(name).read_text(encoding="utf-8"))).strip()
    parts = _QUOTED.split(text)
    parts[::2] = [_AROUND.sub(r"\1", part) for part in parts[::2]]
    return "".join(parts)


@cache
def header(name: str) -> dict[str, str]:
    """Return what the comment at the top of ``<name>.sql`` says, by its words (``Purpose``, ``Index``, ``Pages``)."""
    found: dict[str, str] = {}
    word = ""
    for line in path(name).read_text(encoding="utf-8").splitlines():
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


@cache
def _paths() -> dict[str, Path]:
    return {
        f"{path.parent.name}/{path.stem}" if path.parent.name in _NAMED else path.stem: path
        for path in sorted(_HERE.rglob("*.sql"))
    }


def path(name: str) -> Path:
    """Return the file of a statement."""
    return _paths()[name]


def names() -> list[str]:
    """Return the names of all statements, sorted."""
    return sorted(_paths())
