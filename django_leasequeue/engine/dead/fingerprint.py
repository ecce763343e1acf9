"""Fingerprints of failures: equal for failures of one cause, so that dead letters can be grouped, read and redriven.

A fingerprint is made of the exception's class, the line of the host's own code where it came from, and the message
without what names a single case. So HTTP 500 and 502, or the ``KeyError`` of two names, are two causes.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

from ...conf import process

#: Characters of a message that count.
_MAX_MESSAGE = 1_000


@cache
def _case() -> re.Pattern[str]:
    """Return the pattern of ids and other variable parts, longer forms first. Each alternative is linear."""
    # Compiled when the first error needs it: at import it was half of the time that loading the worker takes.
    return re.compile(
        r"""
        \b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b   # UUID
        | 0[xX][0-9a-fA-F]+                                                               # address
        | (?<!\w)'[^'\n]{33,}(?:'(?!\w)|\Z) | "[^"\n]{33,}(?:"|\Z) | `[^`\n]{33,}(?:`|\Z) # long quoted text
        | [\w.+-]+@[\w-]+\.[\w.-]+                                                        # e-mail address
        | (?<=[/\\])[^\s/\\:,;()'"?]*\d[^\s/\\:,;()'"?]*                                  # part of a path with a digit
        | (?<![0-9A-Za-z])(?=[A-Za-z]*\d[A-Za-z]*\d)[0-9A-Za-z]{16,}(?![0-9A-Za-z])       # id of letters and digits
        | \b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b                                        # hexadecimal id
        | \d{4}-\d\d?-\d\d?                                                               # date
        | (?<=\bline\ )\d+ | (?<=\bcolumn\ )\d+ | (?<=\bchar\ )\d+ | (?<=\bposition\ )\d+ # place in what was read
        | \d+(?:\.\d+)?(?=\ ?(?:ms|s|sec|seconds?|minutes?)\b)                            # measured time
        | \d(?:[.,:]?\d){3,}                                                              # four or more digits
        """,
        re.VERBOSE,
    )


def mask(message: str) -> str:
    """Mask ids and other variable parts: ``user 40812: HTTP 500`` becomes ``user #: HTTP 500``."""
    return " ".join(_case().sub("#", message[:_MAX_MESSAGE]).split())


def fingerprint(error: BaseException, fallback: str = "") -> str:
    """Return the fingerprint of an exception: 16 hexadecimal digits."""
    kind = type(error)
    # A SyntaxError's text holds the name and line of the file that was read: what differs from case to case.
    message = error.msg if isinstance(error, SyntaxError) else text_of(error, "")
    return fingerprint_of(f"{kind.__module__}.{kind.__qualname__}", message or "", place_of(error) or fallback)


def fingerprint_of(kind: str, message: str, place: str = "") -> str:
    """Return the fingerprint of a failure that is known by its texts only: 16 hexadecimal digits."""
    text = f"{kind}\n{place}\n{mask(message)}"
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def text_of(error: BaseException, otherwise: str | None = None) -> str:
    """Return an error's text, or a substitute if its ``__str__`` fails."""
    try:
        return str(error)
    except BaseException as again:  # it is the host's
        if not process.outlives(again):
            raise
        return f"(its text cannot be had: {type(again).__name__})" if otherwise is None else otherwise


def place_of(error: BaseException) -> str:
    """Return where an error came from: the innermost line of the host's code, else the outermost of a library."""
    library = own = ""
    traceback = error.__traceback__
    while traceback is not None:
        home = _home(traceback.tb_frame.f_code.co_filename)
        if home == "host":
            own = _line(traceback)
        elif home == "library" and not library:
            library = _line(traceback)
        traceback = traceback.tb_next
    return own or library


def _line(traceback: TracebackType) -> str:
    # The text of the line, not its number: a failure keeps its fingerprint when the code above it grows.
    frame, code = traceback.tb_frame, traceback.tb_frame.f_code
    text = linecache.getline(code.co_filename, traceback.tb_lineno, frame.f_globals).strip()
    return f"{frame.f_globals.get('__name__', '')}:{code.co_qualname}:{text}"


_PACKAGE = str(Path(__file__).parents[2]) + "/"
_LIBRARIES = tuple(
    path.rstrip("/") + "/"
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if path
)


@cache
def _home(filename: str) -> str:
    """Whose code a file is: ``ours``, a ``library``'s, the ``host``'s. Bounded by the number of source files."""
    if filename.startswith(_PACKAGE):
        return "ours"
    if filename.startswith(("<frozen", *_LIBRARIES)) or "/site-packages/" in filename or "/dist-packages/" in filename:
        return "library"
    return "host"
