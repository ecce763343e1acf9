"""Standard parameters of the statements of topics, messages, cohorts and streams."""

from __future__ import annotations

from typing import Any

from django_leasequeue.engine import arrays

from .cases_core import BUSY, PART, SINGLES, WHOLE, numbers
from .filling import AGAIN, BATCH, BATCHED, DEAD, FRESH, IDS, LATER, LEASED, OTHER, RECORDS
from .regimes import Case

HELD = [*WHOLE, *PART]


def read(topic: str, after: int, asked: int, **given: Any) -> Case:
    params = {
        "project": "", "topic": topic, "after": after, "size": 100, "nodes": "{}", "take": 101, "look": 1_000,
        "bytes": 1 << 24, "server": None, "sealed": 10**12, "heads": "{}", "marks": "{}", "ends": "{}", "known": 0, **given,
    }  # fmt: skip
    return Case("topic_read", params, asked)


def deal(queue: str, claimers: int, size: int, **given: Any) -> Case:
    params = {
        "project": "", "queue": queue, "nodes": arrays.texts(f"w{n}" for n in range(claimers)),
        "sizes": arrays.integers([size] * claimers), "leases": arrays.integers([None] * claimers),
        "connections": arrays.texts([None] * claimers), "shown": "{" + ",".join("t" * claimers) + "}", "most": 10_000,
        "bytes": 1 << 24, "all_bytes": 1 << 26, "force": True, **given,
    }  # fmt: skip
    return Case("deal", params, claimers * size)


def listing(after: int, **given: Any) -> Case:
    params = {"queue": IDS["other"], "after": after, "size": 20, "look": 1_000, **given}
    return Case("message_list", params, 20)


CASES = [
    # Its page, and all numbers that its live claims hold: 300 of 20,000 jobs and 50 of 10,000.
    read("busy", 0, 2_500),
    read("busy", AGAIN + 5_000, 2_500),
    read("busy", LEASED + 5_000, 2_500),
    read("busy", 10**9, 2_000),
    read("other", OTHER + 10_000, 100),
    read("other", OTHER, 1_000, nodes="{n1}", take=1_000),
    read("later", 0, 2_200),
    read("later", LATER + 19_000, 2_200),
    read("morgue", DEAD + 500, 2_200),
    read("letters", 0, 100),
    read("letters", RECORDS + 10_000, 100),
    read("empty", 0, 0),
    Case("topic_seal", {"server": "", "sealed": 0, "heads": "{}", "marks": "{}", "ends": "{}", "known": 0}),
    Case("topic_state", {"project": "", "topic": "busy", "cap": 1_000, "look": 100}, 8_000),
    Case("topic_state", {"project": "", "topic": "letters", "cap": 1_000, "look": 100}, 1_000),
    Case("topic_state", {"project": "", "topic": "empty", "cap": 1_000, "look": 100}),
    Case("topic_look", {"project": "", "topic": "busy"}, 1),
    Case("topic_list", {"project": "", "after": "", "prefix": "idle", "prefixes": "{}", "size": 100}, 100),
    Case("topic_names", {"project": "", "names": arrays.texts(IDS)}, len(IDS)),
    Case("topic_drop_before", {"queue": BUSY, "before": FRESH + 1_000, "size": 300}, 300),
    Case("topic_drop_before", {"queue": IDS["letters"], "before": RECORDS + 1_000, "size": 300}, 300),
    Case("topic_drop_before", {"queue": IDS["later"], "before": LATER + 100, "size": 300}, 20_000),
    Case("topic_drop_tag", {"queue": IDS["other"], "low": "rare", "high": "rare", "size": 300}, 300),
    Case("topic_drop_tag", {"queue": IDS["letters"], "low": "rare", "high": "rare", "size": 300}, 300),
    Case("topic_drop_tag", {"queue": IDS["later"], "low": "tag-1", "high": "tag-1", "size": 300}, 300),
    Case("cap_lock", {"queue": BUSY}),
    Case("cap_note", {"queue": IDS["capped"], "seqs": numbers(RECORDS, 100)}, 100),
    Case("cap_count", {"queue": IDS["capped"]}, 5_000),
    Case("cap_count", {"queue": IDS["stale"]}, 2_000),
    Case("cap_trim", {"queue": IDS["capped"], "records": 100, "bytes": 0, "size": 100}, 100),
    Case("cap_trim", {"queue": IDS["other"], "records": 100, "bytes": 0, "size": 100}, 100),
    listing(OTHER),
    listing(OTHER + 10_000, origin="somebody"),
    listing(0, queue=BUSY, held=0),
    listing(0, queue=BUSY, size=0, held=0, upto=10**9, look=100),
    Case("message_get", {"queue": IDS["other"], "seqs": numbers(OTHER, 20)}, 20),
    Case("message_get", {"queue": BUSY, "seqs": arrays.integers(PART)}, 20),
    Case("message_ends", {"queue": IDS["other"]}, 2),
    Case("message_ends", {"queue": BUSY}, 1_000),
    Case("claim_get", {"queue": BUSY, "claim": BATCHED}, BATCH),
    Case("claim_seqs", {"queue": BUSY, "claim": BATCHED}, BATCH),
    Case("claim_renew", {"queue": BUSY, "claim": BATCHED, "ttl_ms": 60_000, "grace_ms": None}, BATCH),
    Case("list_record", {"project": "", "queue": "letters", "seq": RECORDS + 10_000, "size": 100}, 100),
    Case("idempotency_find", {"queue": BUSY, "key": "idem-7"}, 1),
    Case("idempotency_keep", {"queue": BUSY, "key": "idem-7", "seqs": "{1}"}, 1),
    Case("idempotency_take", {"queue": BUSY, "key": "new", "window_ms": 1_000}, 20),
    deal("other", 10, 10),
    deal("busy", 3, 1),
    deal("empty", 10, 10),
    deal("busy", 3, 1, force=False),
    Case("cohort_lock", {"queue": BUSY}),
    Case("cohort_join", {"queue": BUSY, "jitter_ms": 5, "nodes": "{a,b}", "sizes": "{1,1}", "leases": "{NULL,NULL}",
        "connections": "{NULL,NULL}"}, 2),
    Case("cohort_open", {"queue": BUSY, "size": 5_000}),
    Case("cohort_take", {"ids": "{1,2}"}),
    Case("cohort_leave", {"ids": "{1,2}"}),
    Case("cohort_mark", {"ids": "{1,2}", "claims": "{1,2}", "own": "{1}"}),
    Case("work_due", {"queue": BUSY}, 1),
    Case("work_held", {"seqs": arrays.integers(HELD), "claims": arrays.integers([BATCHED, BATCHED + BATCH])}, 2 * BATCH),
    Case("work_held", {"seqs": arrays.integers(SINGLES), "claims": arrays.integers(SINGLES)}, 10),
]  # fmt: skip
