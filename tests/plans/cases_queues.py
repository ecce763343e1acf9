"""Standard parameters of the statements about queues, topics, messages and single jobs."""

import json
from datetime import timedelta
from typing import Any

from django_leasequeue.engine import arrays
from django_leasequeue.models import Queue

from .cases_core import BUSY, EVERY, keys, numbers
from .filling import BATCHED, CAPPED, DEAD, DONE, FRESH, IDLE, IDS, LATER, LEASED, NOW, OTHER, RECORDS
from .regimes import Case

MIXED = arrays.integers([FRESH + 3, LATER + 3, DEAD + 3, RECORDS + 3, DONE + 3, LEASED + 3, 7])
#: The hour whose events are at hand.
HOUR_AGO = NOW - timedelta(hours=1)
HOUR = {"now": NOW - timedelta(milliseconds=1), "bounds": "{11,101,1001}"}
#: A look at jobs of every kind, without a test of the payload.
WALK = {"size": 1_000, "roots": "{}", "paths": "{}", "equal": "{}", "jsons": "{}", "words": "{}",
    "payloads": True}  # fmt: skip
SEALING = {"known": 0, "sealed": 0, "heads": "{}", "marks": "{}", "ends": "{}"}


def of(queue: str, **given: Any) -> dict[str, Any]:
    return {"queue": queue, **given}


def named(name: str, **given: Any) -> dict[str, Any]:
    return {"name": name, **given}


def read(topic: str, after: int, **given: Any) -> Case:
    params = {**SEALING, "topic": topic, "after": after, "size": 100, "take": 200, "look": 200}
    return Case("topic_read", {**params, "nodes": "{}", "bytes": 1 << 24, **given}, 100)


#: Every option of a queue.
DEFAULTS = {field.name: field.get_default() for field in Queue._meta.fields if field.has_default()}
CONFIG = json.dumps({**DEFAULTS, "type": "queue"})
MESSAGES = {"queue": IDS["other"], "after": 0, "size": 20, "look": 20}

