"""JSON in and out: orjson when it is installed, the standard library otherwise, with the same answers."""

from __future__ import annotations

import asyncio
import codecs
import gc
import json
import math
import re
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Any, NoReturn, TypeVar

from .. import conf
from ..engine.codec import Raw, dumps_raw

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

#: Where the server notes in the ASGI scope when the request came in (``asgi``).
RECEIVED = "leasequeue.received"
#: Where it leaves a body that it has not read: a view reads it when the client is admitted.
UNREAD = "leasequeue.unread"

#: Where it leaves the connection's transport of asyncio, if it is known.
TRANSPORT = "leasequeue.transport"

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
    if len(text) > sys.float_info.max_10_exp:
        _float(text)
    return Raw(text) if text == "-0" else int(text)


def loads(body: bytes) -> Any:
    """Return what a JSON text says, numbers that Python writes in another way as ``Raw``; or raise ``ValueError``."""
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
    """Return a gzip body inflated, ``None`` if that has more than ``limit`` bytes; a ``ValueError`` says why not."""
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
    """Return whether a body has more values than one may have, without parsing it."""
    pieces = range(0, len(body), IN_PIECES)
    return sum(body.count(mark, at, at + IN_PIECES) for at in pieces for mark in b",[{") > MAX_VALUES


def surely_longer(value: Any, limit: int) -> bool:
    """Return whether a value has more than ``limit`` characters as JSON (escapes not counted), without writing it."""
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
    level, depth = [value] if isinstance(value, _CONTAINERS) else [], 0
    while level and depth < limit:
        depth += 1
        children = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level)
        level = [child for child in children if isinstance(child, _CONTAINERS)]
    return bool(level)


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


#: Characters that the C parser reads at once: some tenths of a millisecond.
WINDOW = 131_072
#: Seconds of rest after each window: a thread that waits for the interpreter gets it.
REST = 0.0001
_SPACE = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*([,\]}])[ \t\n\r]*")
#: What ends an item that begins so; any other item ends before a comma.
_ENDS = {"{": "},", "[": "],"}


class PieceParser:
    """Parses one large text in UTF-8 in short pieces: a C parser keeps the interpreter until it has read a text."""

    def __init__(self, body: bytes, decoder: json.JSONDecoder, max_depth: int) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")()
        pieces = [utf8.decode(body[at : at + 8 * WINDOW]) for at in range(0, len(body), 8 * WINDOW)]
        self._text = "".join([*pieces, utf8.decode(b"", final=True)])
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]  # not in typeshed
        self._max_depth = max_depth

    def parse(self) -> Any:
        value, at = self._value(self._skip(0), 0)
        at = self._skip(at)
        if at < len(self._text):
            self._fail("Extra data", at)
        return value

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def _short(self, at: int) -> tuple[Any, int] | None:
        """Parse the value at a place, ``None`` if it does not end within a window, or is wrong."""
        time.sleep(REST)
        window = self._text[at : at + WINDOW]
        try:
            value, end = self._scan(window, 0)
        except (StopIteration, ValueError, RecursionError):
            return None
        # A number at the end of a window may go on, with as much as "e+" that is no part of it yet.
        return None if end > len(window) - 3 and at + len(window) < len(self._text) else (value, at + end)

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        found = self._short(at)
        if found is not None:
            return found
        if depth > self._max_depth:
            raise RecursionError
        match self._text[at : at + 1]:
            case "[":
                return self._array(self._skip(at + 1), depth)
            case "{":
                return self._object(self._skip(at + 1), depth)
            case _:
                try:
                    return self._scan(self._text, at)
                except StopIteration:
                    self._fail("Expecting value", at)

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        if self._text[at : at + 1] == "]":
            return values, at + 1
        while True:
            many, at = self._many(at)
            values += many
            value, at = self._value(at, depth + 1)
            values.append(value)
            mark, at = self._next(at, "]")
            if mark == "]":
                return values, at

    def _many(self, at: int) -> tuple[list[Any], int]:
        """Parse the items of an array up to the last comma in a window, if that separates items: then they are JSON."""
        end = self._text.rfind(_ENDS.get(self._text[at : at + 1], ","), at, at + WINDOW)
        if end < 0:
            return [], at
        comma = self._text.index(",", end)
        items = f"[{self._text[at:comma]}]"
        try:
            values, length = self._scan(items, 0)
        except (StopIteration, ValueError, RecursionError):
            return [], at
        return (values, self._skip(comma + 1)) if values and length == len(items) else ([], at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        if self._text[at : at + 1] == "}":
            return members, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                self._fail("Expecting property name enclosed in double quotes", at)
            key, at = self._scan(self._text, at)
            colon = _COLON.match(self._text, at)
            if colon is None:
                self._fail("Expecting ':' delimiter", at)
            members[key], at = self._value(colon.end(), depth + 1)
            mark, at = self._next(at, "}")
            if mark == "}":
                return members, at

    def _next(self, at: int, end: str) -> tuple[str, int]:
        """Return what follows an item, a comma or the end of its container, and where the next thing begins."""
        found = _NEXT.match(self._text, at)
        if found is None or found[1] not in (",", end):
            self._fail("Expecting ',' delimiter", at)
        return found[1], found.end() if found[1] == "," else found.end(1)

    def _fail(self, message: str, at: int) -> NoReturn:
        raise json.JSONDecodeError(message, self._text, at)
