from __future__ import annotations

import time
import uuid

from django_leasequeue.tasks.ids import new_id


def test_an_id_is_a_version_7_uuid_of_now() -> None:
    before = time.time_ns() // 1_000_000
    text = new_id()
    after = time.time_ns() // 1_000_000
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert before <= parsed.int >> 80 <= after


def test_ids_differ_and_their_random_bits_are_all_used() -> None:
    ids = [uuid.UUID(new_id()).int for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    fixed = (0b1111 << 76) | (0b11 << 62)
    ones = zeros = 0
    for value in ids:
        ones |= value
        zeros |= ~value
    random_bits = ((1 << 80) - 1) & ~fixed
    assert ones & random_bits == random_bits
    assert zeros & random_bits == random_bits
