"""The settings: ``LEASEQUEUE = {...}`` in the host's settings module, read into the frozen dataclasses of ``options``.

The key of a setting is its field's name in capitals. A field's type may be ``bool``, ``int``, ``float``, ``str``,
``None``, ``Any``, ``Callable``, a ``Literal``, a union of these, ``tuple[X, ...]`` (given as a list), ``dict[str, X]``,
or another such dataclass. ``Annotated[X, Range(...)]`` bounds a number.

Everything may import this package; it imports enums and exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .options import Range, Settings

__all__ = ["Settings", "problems", "settings"]

T = TypeVar("T")

_WORDS = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "True or False",
    NoneType: "None",
    Callable: "a function",
}


class Problem(NamedTuple):
    """An invalid setting: a message with its name and value, and a hint."""

    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


def keys(kind: type[Any]) -> dict[str, tuple[Field[Any], Any]]:
    """Return the fields of a dataclass of settings and their types, by key."""
    types = get_type_hints(kind, include_extras=True)
    return {item.name.upper(): (item, types[item.name]) for item in fields(kind)}


def default(item: Field[Any]) -> Any:
    """Return the default of a setting."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def words(hint: Any) -> str:
    """Return the values that a type allows, in words."""
    inner, limits = _parts(hint)
    kinds = [kind for kind in _kinds(inner) if kind is not NoneType]
    said = [_kind_words(kind) for kind in kinds]
    if limits is not None:
        said[-1] += f", {limits}"
    if len(kinds) < len(_kinds(inner)):
        said.append("None")
    return _either(said) if limits is None else ", or ".join(said)


def _either(said: list[str]) -> str:
    return f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else said[0]


def read(kind: type[T], given: Any, where: str) -> T:
    """Return the settings of a dict over the defaults; ``ImproperlyConfigured`` names all invalid ones."""
    problems: list[Problem] = []
    found = parse(kind, given, where, problems)
    if problems:
        raise ImproperlyConfigured("\n".join(map(str, problems)))
    return found


def parse(kind: type[T], given: Any, where: str, problems: list[Problem]) -> T:
    """As ``read``, but add invalid settings to ``problems`` and use their defaults."""
    if not isinstance(given, dict):
        problems.append(Problem(f"{where} must be a dict; it is {given!r}.", "Without it the defaults hold."))
        return kind()
    known = keys(kind)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            near = get_close_matches(str(key).upper(), known, 1)
            advice = f"Did you mean {near[0]!r}? " if near else ""
            advice += f"There are {', '.join(sorted(known))}."
            problems.append(Problem(f"{where} has no setting {key!r}.", advice))
            continue
        item, hint = known[key]
        before = len(problems)
        found = _value(hint, value, f"{where}[{key!r}]", f"The default is {default(item)!r}.", problems)
        if len(problems) == before or is_dataclass(hint):
            values[item.name] = found
    return kind(**values)


def _value(hint: Any, value: Any, where: str, advice: str, problems: list[Problem]) -> Any:
    inner, limits = _parts(hint)
    if is_dataclass(inner):
        return parse(inner, value, where, problems)  # type: ignore[arg-type]  # it is a class, not an instance
    for kind in _kinds(inner):
        arguments = get_args(kind)
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            return tuple(
                _value(arguments[0], each, f"{where}[{at}]", advice, problems) for at, each in enumerate(value)
            )
        if get_origin(kind) is dict and isinstance(value, dict):
            odd = [key for key in value if not isinstance(key, str)]
            if odd:
                problems.append(Problem(f"{where} must have texts as keys; one is {odd[0]!r}.", advice))
            return {
                key: _value(arguments[1], each, f"{where}[{key!r}]", advice, problems) for key, each in value.items()
            }
        if _fits(kind, value, limits):
            return float(value) if kind is float else value
    problems.append(Problem(f"{where} must be {words(hint)}; it is {value!r}.", advice))
    return None


def _fits(kind: Any, value: Any, limits: Range | None) -> bool:
    if kind is Any or kind is NoneType:
        return kind is Any or value is None
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is Callable:
        return callable(value)
    if kind in (int, float):
        number = isinstance(value, int | kind) and not isinstance(value, bool)
        return number and (limits is None or value in limits)
    return isinstance(kind, type) and isinstance(value, kind)


def _parts(hint: Any) -> tuple[Any, Range | None]:
    return get_args(hint) if get_origin(hint) is Annotated else (hint, None)


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kind_words(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _either([repr(value) for value in arguments])
    if origin is tuple:
        return "a list of texts" if arguments[0] is str else f"a list, each item {words(arguments[0])}"
    if origin is dict or is_dataclass(kind):
        inner = arguments[1] if origin is dict else Any
        if inner is str:
            return "a dict of texts"
        return "a dict" if inner is Any else f"a dict, each value {words(inner)}"
    return _WORDS.get(origin or kind, str(kind))


class _Lazy:
    """Reads ``LEASEQUEUE`` on first use, and again when a test changes it."""

    def __getattr__(self, name: str) -> Any:
        loaded = read(Settings, _given(), "LEASEQUEUE")
        self.__dict__.update({key: getattr(loaded, key) for key in Settings.__dataclass_fields__})
        return getattr(loaded, name)


def _given() -> Any:
    return getattr(django_settings, "LEASEQUEUE", {})


def problems() -> list[Problem]:
    """Return the invalid settings of ``LEASEQUEUE``, for a system check."""
    found: list[Problem] = []
    parse(Settings, _given(), "LEASEQUEUE", found)
    return found


#: The current settings. The first use raises ``ImproperlyConfigured`` if one is invalid.
settings = cast(Settings, _Lazy())


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "LEASEQUEUE":
        vars(settings).clear()


setting_changed.connect(_changed)
