"""Redaction for operators: secrets hidden in texts, of payloads the shape alone or the values without secrets.

Without the permission ``view_payload`` only names and types are shown. With it the hook
``LEASEQUEUE["ADMIN"]["REDACT"]`` decides, ``redact(value, *, kind, queue, task)``, a callable or its dotted path;
``kind`` is ``data``, ``meta``, ``result`` or ``progress``. Without a hook ``hide_secrets`` does.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from itertools import chain, repeat
from typing import Any

from django.utils.module_loading import import_string

from ... import conf
from .. import codec

#: Stands where a value is hidden.
HIDDEN = "[hidden]"

#: Parts of names that are telling wherever they stand, and words that are so by themselves (``pin``, not ``shipping``).
_PARTS = (
    r"password|passwd|passphrase|passcode|pass$|secret|token|credential|authori[sz]ation|cookie|signature|"
    r"(api|access|private|secret|signing|encryption)_?key|session_?id|card_?(number|no)|security_?code|"
    r"connection_?string|(database|db|redis|broker|amqp|mongo|postgres)_?ur[il]"
)
_WORDS = r"pass|pwd|pw|auth|jwt|otp|totp|mfa|pin|cvv|cvc|dsn|iban|ssn|pem|bearer"
_NAME = re.compile(rf"{_PARTS}|(?<![a-z])({_WORDS})(?![a-z])")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Return whether the value of a name is hidden: ``password1``, ``apiKey``, ``db-url``, ``HTTP_AUTHORIZATION``."""
    return _NAME.search(_CAMEL.sub("_", name).replace("-", "_").lower()) is not None


