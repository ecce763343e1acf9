"""A JSON parser for large texts that works in short pieces, so that other threads of the process go on meanwhile.

A C parser keeps the interpreter to itself until the whole text is read. Here it is given a window of the text at a
time; a container that is longer than that is read item by item, or many items at once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any, NoReturn

#: Parses a text from the character after its first quote on; returns it and where it ends.
scanstring: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]  # not in typeshed

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
    """Parses one text in UTF-8. The decoder parses what is short, and its hooks see every number."""

    def __init__(self, body: bytes, decoder: json.JSONDecoder, max_depth: int) -> None:
        self._text = _decode(body)
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]  # not in typeshed
        self._max_depth = max_depth

    def parse(self) -> Any:
        """Return the value; a ``ValueError`` says where it is not JSON."""
        text = self._text
        value, at = self._value(self._skip(0), 0)
        at = self._skip(at)
        if at < len(text):
            raise json.JSONDecodeError("Extra data", text, at)
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
            case '"':
                return scanstring(self._text, at + 1, True)
            case "[":
                return self._array(self._skip(at + 1), depth)
            case "{":
                return self._object(self._skip(at + 1), depth)
            case _:
                return self._scalar(at)

    def _scalar(self, at: int) -> tuple[Any, int]:
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
        """Parse the items of an array that end within a window, if its last comma is one between items.

        It is if what stands before it makes an array: a comma in a text or an inner container cuts that in two.
        """
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
            key, at = scanstring(self._text, at + 1, True)
            colon = _COLON.match(self._text, at)
            if colon is None:
                self._fail("Expecting ':' delimiter", at)
            members[key], at = self._value(colon.end(), depth + 1)
            mark, at = self._next(at, "}")
            if mark == "}":
                return members, at

    def _next(self, at: int, end: str) -> tuple[str, int]:
        """Return what follows an item, a comma or the end of its container, and where the next thing begins.

        After an end nothing is skipped.
        """
        found = _NEXT.match(self._text, at)
        if found is None or found[1] not in (",", end):
            self._fail("Expecting ',' delimiter", at)
        return found[1], found.end() if found[1] == "," else found.end(1)

    def _fail(self, message: str, at: int) -> NoReturn:
        raise json.JSONDecodeError(message, self._text, at)


def _decode(body: bytes) -> str:
    """Decode UTF-8 a piece at a time."""
    pieces = []
    at = 0
    while at < len(body):
        end = min(at + 8 * WINDOW, len(body))
        while end < len(body) and body[end] & 0xC0 == 0x80:  # within a character
            end += 1
        pieces.append(body[at:end].decode())
        at = end
    return "".join(pieces)
