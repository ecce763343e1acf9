"""Standard parameters of the statements that jobs pass through."""

from typing import Any

from django_leasequeue.engine import arrays

from .filling import BATCH, BATCHED, DEAD, DONE, FRESH, GRAVES, IDLE, IDS, LATER, LEASED, NOW, OVER, RECORDS, STALE
from .regimes import Case

BUSY, EVERY = IDS["busy"], arrays.integers(IDS.values())
#: A claim as a whole, some of another, one job each of many.
WHOLE = list(range(BATCHED, BATCHED + BATCH))
PART = list(range(BATCHED + BATCH, BATCHED + BATCH + 20))
SINGLES = list(range(LEASED, LEASED + 20_000, 2_000))


def numbers(first: int, count: int, step: int = 1) -> str:
    return arrays.integers(range(first, first + count * step, step))


def keys(name: str, first: int, count: int) -> str:
    """Keys of jobs that have one: every fourth."""
    return arrays.texts(f"{name}-{first + 4 * n}" for n in range(count))


def new_jobs(count: int, **given: Any) -> dict[str, Any]:
    names = (
        "keys names tags priorities datas metas bodies run_at delays ttls reply_to result_ttls max_deliveries origins"
    )
    empty = dict.fromkeys([*names.split(), "flows", "id_ends", "tagged"], arrays.EMPTY)
    place = {"queue": "busy", "numbers": numbers(1, count), "locked": False, "held": False}
    return {**empty, **place, **given}


def settle(seqs: list[int], token: int | None, node: str, **given: Any) -> dict[str, Any]:
    tokens = [token or seq for seq in seqs]
    claims = {"tokens": arrays.integers(sorted(set(tokens))), "claims": arrays.integers(tokens)}
    return {"node": node, "seqs": arrays.integers(seqs), **claims, **given}


def settled_three_ways(name: str, each: str = "", value: str = "1", **given: Any) -> list[Case]:
    """All of a claim; a tenth of it; jobs of several claims. ``each`` is a parameter with a value for each job."""

    def case(seqs: list[int], token: int | None, node: str, asked: int) -> Case:
        own = {each: arrays.texts([value] * len(seqs))} if each else {}
        return Case(name, settle(seqs, token, node, **given, **own), asked)

    return [
        case(WHOLE, BATCHED, "holder-0", BATCH),
        case(PART, BATCHED + BATCH, "holder-1", BATCH),
        case(SINGLES, None, "n0", 10),
    ]


def removal(queue: str, first: int, count: int, state: int, **given: Any) -> Case:
    params = {"queue": IDS[queue], "seqs": numbers(first, count), "places": arrays.integers([state]), "reason": "x"}
    return Case("remove", {**params, "expired": False, "undo": False, **given}, count)


ENDING = {"bodies": "{}", "tracebacks": "{}"}
FAILURE = {"error_types": "{}", "errors": "{}", "fingerprints": "{}", "rans": "{}"}
CLAIM = {"queue": BUSY, "ranks": "{-2,-1,0}", "lows": arrays.integers([FRESH] * 3), "node": "n", "size": 100}
CLAIM |= {"grace_ms": 0, "slots": False}
PLACE = {"queue": "busy"}
ONE = {**PLACE, "name": "app.task", "data": "{}", "flags": 0}

STEP = {"seq": LEASED, "token": LEASED, "node": "n0", "name": "new", "number": 1, "delivery": 1}

MIXED = {**CLAIM, "suspect_alone": True, "bytes": 1 << 24, "first": True}