#: A text without any of these holds no secret that is known by its form: most texts are looked at once.
_MAYBE = re.compile(
    r"""://|=|:\s{0,3}["']|eyJ|-----BEGIN|\b([Bb]earer |[Bb]asic |AKIA|ASIA|gh[opsur]_|github_pat_)|"""
    r"\b(glpat-|xox|[rs]k[-_]|lqk_)"
)
#: Credentials by their form: a scheme's, a JSON web token, keys of well-known services and ours, a private key.
_FORMS = re.compile(
    r"(?<=\b[Bb]earer )[\w.~+/=-]{8,}|(?<=\b[Bb]asic )[\w+/=-]{8,}|\beyJ[\w-]{5,}\.[\w-]{5,}(\.[\w-]*)?|"
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\b(gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|[rs]k_(live|test)_|sk-)[\w-]{16,}|"
    r"\blqk_[0-9a-f]+_[\w-]+|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
#: ``name=value``, also without quotes, and ``"name": "value"``.
_PAIR = re.compile(
    r"""(?<![\w-])(?P<name>[\w-]{2,64})(?P<is>["']?\s{0,3}=(?!=)\s{0,3}|["']?\s{0,3}:\s{0,3}(?=["']))"""
    r"""(?P<value>"[^"\n]*"?|'[^'\n]*'?|[^\s&;,"'()\[\]{}<>]+)"""
)
#: The password of an address, or a user who is a token.
_ADDRESS = re.compile(r"""(?<=://)(?:([^\s/?#:@"']{0,256}):[^\s/?#"']{1,512}|[^\s/?#:@"']{20,512})(?=@)""")
#: What PostgreSQL tells of a row that breaks a constraint.
_KEY = re.compile(r"\bKey \((?P<names>[^()]{1,300})\)=\([^()]{1,2000}\)")


def scrub(text: str) -> str:
    """Return a text with the secrets hidden that are known by their form or by the name before them.

    ``password=x`` and ``'password': 'x'`` are values; ``password: too short`` is a sentence and stays.
    """
    if _MAYBE.search(text) is None:
        return text
    text = _FORMS.sub(HIDDEN, text)
    text = _PAIR.sub(_hide_value, text)
    text = _ADDRESS.sub(lambda found: HIDDEN if found[1] is None else f"{found[1]}:{HIDDEN}", text)
    return _KEY.sub(_hide_row, text)


def _hide_value(found: re.Match[str]) -> str:
    name, sign, value = found.group("name", "is", "value")
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{sign}{quote}{HIDDEN}{quote}" if is_secret(name) else found[0]


def _hide_row(found: re.Match[str]) -> str:
    names = found["names"]
    return f"Key ({names})=({HIDDEN})" if any(map(is_secret, names.split(","))) else found[0]


def secret_arguments(path: str) -> Iterator[bool]:
    """Yield for each positional argument of a task whether its parameter sounds like a secret; of an unknown, no."""
    names, rest = _parameters(path)
    return chain(map(is_secret, names), repeat(is_secret(rest)))


@lru_cache(1_000)
def _parameters(path: str) -> tuple[tuple[str, ...], str]:
    """Return the names of a task's positional parameters, and of the one for the rest of them (``*tokens``)."""
    try:
        task = import_string("django_leasequeue.tasks.lookup.find_task")(path)
        parameters = [*signature(task.func).parameters.values()][int(task.takes_context) :]
    except Exception:  # noqa: BLE001  (it is not here, or its module fails: the job is shown all the same)
        return (), ""
    plain = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    rest = [each.name for each in parameters if each.kind is Parameter.VAR_POSITIONAL]
    return tuple(each.name for each in parameters if each.kind in plain), rest[0] if rest else ""


logger = logging.getLogger("django_leasequeue.admin")

#: How deep a value is looked into; what lies deeper is hidden.
_DEPTH = 60
#: How deep a value can be that hooks and pages get.
_DEEPEST = 100
#: Places of a list that a path which counts from its end may lead to.
_PLACES = 20
#: Stand for what cannot be shown.
TOO_DEEP, NOT_READABLE = "[nested too deep to be shown]", "[cannot be read]"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def hide_secrets(value: Any, *, kind: str = "", queue: str = "", task: str | None = None, depth: int = _DEPTH) -> Any:
    """Return a JSON value without secrets: the hook that is used when none is set.

    Hidden are values whose names sound like secrets, also positional arguments whose parameters do, and what is known
    as a secret by its form: passwords in addresses, tokens.
    """
    if isinstance(value, dict | list) and not depth:
        return HIDDEN
    if isinstance(value, dict):
        found = {
            name: HIDDEN if is_secret(name) and inner is not None else hide_secrets(inner, depth=depth - 1)
            for name, inner in value.items()
        }
        if task is not None and kind == "data" and isinstance(args := found.get("args"), list):
            places = zip(args, secret_arguments(task), strict=False)
            found["args"] = [HIDDEN if secret and one is not None else one for one, secret in places]
        return found
    if isinstance(value, list):
        return [hide_secrets(inner, depth=depth - 1) for inner in value]
    return scrub(value) if isinstance(value, str) else value


def shape(value: Any, depth: int = _DEPTH) -> Any:
    """Return a JSON value with every value replaced by the name of its type."""
    if isinstance(value, dict):
        return {name: shape(inner, depth - 1) for name, inner in value.items()} if depth else "[object]"
    if isinstance(value, list):
        return [shape(inner, depth - 1) for inner in value] if depth else "[array]"
    if value is None:
        return None
    if isinstance(value, bool):
        return "[boolean]"
    return "[number]" if isinstance(value, int | float) else "[text]"


def readable(text: str) -> Any:
    """Parse stored JSON into a form that every page and strict JSON reader takes.

    A number that is no finite float, or has more digits than Python reads, is its text; a lone surrogate is a "?".
    """
    try:
        value = codec.loads(text, parse_int=_integer, parse_float=_real)
    except ValueError:
        return NOT_READABLE
    if text.count("{") + text.count("[") > _DEEPEST:
        value = _cut(value, _DEEPEST)
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _integer(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # longer than sys.get_int_max_str_digits()
        return text


def _real(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _cut(value: Any, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, dict):
        return {name: _cut(inner, depth - 1) for name, inner in value.items()}
    return [_cut(inner, depth - 1) for inner in value]


def redact(value: Any, *, kind: str = "data", queue: str = "", task: str | None = None, values: bool = True) -> Any:
    """Return the part of a JSON value that operators may see."""
    if value is None:
        return None
    if not values:
        return shape(value)
    try:
        hook = conf.settings.ADMIN.REDACT or hide_secrets
        hide = import_string(hook) if isinstance(hook, str) else hook
        return hide(value, kind=kind, queue=queue, task=task)
    except Exception:  # (the host's code) an error of it must neither show a secret nor hide the job
        logger.exception("LEASEQUEUE['ADMIN']['REDACT'] failed: nothing of the payload is shown")
        return HIDDEN


def hides(root: str, path: Sequence[str], value: Any, *, queue: str = "", task: str | None = None) -> bool:
    """Return whether a value is hidden at a path in ``data`` or ``meta``: a search for it would tell it."""
    for at, name in enumerate(path):
        if name[:1] == "-" and name[1:].isdecimal():  # counted from the end, wherever that is
            places = ((*path[:at], str(place), *path[at + 1 :]) for place in range(_PLACES))
            return any(hides(root, place, value, queue=queue, task=task) for place in places)
    probe = value
    for name in reversed(path):
        probe = [probe] * (int(name) + 1) if name.isdecimal() and int(name) < _DEEPEST else {name: probe}
    shown = redact(probe, kind=root, queue=queue, task=task)
    for name in path:
        if isinstance(shown, list):
            shown = shown[-1]
        elif isinstance(shown, dict) and name in shown:
            shown = shown[name]
        else:
            return True
    return bool(shown != value)
