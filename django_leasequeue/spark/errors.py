"""The one sentence of an error that Spark wraps into two stack traces."""

from __future__ import annotations

import re

#: The last line of a Python traceback that an error of ours, or of the database's driver, ends with.
_OURS = re.compile(r"^(?:[\w.]*: )?(?:django_leasequeue|psycopg)(?:\.\w+)+: (.+)$", re.MULTILINE)
_LONGEST = 2_000


def said(error: BaseException) -> str:
    """Return what an error says: of ours its own words, of Spark's the first line."""
    text = str(error)
    found = _OURS.findall(text)
    return (found[-1] if found else text.strip().split("\n", 1)[0])[:_LONGEST]
