"""Opaque ids and the links made of them (always paths): messages, claims and markers as strings that reveal nothing.

A number is enciphered with a key made of ``SECRET_KEY``, what it stands for and the queue; the rest proves that it is
ours. So an id tells neither how many there are nor anything of another queue, and cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from urllib.parse import quote, urlencode

from django.conf import settings
from django.urls import reverse

_HALF = 0xFFFFFFFF
_PROOF_BYTES = 4


@lru_cache(maxsize=1024)
def _key(secret: str, kind: str, queue_id: int) -> bytes:
    return hashlib.sha256(f"leasequeue.zaqar:{kind}:{queue_id}:{secret}".encode()).digest()


def _round(key: bytes, number: int, half: int) -> int:
    salt = bytes([number]) * 8
    return int.from_bytes(hashlib.blake2s(half.to_bytes(4, "big"), key=key, salt=salt, digest_size=4).digest())


def _encipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in range(4):
        left, right = right, left ^ _round(key, number, right)
    return left << 32 | right


def _decipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in reversed(range(4)):
        left, right = right ^ _round(key, number, left), left
    return left << 32 | right


def _proof(key: bytes, value: int) -> str:
    return hmac.new(key, value.to_bytes(8, "big"), "sha256").digest()[:_PROOF_BYTES].hex()


def encode_id(kind: str, queue_id: int, number: int) -> str:
    """Return a number's opaque form for a kind (``message``, ``claim``, ``marker``): 24 hex digits."""
    key = _key(settings.SECRET_KEY, kind, queue_id)
    value = _encipher(key, number)
    return f"{value:016x}{_proof(key, value)}"


def decode_id(kind: str, queue_id: int, text: str) -> int | None:
    """Return the number behind an opaque form, ``None`` if it is not one of ours (``SECRET_KEY_FALLBACKS`` count)."""
    if len(text) != 2 * (8 + _PROOF_BYTES) or not text.isalnum():
        return None
    try:
        value = int.from_bytes(bytes.fromhex(text[:16]))
    except ValueError:
        return None
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        key = _key(secret, kind, queue_id)
        if hmac.compare_digest(_proof(key, value), text[16:].lower()):
            return _decipher(key, value)
    return None


def queue_path(name: str) -> str:
    """Return the path of a queue."""
    return reverse("leasequeue-zaqar:queue", args=[name])


def message_path(name: str, queue_id: int, seq: int, claim: int | None = None) -> str:
    """Return the path of a message, with its claim if it is held by the caller."""
    path = f"{queue_path(name)}/messages/{encode_id('message', queue_id, seq)}"
    return path if claim is None else f"{path}?claim_id={encode_id('claim', queue_id, claim)}"


def claim_path(name: str, queue_id: int, claim: int) -> str:
    """Return the path of a claim."""
    return f"{queue_path(name)}/claims/{encode_id('claim', queue_id, claim)}"


def next_link(path: str, query: dict[str, str], marker: str) -> list[dict[str, str]]:
    """Return the one ``next`` link of a list: the query as it was, the marker moved on."""
    return [{"rel": "next", "href": f"{quote(path)}?{urlencode({**query, 'marker': marker})}"}]
