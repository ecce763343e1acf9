"""Standard parameters of the statements of limits, workflows, upkeep, workers, triage and the stream."""

from datetime import timedelta

from django_leasequeue.engine import arrays

from .cases_core import BUSY, EVERY, numbers
from .filling import DEAD, DONE, FRESH, HELD, IDLE, IDS, LEASED, LETTERS, NOW, PARKED
from .regimes import Case

#: Of two recurring tasks.
TICKS = arrays.times([NOW, NOW])

DEATHS = {"queues": arrays.integers([IDS["morgue"], IDS["annex"]]), "each": 100, "size": 100}
GROUP = {**DEATHS, "fingerprint": "print-7"}
CAUSES = {
    "queues": arrays.integers([IDS["morgue"]] * 20),
    "fingerprints": arrays.texts(f"print-{n}" for n in range(20)),
    "cap": 1_000_000,
}
#: Where dead letters stand: in their own queue, in a log, in another queue.
DEATH_PLACES = ((DEAD, "morgue"), (LETTERS, "letters"), (PARKED, "parked"))
#: Since when half of the log's rows were written.
HOUR = NOW - timedelta(hours=1)
PART = "{00000000-0000-0000-0000-000000000007}"
REPLAY = {"parts": PART, "low": 0, "high": 10**6}
#: The workflow with this number, and one that has ended long ago.
UID = "00000000-0000-0000-0000-{:012d}"
TAGGED = {
    "tags": f'{{"customer": {FRESH + 7}}}', "below": 2**62,
    "size": 50,
}  # fmt: skip
NAMES = arrays.texts(f"limit-{n}" for n in range(1, 21))


def repeated(value: str, count: int = 20) -> str:
    return "{" + ",".join([value] * count) + "}"


