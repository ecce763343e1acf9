"""Opaque ids: numbers of messages and claims, and markers, as strings that reveal nothing.

A number is enciphered with a key made of ``SECRET_KEY``, what it stands for and the queue; the rest of the string
proves that it is ours. So an id tells neither how many there are nor anything of another queue, and cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from django.conf import settings

_HALF = 0xFFFFFFFF
_PROOF_BYTES = 4
_LENGTH = 2 * (8 + _PROOF_BYTES)


@lru_cache(maxsize=1024)
def _key(secret: str, kind: str, queue_id: int) -> bytes:
    return hashlib.sha256(f"leasequeue.zaqar:{kind}:{queue_id}:{secret}".encode()).digest()


def _round(key: bytes, number: int, half: int) -> int:
    return int.from_bytes(
        hashlib.blake2s(half.to_bytes(4, "big"), key=key, salt=bytes([number]) * 8, digest_size=4).digest()
    )


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
    """Return the opaque form of ``number``: 24 hex digits.

    Args:
        kind: what it stands for: ``message``, ``claim`` or ``marker``; one cannot be used as the other.
        queue_id: the queue it belongs to.
        number: the message's, the claim's or the marker's.
    """
    key = _key(settings.SECRET_KEY, kind, queue_id)
    value = _encipher(key, number)
    return f"{value:016x}{_proof(key, value)}"


def decode_id(kind: str, queue_id: int, text: str) -> int | None:
    """Return the number behind an opaque form, ``None`` if it is not one of ours (``SECRET_KEY_FALLBACKS`` count)."""
    if len(text) != _LENGTH or not text.isalnum():
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