CASES = [
    Case("enqueue_one", {**ONE, "key": "new"}, 1), Case("enqueue_one", {**ONE, "key": f"busy-{FRESH}"}, 1),
    Case("enqueue", new_jobs(1, names="{x}"), 1), Case("enqueue", new_jobs(200, names=arrays.texts(["x"] * 200)), 200),
    Case("enqueue", new_jobs(200, keys=keys("busy", FRESH, 200)), 200),
    Case("enqueue", new_jobs(200, queue="letters"), 200),
    *(Case("key_taken", {**PLACE, "keys": keys("busy", first, 50)}, 50) for first in (FRESH, DONE, LEASED)),
    *(Case("unique_look", {**PLACE, "keys": keys("busy", first, 50), "free": first == DONE}, 50) for first in (FRESH,
        DONE, LEASED)),
    *(Case("unique_take", {**PLACE, "keys": keys(name, FRESH, 50)}, 50) for name in ("busy", "new")),
    *(Case("step_put", {**STEP, "value": "1", "locks": locks, "autocommit": not locks}, 1) for locks in (True, False)),
    Case("wait_forget", {"seq": LEASED, "name": "step 50"}, 1),
    Case("step_held", {"seq": LEASED, "token": LEASED, "node": "n0"}, 1),
    Case("step_wait", {**STEP, "delay": 1_000}, 1), Case("step_wait", {**STEP, "event": "event 7", "delay": 1_000}, 1),
    Case("step_wake", {"seqs": numbers(LEASED, 100)}, 100),
    Case("step_waiting", {"event": "event 1", "seq": 0, "size": 1_000}, 1_000),
    Case("step_results", {"event": "", "size": 100}, 100), Case("step_results", {"event": "$w", "size": 100}, 100),
    Case("event_emit", {"name": "event new", "payload": "1", "keep": 60_000, "size": 10_000}, 1),
    Case("event_forget", {"size": 1_000}, 1_000), Case("step_list", {"seq": LEASED, "size": 10_000}, 200),
    Case("step_place", {"queue": "busy", "seq": LEASED, "token": LEASED, "node": "n0"}, 100),
    Case("step_get", {"seq": LEASED, "name": "step 50"}, 1),
    Case("step_page", {"seq": LEASED, "after": 10, "size": 1_000, "bytes": 16_777_216}, 100),
    Case("step_having", {"seqs": numbers(LEASED, 100), "name": "step 50"}, 100),
    Case("step_redo", {"seqs": numbers(LEASED, 100), "name": "step 50"}, 5_000),
    Case("undo_open", {"seq": LEASED + 200, "more": 10, "delivery": 1}, 1),
    Case("undo_note", {"seq": LEASED + 1, "token": LEASED + 1, "node": "n1", "change": "{}", "most": 3,
        "repeats": 1}, 1),
    Case("undo_forget", {"seq": LEASED + 1, "token": LEASED + 1, "node": "n1"}, 102),
    Case("undo_lock", {"queue": BUSY, "seqs": numbers(LEASED + 1, 100)}, 100),
    Case("undo_find", {"seqs": numbers(LEASED + 1, 100)}, 100),
    Case("undo_cancel", {"queue": IDS["later"], "seqs": numbers(LATER + 1, 100)}, 100),
    Case("undo_cancel", {"queue": BUSY, "seqs": numbers(FRESH, 100)}, 100),
    Case("step_forget", {"after": 0, "size": 1_000}, 1_000),
    Case("unique_note", {"queue": BUSY, "keys": keys("busy", FRESH, 50), "seqs": numbers(FRESH, 50),
        "spans": arrays.integers([1_000, *[None] * 49]), "starts": arrays.integers([0] * 50)}, 50),
    Case("unique_lock", {"queue": BUSY, "seqs": numbers(FRESH, 50)}, 50),
    Case("unique_lock", {"queue": BUSY, "seqs": numbers(LATER, 50)}, 50),
    Case("unique_move", {"seq": FRESH + 7, "delay": 60_000}, 1), Case("unique_move", {"seq": LATER + 7}, 1),
    Case("bulk_open", {"queue": "busy", "size": 200, "held": False}, 200),
    Case("bulk_close", {"queue": BUSY, "type": "queue", "seqs": numbers(200_000_000, 200), "ranks": "{}", "dues": "{}",
        "flags": "{}", "limits": "{}", "expires": "{}", "tags": "{}", "names": "{}", "rank": 0, "name": "x",
        "log": True, "wake": True, "relax": False, "at": NOW}, 200),
    Case("bulk_uniform", {"queue": "busy", "size": 200, "held": False, "name": "x"}, 200),
    Case("bulk_uniform", {"queue": "busy", "size": 200, "held": True, "name": "x", "priority": 5, "ttl": 60_000}, 200),
    Case("enqueue_unkeyed", {"queue": "busy", "name": "x", "id_end": "8000-000000000000", "data": "{}"}, 1),
    Case("enqueue_unkeyed", {"queue": "busy", "name": "x", "id_end": "8000-000000000000", "data": "{}", "priority": 5,
        "meta": "{}", "max_deliveries": 5}, 1),
    Case("claim_look", {"queues": arrays.texts(IDS), "jitter": 5_000, "pid": 0, "ids": "{1,2,3}", "places": "{0,0,0}",
        "floors": "{9,9,9}", "head": 9}, len(IDS)),
    Case("claim_note", {"queues": arrays.integers(IDS.values())}, len(IDS)),
    Case("claim", CLAIM, 100), Case("claim", {**CLAIM, "size": 1}, 1),
    Case("claim", {**CLAIM, "queue": IDS["empty"], "ranks": "{0}", "lows": "{0}"}),
    Case("claim", {**CLAIM, "queue": IDS["other"], "ranks": "{0}", "lows": "{0}", "size": 1_000}, 1_000),
    Case("claim_mixed", MIXED, 100), Case("claim_mixed", {**MIXED, "admitted": numbers(FRESH + 50_000, 20)}, 20),
    Case("claim_mixed", {**MIXED, "tags": "{rare}"}, 100),
    Case("claim_mixed", {**MIXED, "tags": "{rare,tag-1,tag-2}"}, 300),
    Case("held", {"node": "n7", "seqs": numbers(LEASED + 7, 5, 2_000)}, 10),
    Case("held", {"node": "holder-0", "seqs": arrays.integers(PART)}, BATCH),
    *settled_three_ways("finish", "states", **ENDING, **FAILURE, results="{}", ttls="{}"),
    *settled_three_ways("finish_some", results="{}", rans="{}"),
    Case("finish_one", {**settle([LEASED], None, "n0"), "token": LEASED, "seq": LEASED}, 1),
    Case("finish_one", {**settle([BATCHED], None, "holder-0"), "token": BATCHED, "seq": BATCHED}, 1),
    *settled_three_ways("extend", lease_ms=5_000, waits=False),
    *settled_three_ways("progress", "values"),
    *settled_three_ways("release", **FAILURE, delays="{}", tracebacks="{}", ttls="{}", unstarted=False, suspended=False,
        keeping="{}"),
    Case("settle_outcomes", {"seqs": arrays.integers([*PART, DONE, FRESH, 7])}, 30),
    Case("sweep", {"queues": EVERY, "size": 10, "jobs": 1_000}, 200),
    Case("sweep", {"queues": arrays.integers([BUSY]), "size": 10, "jobs": 1_000}),
    Case("promote", {"queues": EVERY, "size": 100}, 100),
    Case("promote", {"queues": arrays.integers([IDS["later"]]), "size": 100}),
    *(Case(f"due_{what}", {}, len(IDS) + IDLE) for what in ("leases", "delayed", "expired")),
    Case("overdue", {"queue": BUSY, "idle": 10_000_000, "size": 10}, 10),
    Case("expire", {"queues": EVERY, "size": 100}, 100), Case("expire_results", {"size": 100}, 100),
    Case("heads", {"look": 1_000}, 1_000),
    *(Case("purge", {"queue": IDS[queue], "states": f"{{{state}}}", "before": 10**9, "size": 100}, 100) for queue,
        state in (("other", 0), ("later", 1), ("morgue", 3), ("letters", 4))),
    Case("purge", {"queue": BUSY, "states": "{0}", "tag": "rare", "before": 10**9, "size": 100}, 100),
    *(removal(queue, first, 100, state) for state, (queue, first) in enumerate((("busy", FRESH), ("later", LATER),
        ("over", OVER), ("morgue", DEAD), ("letters", RECORDS)))),
    removal("stale", STALE, 100, 0, expired=True), Case("floor_mend", {}, 3 * (len(IDS) + IDLE)),
    Case("floor", {"ids": "{}", "kinds": "{}", "ranks": "{}", "lows": "{}", "marks": "{}"}, 3 * (len(IDS) + IDLE)),
    Case("floor", {"queues": arrays.integers([BUSY]), "ids": arrays.integers([BUSY]), "kinds": "{0}", "ranks": "{-1}",
        "lows": arrays.integers([FRESH + 2]), "marks": "{3}"}, 5),
    Case("spent", {"queues": arrays.integers([BUSY]), "size": 100}, 600),
    Case("spent", {"queues": arrays.integers([BUSY]), "size": 100, "tags": "{rare}"}, 300),
    Case("spent", {"queues": arrays.integers([BUSY]), "size": 100, "tags": "{rare,tag-1}"}, 600),
    Case("bury", {"queue": IDS["busy"], "seqs": numbers(FRESH, 100)}, 100),
    Case("move", {"queue": IDS["graves"], "target": IDS["letters"], "seqs": numbers(GRAVES, 20), "node": "grave-0",
        "claims": arrays.integers([GRAVES]), "keyed": False}, 20),
]  # fmt: skip
