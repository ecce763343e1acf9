"""Fingerprints of failures: equal for failures of one cause, so that dead letters can be grouped, read and redriven.

A fingerprint is made of the exception's class, the place in the host's own code where it came from, and the message
without what differs from case to case (numbers, ids, quoted texts, paths).
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, TracebackType

#: Characters of a message that count.
_MAX_MESSAGE = 1_000

#: What differs from case to case, the longer forms first. Each alternative is linear in the length of the text.
_VARYING = re.compile(
    r"""
    \b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b   # UUID
    | 0[xX][0-9a-fA-F]+                                                               # address
    | '[^'\n]*' | "[^"\n]*" | `[^`\n]*`                                               # quoted
    | [\w.+-]+@[\w-]+\.[\w.-]+                                                        # e-mail address
    | (?:[A-Za-z]:)?[/\\][^\s:,;()'"]+                                                # path
    | \b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b                                        # hexadecimal id
    | \d+(?:[.,:]\d+)*                                                                # number, version, time
    """,
    re.VERBOSE,
)


def mask(message: str) -> str:
    """Return a message without what differs from case to case: ``user 17 has no 'x'`` becomes ``user # has no #``."""
    return " ".join(_VARYING.sub("#", message[:_MAX_MESSAGE]).split())


def fingerprint(error: BaseException, fallback: str = "") -> str:
    """Return the fingerprint of an exception: 16 hexadecimal digits.

    The line number does not count, so that a failure keeps its fingerprint when the code around it moves.
    """
    kind = type(error)
    # A SyntaxError's text holds the name and line of the file that was read: what differs from case to case.
    message = error.msg if isinstance(error, SyntaxError) else text_of(error, "")
    return fingerprint_of(f"{kind.__module__}.{kind.__qualname__}", message or "", place_of(error) or fallback)


def fingerprint_of(kind: str, message: str, place: str = "") -> str:
    """Return the fingerprint of a failure that is known by its texts only: 16 hexadecimal digits."""
    text = f"{kind}\n{place}\n{mask(message)}"
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def text_of(error: BaseException, otherwise: str | None = None) -> str:
    """Return an error's text; of one whose ``__str__`` fails, which must not hide the failure, what stands for it."""
    try:
        return str(error)
    except Exception as again:  # noqa: BLE001  (it is the host's)
        return f"(its text cannot be had: {type(again).__name__})" if otherwise is None else otherwise


def place_of(error: BaseException) -> str:
    """Return where an error came from: the innermost function of the host's code, else the outermost of a library."""
    library = ""
    own = ""
    for module, code in _frames(error.__traceback__):
        home = _home(code.co_filename)
        if home == "host":
            own = f"{module}:{code.co_qualname}"
        elif home == "library" and not library:
            library = f"{module}:{code.co_qualname}"
    return own or library


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, CodeType]]:
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", "")), traceback.tb_frame.f_code
        traceback = traceback.tb_next


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