CASES = [
    Case("turn_add", {"queue": "busy", "kind": 1, "key": None, "seqs": numbers(HELD, 20), "detail": "{}"}, 1),
    Case("turn_take", {"queues": EVERY, "size": 10, "starts": 10}, 10 * 10), Case("turn_mend", {}, len(IDS) + IDLE),
    Case("flow_return", {"seqs": numbers(1, 20), "wait": 50}, 20), Case("due_turns", {}, len(IDS) + IDLE),
    Case("limit_set", {"names": NAMES, "concurrencies": repeated("7"), "rates": repeated("NULL"),
        "pers": repeated("NULL"), "bursts": repeated("0"), "fairs": repeated("f"), "pin": False}, 20),
    Case("limit_reset", {"name": "limit-10"}, 1),
    Case("limit_waiting", {"limits": "{1,2}"}, 400),
    Case("limit_keys", {"names": NAMES, "keys": arrays.texts(f"new-{n}" for n in range(20))}, 20),
    Case("member_join", {"seqs": numbers(HELD, 20), "names": repeated("limit-2"), "keys": repeated("key-1")}, 20),
    Case("slots_free", {"queue": IDS["empty"]}, 1),
    Case("flow_lock", {"seqs": numbers(DONE, 20), "keys": numbers(1, 20)}, 40),
    Case("flow_look", {"seqs": arrays.integers([*range(DONE, DONE + 10), *range(HELD, HELD + 10), *range(LEASED,
        LEASED + 10)])}, 30),
    Case("flow_admit", {"keys": numbers(1, 20), "most": 1_000, "queues": EVERY, "room": 100}, 100),
    Case("flow_hold", {"keys": numbers(1, 20), "most": 1_000}, 100),
    Case("member_follow", {"old": DONE + 5, "new": 9_000_000_000}, 1),
    Case("flow_ready", {"seqs": numbers(HELD + 10_000, 2)}, 2),
    Case("flow_children", {"seqs": numbers(DONE, 20), "tolerant": False, "back": False}, 20),
    Case("flow_cancel", {"seqs": numbers(DONE, 2), "back": False}, 2),
    Case("key_lock", {"keys": numbers(1, 20), "queues": repeated(str(BUSY))}, 20),
    Case("workflow_count", {"workflows": numbers(1, 20), "completed": repeated("1"), "failed": repeated("0"),
        "cancelled": repeated("0"), "keep": 1_000}, 20),
    Case("flow_broken", {"seqs": numbers(HELD + 10_000, 20)}, 100),
    Case("workflow_add", {"uid": UID.format(9_999_999), "name": "", "shape": 0, "total": 20, "edges": 0,
        "keep_ms": 86_400_000}, 1),
    Case("member_add", {"workflow": 7, "first": 0, "seqs": numbers(FRESH, 20), "pendings": repeated("0"),
        "tolerants": repeated("f"), "labels": repeated('""'), "parents": repeated("NULL"), "children": repeated("NULL"),
        "failures": "{}", "delays": "{}", "starts": "{}"}, 20),
    Case("flow_delay", {"seqs": numbers(HELD + 10_000, 2)}, 2),
    Case("flow_needless", {"seqs": numbers(HELD + 10_000, 2)}, 2), Case("member_workflow", {"seq": HELD + 10_000}, 1),
    Case("workflow_open", {"uid": UID.format(7), "known": numbers(HELD + 10_000, 20)}, 20),
    Case("workflow_link", {"workflow": 7, "seqs": numbers(HELD + 10_000, 20), "edges": 5}, 120),
    Case("workflow_lock", {"workflows": numbers(1, 10), "seqs": numbers(HELD + 10_000, 10)}, 20),
    Case("workflow_log", {"workflow": 7, "seqs": arrays.integers([*range(DONE + 30, DONE + 35), HELD + 10_006])}, 6),
    Case("workflow_get", {"uid": UID.format(7)}, 1),
    Case("workflow_nodes", {"workflow": 7, "after": 0, "size": 10, "results": True}, 10),
    Case("tagged_jobs", TAGGED, 1, log=True), Case("workflow_queues", {"workflow": 7}, 6),
    Case("limit_list", {"project": None, "size": 20, "keys": 200, "cap": 200}, 20 * 200),
    Case("limit_busy", {"limit": 1, "after": "", "size": 200, "cap": 200, "most": 20}, 200),
    Case("step_replacements", {"seqs": numbers(DONE, 20)}, 20), Case("member_get", {"seq": HELD}, 1),
    Case("member_inputs", {"seq": HELD + 10_000}, 5), Case("workflow_cancel", {"uid": UID.format(7)}, 6),
    Case("workflow_expire", {"size": 5}, 30), Case("dead_queues", {"project": None, "prefixes": "{}", "size": 50}, 312),
    Case("dead_groups", {"queues": DEATHS["queues"], "size": 100}, 100),
    Case("dead_groups", {"queues": DEATHS["queues"], "size": 100, "fingerprint": "print-7"}, 2),
    Case("dead_group_counts", CAUSES, 20_000), Case("dead_group_counts_within", CAUSES, 20_000),
    Case("dead_group_counts", {**CAUSES, "fingerprints": arrays.texts(f"of none {n}" for n in range(20))}, 20),
    Case("dead_group_figures", {"queues": arrays.integers([IDS["morgue"]] * 10),
        "fingerprints": arrays.texts(f"print-{n}" for n in range(10)), "low": NOW - timedelta(hours=6),
        "step": 3_600_000_000, "buckets": 6, "cap": 100, "bucket_cap": 20}, 10 * (100 + 6 * 20)),
    Case("dead_newest", DEATHS, 100),
    Case("dead_newest", {**DEATHS, "at": NOW - timedelta(seconds=4_000), "seq": DEAD + 4_000}, 100),
    Case("dead_newest_group", GROUP, 100), Case("dead_oldest", {**DEATHS, "until": NOW}, 100),
    Case("dead_oldest_group", {**GROUP, "until": NOW}, 100),
    Case("dead_count", {"queues": DEATHS["queues"], "cap": 1_000}, 1_000),
    *(Case("dead_new", {"queues": queues, "recent": 86_400, "least": 1, "cap": 1_000}, len(IDS) + IDLE)
        for queues in (None, DEATHS["queues"])),
    Case("dead_count", {"queues": DEATHS["queues"], "cap": 500, "fingerprint": "print-7"}, 500),
    Case("dead_rows", {"seqs": numbers(DEAD, 50), "payload": True}, 50),
    Case("dead_rows", {"seqs": numbers(PARKED, 50), "payload": True}, 50),
    Case("dead_match", {"seqs": numbers(DEAD, 100), "roots": "{}", "paths": "{}", "equal": "{}", "jsons": "{}",
        "words": "{}", "text": "number"}, 100),
    *(Case("dead_lock", {"seqs": numbers(first, 100)}, 100) for first, _ in DEATH_PLACES),
    *(Case("dead_discard", {"seqs": numbers(first, 100), "reason": "x"}, 100) for first, _ in DEATH_PLACES),
    *(Case("dead_edit", {"queue": queue, "seq": first + 9, "dead_at": NOW - timedelta(seconds=9), "data": "{}"},
        1) for first, queue in DEATH_PLACES),
    *(Case("redrive", {"queue": queue, "target": target, "seqs": numbers(first, 100), "delays": "{}"}, 100) for first,
        queue in DEATH_PLACES for target in ("morgue", "other")),
    Case("operation_next", {"size": 10}, 10), Case("operation_take", {"id": 1, "size": 100}, 1),
    Case("worker_due", {"queues": EVERY}, len(IDS)), Case("worker_gone", {"node": "worker-7"}, 1),
    Case("worker_states", {"size": 100, "lease": 30}, 100), Case("worker_expire", {"days": 1.0, "size": 100}, 100),
    Case("worker_strays", {"node": "n7", "queues": arrays.integers([BUSY]), "known": "{}", "size": 100}, 100),
    Case("worker_seen", {"node": "worker-7", "host": "h", "pid": 1, "queues": "{busy}", "concurrency": 1,
        "state": "running", "age": 1.0, "completed": 0, "failed": 0, "retried": 0, "lost": 0, "running": "[]",
        "info": "{}"}, 1),
    Case("reaper_look", {}, 1), Case("reaper_channel", {}, 1),
    Case("reaper_lead", {"holder": "b", "term": 7, "beat": 7}, 1),
    Case("reaper_beat", {"term": 7, "holder": "a", "duties": "[]"}, 1),
    Case("reaper_fence", {"term": 7, "holder": "a", "idle": 4_000, "statement": 8_000}, 1),
    Case("reaper_resign", {"term": 7, "holder": "a"}, 1),
    Case("recurring_take", {"ids": "{7,8}", "ticks": TICKS, "nexts": TICKS}, 2),
    Case("recurring_ticked", {"ids": "{7,8}", "ticks": TICKS, "nexts": TICKS, "seqs": "{1,NULL}", "error": ""}, 2),
    Case("recurring_plan", {"id": 7, "next_tick_at": NOW}, 1), Case("recurring_list", {"after": 0, "size": 100}, 100),
    Case("recurring_due", {"size": 100}, 10), Case("recurring_names", {"service": "s"}, 1_000),
    Case("recurring_note", {"id": 7, "seq": None, "error": "e", "again_at": NOW}, 1),
    Case("recurring_compile", {"id": 7, "template": "{}"}, 1),
    Case("recurring_made", {"service": "s", "after": 0, "size": 100}, 1_000),
    Case("stat_expire", {"days": 1.0, "size": 1_000}, 1_000), Case("stat_totals", {"after": "", "size": 100}, 100),
    Case("event_needed", {"days": 3.0, "low": 0, "high": 2_000_000}, 1, log=True),
    Case("event_default_rows", {"size": 1_000}, 1),
    Case("stat_insert", {"queues": EVERY, **dict.fromkeys(["ready", "delayed", "leased", "dead", "records"],
        arrays.integers([1] * len(IDS))), "oldest": "{}"}, len(IDS)),
    Case("operation_change", {"id": 1, "state": "paused", "sources": "{running}"}, 1),
    Case("operation_note", {"id": 1, "state": "done", "looked_at": 1, "done": 1, "conflicts": 0,
        "conflict_counts": "{}", "conflict_sample": "[]", "error": ""}, 1),
    Case("operation_start", {"kind": "retry", "queue": "annex", "filters": "", "frozen_at": NOW, "jitter_ms": 0,
        "reason": "x", "user_id": "u", "username": "u", "expected": 1, "expected_capped": False}, 1),
    Case("recurring_declare", {"service": "s", "name": "t7", "schedule": "* * * * *", "timezone": "UTC", "task": "y",
        "args": "[]", "kwargs": "{}", "backend": "default", "queue_name": "busy", "phase": 0, "jitter": 0,
        "enabled": True, "template": "{}"}, 1),
    Case("recurring_release", {"id": 7}, 1),
    Case("recurring_adopt", {"service": "s", "name": "t7", "schedule": "* * * * *", "timezone": "UTC", "task": "y",
        "args": "[]", "kwargs": "{}", "backend": "", "queue_name": "busy", "phase": 0, "jitter": 0, "runs": 0,
        "enabled": True, "paused": False, "from_settings": True, "created_at": NOW,
        "last_tick_at": NOW}, 1),
    Case("recurring_undeclare", {"service": "s", "names": arrays.texts(f"t{n}" for n in range(11, 1_001))}, 1_000),
    Case("lake/consumer_report", {"name": "c7", "txid": 2, "event": 2, "horizon": 2}, 1),
    Case("stage_sources", {"seqs": numbers(FRESH, 100), "sources": numbers(1, 100)}, 100),
    Case("unique_expire", {"queue": 1, "key": "", "size": 100}, 100), Case("orphans", {"queue": 1, "size": 100}, 100),
    Case("orphan_jobs", {"queue": 1, "after": 0, "size": 100}, 100), Case("orphan_queues", {"size": 10}, 10),
    Case("notify_oldest", {}, 1), Case("admin/event_reach", {"since": HOUR, "size": 1_000}, 1, log=True),
    Case("admin/event_sizes", {"seconds": 3_600}, 1, log=True),
    Case("admin/event_rates", {"since": HOUR, "bucket": 600, "sampled": 1_000}, 10_000, log=True),
    Case("admin/task_rates", {"since": HOUR, "size": 100, "sampled": 1_000}, 10_000, log=True),
    Case("lake/count", {"txid": 1_100, "id": 0, "last_txid": 1_200, "last_id": 10**9}, 1, log=True),
    Case("lake/any", {"txid": 1_100, "id": 0, "last_txid": 1_200, "last_id": 10**9}, 1, log=True),
    Case("lake/nth", {"txid": 1_100, "id": 0, "last_txid": 1_200, "last_id": 10**9, "most": 500}, 1, log=True),
    Case("epoch_look", {}, 1), Case("epoch_note", {}, 1),
    Case("epoch_move", {"epoch": 1, "low": 1_100, "high": 1_200}, 1, log=True),
    Case("lake/consumer_position", {"name": "c7"}, 1), Case("lake/write_known", {"write_id": "w7", "batch": 7}, 1),
    Case("lake/write_enqueued", {"write_id": "w7"}, 1),
    Case("lake/write_take", {"write_id": "w7", "batch": 10**6, "staged": 1}, 1),
    Case("lake/write_done", {"write_id": "w7", "batch": 7, "enqueued": 1}, 1),
    Case("lake/stage_count", {"parts": PART}, 1), Case("stage_jobs", {"parts": PART, "low": 0, "high": 10**6}, 100),
    Case("lake/stage_missing", {"parts": PART}, 1), Case("lake/stage_drop", {"parts": PART}, 100),
    *(Case("replay", {**REPLAY, "results": results}, 100) for results in (True, False)),
    *(Case("replay_done", {**REPLAY, "results": results, "freed": "{}"}, 100) for results in (True, False)),
    Case("large_link", {"ids": numbers(10, 100, 10), "seqs": numbers(FRESH, 100)}, 100),
    Case("large_unused", {"grace": 3_600.0, "after": 0, "size": 100}, 100),
    Case("large_left", {"after": 0, "size": 1_000}, 1_000), Case("large_forget", {"ids": numbers(1, 100)}, 100),
]  # fmt: skip
