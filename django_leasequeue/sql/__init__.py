"""The SQL statements, one a file: ``statement("claim")`` gives that of ``leases/claim.sql``.

The folders mirror those of the code that runs the statements. An engine's statement is named
by its file alone; those of the admin, of the lake and of the log's partitions are named with their folder, as
``admin/suspended``. ``{name(argument)}`` in a statement is a part that several share, ``parts/name.sql``; ``{FLOW}``,
``{SUSPECT|LARGE}`` or ``{event.ACKED}`` is the number that ``words.py`` gives this name; ``{lock.name}`` and
``{channel.name}`` are from there, too. ``functions/`` has the functions of the database, one a file, in the same words.

Beside them stands what Spark's processes share with the engine: ``log_notes``.
"""

from __future__ import annotations

import re
from functools import cache, reduce
from glob import glob
from operator import or_
from os.path import split
from pathlib import Path

from ..words import NUMBERS, TIMES, named

_HERE = Path(__file__).parent
#: Folders whose statements are named with them.
_NAMED = ("admin", "ddl", "lake")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_HEADER = re.compile(r"\A(?:--.*\n)+")
#: ``{name(arguments)}`` in a statement; the last argument may hold commas, and each may be a part.
_PART = re.compile(r"\{(\w+)\(([^{}]*)\)\}")
#: ``{NAME}``, ``{NAME|NAME}`` for several flags, or ``{kind.NAME}``.
_WORD = re.compile(r"\{([A-Z][A-Z_|]+|[a-z]+\.[A-Z_]+)\}")
_PARAMETER = re.compile(r"%\((\w+)\)s")


@cache
def statement(name: str) -> str:
    """Return the text of ``<name>.sql`` without its comments; parameters are ``%(name)s``.

    ``/*options*/`` stands for the columns of a queue's options, ``/*typed options*/`` for them with their types.
    """
    text = named(_filled(_COMMENT.sub("", paths()[name].read_text(encoding="utf-8"))))
    if "options*/" in text:
        # Not at the top: Spark's workers read statements, and have no Django.
        from ..conf.queue_options import OPTIONS

        typed = (f"{name} {option.column}" for name, option in OPTIONS.items())
        text = text.replace("/*options*/", ", ".join(OPTIONS)).replace("/*typed options*/", ", ".join(typed))
    return text


def function(name: str) -> str:
    """Return what makes the function ``leasequeue_<name>``, without its header: comments in its body stay."""
    return named(_filled(_HEADER.sub("", (_HERE / "functions" / f"{name}.sql").read_text(encoding="utf-8"))))


def _filled(text: str) -> str:
    """Return a text with numbers for words and its parts put in."""
    text, parts = _WORD.sub(_number, text.strip()), 1
    while parts:
        text, parts = _PART.subn(_part, text)
    return text.strip()


def _number(word: re.Match[str]) -> str:
    return TIMES.get(word[1]) or str(reduce(or_, (NUMBERS[name] for name in word[1].split("|"))))


def _part(call: re.Match[str]) -> str:
    """Return a part's text with the arguments put in; its first line is ``-- name(parameters): purpose``."""
    said, text = (_HERE / "parts" / f"{call[1]}.sql").read_text(encoding="utf-8").split("\n", 1)
    parameters = said[said.index("(") + 1 : said.index(")")].split(", ")
    for parameter, argument in zip(parameters, call[2].split(", ", len(parameters) - 1), strict=True):
        text = text.replace(f"{{{parameter}}}", argument)
    return _WORD.sub(_number, _COMMENT.sub("", text).strip())


@cache
def numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement for ``psycopg.RawCursor``, its parameters numbered (``$1``), and their names in that order."""
    text = statement(name)
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    text = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text)
    return text.replace("%%", "%").encode(), names


@cache
def keeps_host_settings(name: str) -> bool:
    """Whether a statement runs with the planner as a host has set it: the part of this name stands in front of it."""
    return "\n{keeps_host_settings(" in paths()[name].read_text(encoding="utf-8")


@cache
def takes_arrays(name: str) -> bool:
    """Whether a statement has array parameters."""
    return re.search(r"%\(\w+\)s::\w+\[\]", statement(name)) is not None


@cache
def paths() -> dict[str, Path]:
    """Return the files of all statements, by name."""
    found: dict[str, Path] = {}
    # The first statement of every process waits for it: a search by paths takes up to twice as long.
    for file in sorted(glob("*/*.sql", root_dir=_HERE)):  # noqa: PTH207
        folder, name = split(file.removesuffix(".sql"))
        if folder not in ("parts", "functions"):
            found[f"{folder}/{name}" if folder in _NAMED else name] = _HERE / file
    return found
