"""JSON in and out: orjson when it is installed, the standard library otherwise, with the same answers."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import re
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from .. import conf
from ..engine.codec import Raw, dumps_raw
from ..exceptions import InvalidOption
from .pieces import PieceParser

try:
    import orjson
except ImportError:  # the extra `fast` is not installed
    orjson = None  # type: ignore[assignment]  # tested below

#: What each byte is for the search below: 1 for a digit that is not 0, e for an exponent, a colon for what may stand
#: before a number. A search that begins with one certain byte is ten times as fast as one that begins with several.
_KINDS = bytes.maketrans(b"23456789E,[ \t\r\n", b"11111111e::::::")
#: Numbers that Python may write in another way than the client did: with an exponent, with a 0 at the end of a
#: fraction, with more than 15 digits, very small ones, -0. (Text that looks like one only costs the slower reading.)
_ODD_NUMBER = re.compile(rb":-?(?:[01]+(?:\.[01]+)?e|[01]+\.[01]*0[^01.]|[01.]{16}|0\.0000)|:-0[^01.]")
_CONTAINERS = (dict, list)
#: Commas and opening brackets that a body may have: each value costs time in which no other thread of the process runs.
MAX_VALUES = 1_000_000
#: Bytes from which on a body is read in a thread; from which on it is parsed in pieces; of one search for odd numbers.
IN_THREAD, IN_PIECES, _SLICE = 65_536, 1_048_576, 32_768
#: Seconds after which a thread that works on a large value gives way to others.
SWITCH = 0.0005

T = TypeVar("T")

_thread = ThreadPoolExecutor(1, "leasequeue-bodies")
_turn = Lock()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float | Raw:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value if repr(value) == text else Raw(text)


def _integer(text: str) -> int | Raw:
    return Raw(text) if text == "-0" else int(text)


def loads(body: bytes) -> Any:
    """Return what a JSON text says; a ``ValueError`` tells where it is none, or which number is too large.

    A number is an ``int`` or a ``float``, or ``Raw`` where Python would write it in another way than it is written.
    """
    large = len(body) >= IN_PIECES
    # (an odd number is known by less than 32 bytes)
    plain = (large or orjson is not None) and not any(
        _ODD_NUMBER.search(body[at : at + _SLICE + 32].translate(_KINDS)) for at in range(0, len(body), _SLICE)
    )
    if plain and not large:
        return orjson.loads(body)
    try:
        if large:
            return PieceParser(body, _PLAIN if plain else _EXACT, conf.settings.API.MAX_DEPTH).parse()
        return _EXACT.decode(body.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


_PLAIN = json.JSONDecoder(parse_constant=_no_constant)
_EXACT = json.JSONDecoder(parse_constant=_no_constant, parse_float=_float, parse_int=_integer)


def in_thread(work: Callable[[], T]) -> Awaitable[T]:
    """Read a large body in a thread, one at a time in a process, so that other requests go on."""
    return asyncio.get_running_loop().run_in_executor(_thread, _uncollected, work)


@contextmanager
def considerately() -> Iterator[None]:
    """Let one thread at a time work on large values, and the event loop interrupt it soon."""
    with _turn:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, SWITCH))
        try:
            yield
        finally:
            sys.setswitchinterval(interval)


def _uncollected(work: Callable[[], T]) -> T:
    """Collecting garbage would look through all the new values again and again, and stop every thread for that."""
    collected = gc.isenabled()
    gc.disable()
    try:
        with considerately():
            return work()
    finally:
        if not gc.get_freeze_count():
            # The new values are old then, at once: the next collection of young ones does not look through them.
            gc.freeze()
            gc.unfreeze()
        if collected:
            gc.enable()


def inflate(body: bytes, limit: int) -> bytes | None:
    """Return a gzip body inflated; ``None`` if that has more than ``limit`` bytes, of which no more is inflated.

    A ``ValueError`` says that it is not gzip, is cut short, or has something after its end.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        found = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(found) > limit:
        return None
    if not stream.eof or stream.unused_data:
        raise ValueError("it is cut short" if not stream.eof else "there is something after its end")
    return found


def too_many(body: bytes) -> bool:
    """Return whether a body has more values than one may have; it is not parsed for that."""
    pieces = range(0, len(body), IN_PIECES)
    return sum(body.count(mark, at, at + IN_PIECES) for at in pieces for mark in b",[{") > MAX_VALUES


def surely_longer(value: Any, limit: int) -> bool:
    """Return whether a value has more than ``limit`` characters as JSON text, without writing it at one go.

    Escapes are not counted: a value that is longer only by those is not found here.
    """
    size, left = 0, [value]
    while left and size <= limit:
        item = left.pop()
        if isinstance(item, str):
            size += len(item) + 2
        elif isinstance(item, dict):
            size += 2 + sum(map(len, item)) + 4 * len(item)
            left.extend(item.values())
        elif isinstance(item, list):
            size += 1 + len(item)
            left.extend(item)
        else:
            size += 1
    return size > limit


def too_deep(value: Any, limit: int) -> bool:
    """Return whether containers are nested deeper than ``limit``."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, _CONTAINERS)
        ]
    return False


def check_depth(value: Any, written: bytes | str) -> None:
    """Refuse a body that is nested deeper than ``MAX_DEPTH``: looked through only where its text has many brackets."""
    limit = conf.settings.API.MAX_DEPTH
    text = written if isinstance(written, bytes) else written.encode()
    if text.count(b"{") + text.count(b"[") > limit and too_deep(value, limit):
        raise InvalidOption(f"The body is nested more than {limit} deep: flatten the data.")


def raw(text: str | None) -> Any:
    """Return JSON text as a value that ``dumps`` takes as it is, numbers as they were written; ``None`` is null."""
    if text is None:
        return None
    return orjson.Fragment(text) if orjson is not None else Raw(text)


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if orjson is not None and isinstance(value, orjson.Fragment):
        return orjson.dumps(value).decode()
    raise TypeError(f"{type(value).__name__} is not JSON")


def dumps(value: Any) -> bytes:
    """Return a value as JSON text."""
    if orjson is not None:
        try:
            return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # an integer beyond 64 bits, which orjson does not write
            pass
    return dumps_raw(value, _text).encode()


def size(value: Any) -> int:
    """Return how many bytes a value has as JSON text."""
    return len(dumps(value))
