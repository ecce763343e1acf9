"""Hides secrets from operators: values whose names sound secret, and secrets within texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from inspect import Parameter, signature
from itertools import chain, repeat

from django.utils.module_loading import import_string

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