CASES = [
    Case("queue_get", named("busy"), 1),
    Case("queue_names", {"queues": EVERY}, len(IDS)),
    Case("queue_list", {"after": "idle-1", "prefix": "", "prefixes": "{}", "size": 50}, 50),
    Case("queue_page", {"after": 0, "size": 50}, 50), Case("routes", {"size": 50, "after": 10.0}, 50),
    Case("route_drained", named("none", moved_at=NOW, writers="{}", drained=True), 1),
    Case("route_move", named("new", alias="a", source="b"), 1),
    Case("queue_lock", named("busy"), 1),
    Case("queue_hold", named("busy"), 1), Case("queue_empty", named("busy", ended=True), 1),
    Case("queue_pause", named("busy", paused=True), 1), Case("queue_metadata", named("busy", metadata="{}"), 1),
    Case("task_pause", named("shop.a", by=""), 1), Case("task_resume", named("shop.a"), 1),
    Case("task_pauses", {"size": 1_000}, 1), Case("task_due", named("app.task_3", after=0, size=1_000), 1_000),
    Case("queue_create", named("new", config=CONFIG, tasks=False), 1),
    Case("queue_update", named("busy", config=CONFIG), 1),
    Case("queue_delete", named("idle-7"), 1),
    Case("queue_counts", {"names": arrays.texts(IDS), "ids": "{}", "cap": 1_000}, 10_000),
    Case("queue_counts", {"names": arrays.texts(["empty"]), "ids": "{}", "cap": 100}, 100),  # without a sample
    Case("queue_state", of("busy", size=100), 100),
    *(Case("worker_queues", {"names": "{busy,later}", "patterns": patterns, "excluded": "{busy}", "size": 10_000}, most)
      for patterns, most in ((None, 2), ("{%,l%r}", len(IDS) + IDLE))),
    Case("worker_tasks", {"queues": EVERY, "declared": "{}"}, len(IDS)),
    Case("list_ready", of("busy", size=100), 100),
    Case("list_ready", of("busy", size=100, rank=-1, position=FRESH + 20_000), 100),
    Case("list_delayed", of("later", size=100), 100), Case("list_leased", of("busy", size=100), 100),
    Case("list_dead", of("morgue", size=100), 100),
    Case("list_dead", of("morgue", size=100, fingerprint="print-7"), 100),
    Case("list_record", of("letters", size=100, seq=RECORDS + 5_000), 100),
    Case("jobs", of("busy", seqs=numbers(FRESH, 100), payload=True, states=None, bytes=1 << 20), 100),
    Case("jobs", {"seqs": MIXED, "payload": True, "bytes": 1 << 20}, 7), Case("result_json", {"seq": DONE + 5_000}, 1),
    Case("result_slice", {"seq": DONE + 5_000, "start": 0, "size": 10}, 1),
    Case("result_ttl", of("busy", seq=DONE + 5_000, ttl=1_000), 1),
    Case("result_ttl", of("busy", seq=FRESH + 5, ttl=1_000), 1),
    Case("result_ttl", of("busy", seq=LEASED + 5, ttl=1_000), 1),
    Case("task_result", {"key": f"busy-{DONE + 8_000}"}, 1),
    Case("job_status", of("busy", seqs=MIXED, keys="{}", inline=1_000), 7),
    Case("job_status", of("busy", seqs="{}", keys=keys("busy", FRESH, 50), inline=1_000), 50),
    Case("key_seqs", of("busy", keys=keys("busy", FRESH, 100), seqs=numbers(LEASED + 1, 100)), 200),
    Case("reply_check", {"seqs": MIXED}, 7),
    Case("reply_results", {"seqs": numbers(DONE + 5_000, 50), "inline": 1_000}, 50),
    Case("reply_results", {"seqs": numbers(FRESH, 50), "inline": 1_000}, 50),
    Case("reply_join", {"room": 1_000, "channel": "c", "seq": FRESH + 9}, 1),
    Case("reply_join", {"room": 1_000, "channel": "c", "seq": LATER + 9}, 1), Case("server_time", {}, 1),
    Case("message_ends", {"queue": IDS["other"]}, 2),
    Case("message_get", {"queue": IDS["other"], "seqs": numbers(OTHER, 20)}, 20), Case("message_list", MESSAGES, 20),
    Case("message_list", {**MESSAGES, "after": OTHER + 10_000}, 20),
    Case("claim_get", {"queue": BUSY, "claim": BATCHED}, 200), Case("claim_seqs", {"queue": BUSY, "claim": BATCHED}, 1),
    Case("claim_renew", {"queue": BUSY, "claim": BATCHED, "ttl_ms": 60_000, "grace_ms": 1_000}, 1),
    Case("work_due", {"queue": BUSY}, 1),
    Case("work_held", {"claims": arrays.integers([LEASED, LEASED + 1]), "seqs": arrays.integers([LEASED, LEASED + 1])},
        2),
    Case("topic_look", {"topic": "letters"}, 1), Case("topic_names", {"names": arrays.texts(IDS)}, len(IDS)),
    Case("topic_seal", SEALING), Case("timeline_note", {"first": True}, 1),
    Case("timeline_kept", {"timeline": 1, "current": 2}, 1),
    read("letters", RECORDS + 5_000), read("letters", RECORDS + 5_000, nodes="{x}"), read("other", OTHER + 5_000),
    Case("topic_state", {"topic": "letters", "cap": 1_000, "look": 1_000}, 1_000),
    Case("topic_state", {"topic": "other", "cap": 1_000, "look": 1_000}, 1_000),
    Case("topic_state", {"topic": "busy", "cap": 20, "look": 1_000}, 1_000),
    Case("topic_drop_before", {"queue": IDS["letters"], "before": RECORDS + 5_000, "size": 100}, 100),
    Case("topic_drop_before", {"queue": IDS["other"], "before": OTHER + 5_000, "size": 100}, 100),
    Case("topic_drop_tag", {"queue": IDS["letters"], "low": "rare", "high": "rare", "before": 10**9, "size": 100}, 100),
    Case("cap_lock", {"queue": IDS["capped"]}, 1),
    Case("cap_note", {"queue": IDS["capped"], "seqs": numbers(CAPPED, 100)}, 100),
    Case("cap_trim", {"queue": IDS["capped"], "records": 100, "bytes": 0, "size": 100}, 100),
    Case("cap_count", {"queue": IDS["capped"]}, 5_000), Case("idempotency_find", {"queue": BUSY, "key": "idem-77"}, 1),
    Case("idempotency_keep", {"queue": BUSY, "key": "idem-77", "seqs": "{1}"}, 1),
    Case("idempotency_take", {"queue": BUSY, "key": "idem-new", "window_ms": 1_000}, 1),
    Case("apikey_find", {"prefix": "prefix77", "every": 60.0}, 1), Case("apikey_used", {"id": 77, "every": 60.0}, 1),
    Case("cohort_join", {"queue": BUSY, "jitter_ms": 100, "nodes": "{a}", "sizes": "{10}", "leases": "{NULL}",
        "connections": "{NULL}"}, 1),
    Case("cohort_open", {"queue": BUSY, "size": 10}, 10), Case("cohort_lock", {"queue": BUSY}, 1),
    Case("cohort_take", {"ids": numbers(1, 10)}, 10), Case("cohort_leave", {"ids": numbers(1, 10)}, 10),
    Case("cohort_mark", {"ids": numbers(1, 10), "claims": numbers(1, 10), "own": "{1}"}, 10),
    Case("deal", of("other", nodes="{a,b}", sizes="{50,50}", leases="{NULL,NULL}", connections="{NULL,NULL}",
        shown="{t,t}", force=True, most=100, bytes=1 << 24, all_bytes=1 << 25), 100),
    Case("admin/walk_jobs", {**WALK, "below": DONE + 5_000, "enough": 50}, 1_000),
    Case("admin/walk_jobs", {**WALK, "below": DONE, "enough": 50, "states": "{2}", "text": "no such error"}, 1_000),
    Case("admin/walk_jobs", {**WALK, "below": 2**62, "enough": 50, "only": numbers(DONE, 100)}, 100),
    Case("search_indexes"),
    *(Case(f"admin/{name}", {"task": "app.task_3", "since": HOUR_AGO, "bucket": 120, "size": 10}, 10_000, log=True)
        for name in ("task_times", "task_errors")),
    Case("admin/job_after", {"at": NOW}, 1),
    *(Case("admin/suspended", {"waits": waits, "at": "1970-01-01 00:00+00", "event": "", "seq": 0, "size": 500},
        500) for waits in (False, True)),
    Case("paused", {"size": 10_000}, 10_000), Case("suspended", {"size": 10_000}, 20_000),
    Case("step_rouse", {"seq": LATER + 7}, 1),
    Case("run_now", {"seq": LATER + 7}, 1), Case("admin/job_source", {"seq": FRESH + 7}, 1),
    Case("queue_health", {"queues": EVERY, "silent": 30, "old": 300}, 201 * len(IDS)),
    Case("queue_ages", {"queues": EVERY}, len(IDS)), Case("queue_rest", {"after": 0}, len(IDS) + IDLE),
    Case("log_counts", {**HOUR}, 10_000, log=True),
    Case("log_counts", {**HOUR, "since": NOW - timedelta(hours=1), "snapshot": "1900:1900:"}, 2_000, log=True),
    Case("lake_lag", {"size": 20}, 20, log=True), Case("admin/worker_stop", {"id": 7}, 1),
]  # fmt: skip
