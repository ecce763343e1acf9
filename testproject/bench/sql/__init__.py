"""The benchmark's own statements, one a file: mostly the bare ones that serve as ceilings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from django_leasequeue.words import named

_HERE = Path(__file__).parent
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@cache
def statement(name: str) -> str:
    """Return the text of ``<name>.sql`` without its comments."""
    text = (_HERE / f"{name}.sql").read_text(encoding="utf-8")
    return named(" ".join(_COMMENT.sub("", text).split()))
