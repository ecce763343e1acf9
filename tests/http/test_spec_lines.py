"""The rules of the door ``/v0/topics``, and that each of them has tests which name it (``test_<rule>_...``).

The letters: common G, topics L, writing W, reading R, claim C, ack nack extend A, dead letters D, streams S.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

RULES = {
    "g1": "every answer says what it took", "g2": "every error has one form", "g3": "the codes, and Retry-After",
    "g4": "JSON in, strictly", "g5": "keys, scopes, prefixes", "l1": "names", "l2": "a new topic echoes every field",
    "l3": "PUT again replaces; the type never changes", "l4": "clamps; dead letters go elsewhere", "l5": "durability",
    "l6": "the state of a topic", "l7": "the list of topics", "l8": "deleting topics",
    "w1": "appending, making the topic", "w2": "all or nothing, within limits", "w3": "idempotency keys",
    "w4": "at the cap", "r1": "diff, without gaps", "r2": "tombstones", "r3": "deleting records", "r4": "watch",
    "c1": "no leases on logs and absent topics", "c2": "what a claim may ask", "c3": "what a claim gives",
    "c4": "strict expiry, then again, before fresh jobs", "c5": "one holder at a time",
    "c6": "coalescing across processes", "a1": "ack and what is skipped", "a2": "nothing after the deadline",
    "a3": "batches and tokens", "a4": "nack with a delay", "a5": "extend sets",
    "d1": "after max_deliveries it is moved", "d2": "or delivered for ever", "d3": "the counters add up",
    "s1": "how a stream begins, and its heartbeats", "s2": "never more than max, a place that frees is filled",
    "s3": "what a dropped connection had is released",
}  # fmt: skip

_NAMED = re.compile(r"(?<=_)[glwrcads][1-9](?=_)")


def find_tests() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for rule in _NAMED.findall(node.name):
                    found[rule].append(f"{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_test(rule: str) -> None:
    assert find_tests()[rule], f"nothing tests {rule.upper()}: {RULES[rule]}"


def test_no_test_names_a_rule_that_is_not_there() -> None:
    assert set(find_tests()) <= set(RULES)
