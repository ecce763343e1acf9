"""Standard parameters of the statements of limits and workflows."""

from django_leasequeue.engine import arrays

from .cases_core import BUSY, EVERY, numbers
from .filling import DONE, FRESH, HELD, IDLE, IDS, LEASED
from .regimes import Case

#: The workflow with this number, and one that has ended long ago.
UID = "00000000-0000-0000-0000-{:012d}"
TAGGED = {
    "tags": f'{{"customer": {FRESH + 7}}}', "below": 2**62, "project": "", "queue": None, "prefixes": None,
    "state": None, "size": 50,
}  # fmt: skip
NAMES = arrays.texts(f"limit-{n}" for n in range(1, 21))


def repeated(value: str, count: int = 20) -> str:
    return "{" + ",".join([value] * count) + "}"


CASES = [
    Case("turn_add", {"project": "", "queue": "busy", "kind": 1, "seqs": numbers(HELD, 20), "detail": "{}"}, 1),
    Case("turn_take", {"queues": EVERY, "size": 10, "starts": True}, 10 * 10), Case("turn_mend", {}, len(IDS) + IDLE),
    Case("flow_return", {"seqs": numbers(1, 20), "wait": 50}, 20), Case("due_turns", {}, len(IDS) + IDLE),
    Case("limit_set", {"project": "", "names": NAMES, "concurrencies": repeated("7"), "rates": repeated("NULL"),
        "pers": repeated("NULL"), "bursts": repeated("0"), "fairs": repeated("f"), "pin": False, "unpin": False},
        20),
    Case("limit_waiting", {"limits": "{1,2}"}, 400),
    Case("limit_keys", {"project": "", "names": NAMES, "keys": arrays.texts(f"new-{n}" for n in range(20))}, 20),
    Case("member_join", {"project": "", "seqs": numbers(HELD, 20), "names": repeated("limit-2"),
        "keys": repeated("key-1")}, 20),
    Case("slots_free", {"queue": IDS["empty"]}, 1),
    Case("flow_lock", {"seqs": numbers(DONE, 20), "keys": numbers(1, 20)}, 40),
    Case("flow_look", {"seqs": arrays.integers([*range(DONE, DONE + 10), *range(HELD, HELD + 10), *range(LEASED,
        LEASED + 10)])}, 30),
    Case("flow_admit", {"keys": numbers(1, 20), "most": 1_000, "queues": EVERY, "room": 100}, 100),
    Case("flow_hold", {"keys": numbers(1, 20), "most": 1_000}, 100),
    Case("member_follow", {"old": DONE + 5, "new": 9_000_000_000}, 1),
    Case("flow_ready", {"seqs": numbers(HELD + 10_000, 20)}, 20),
    Case("flow_children", {"seqs": numbers(DONE, 20), "tolerant": False, "back": False}, 20),
    Case("flow_cancel", {"seqs": numbers(DONE, 20), "back": False}, 20),
    Case("key_lock", {"keys": numbers(1, 20), "queues": repeated(str(BUSY))}, 20),
    Case("workflow_count", {"workflows": numbers(1, 20), "completed": repeated("1"), "failed": repeated("0"),
        "cancelled": repeated("0"), "keep": 1_000}, 20),
    Case("flow_broken", {"seqs": numbers(HELD + 10_000, 20)}, 100),
    Case("workflow_add", {"uid": UID.format(9_999_999), "project": "", "name": "", "shape": 0, "total": 20, "edges": 0,
        "on_failure": None, "keep_ms": 86_400_000}, 1),
    Case("member_add", {"workflow": 7, "first": 0, "on_failure": None, "seqs": numbers(FRESH, 20),
        "pendings": repeated("0"), "tolerants": repeated("f"), "labels": repeated('""'),
        "parents": repeated("NULL"), "children": repeated("NULL"), "failures": "{}", "delays": "{}", "starts": "{}"},
        20),
    Case("flow_delay", {"seqs": numbers(HELD + 10_000, 20)}, 20),
    Case("flow_needless", {"seqs": numbers(HELD + 10_000, 20)}, 20), Case("member_workflow", {"seq": HELD + 10_000}, 1),
    Case("workflow_open", {"uid": UID.format(7), "project": "", "known": numbers(HELD + 10_000, 20)}, 20),
    Case("workflow_extend", {"workflow": 7, "project": "", "queue": "busy", "seqs": numbers(DONE, 20), "edges": 5}, 1),
    Case("workflow_link", {"workflow": 7, "seqs": numbers(HELD + 10_000, 20), "edges": 5}, 120),
    Case("workflow_lock", {"workflows": numbers(1, 10), "seqs": numbers(HELD + 10_000, 10)}, 20),
    Case("workflow_log", {"workflow": 7, "seqs": arrays.integers([*range(DONE + 30, DONE + 35), HELD + 10_006])}, 6),
    Case("workflow_get", {"uid": UID.format(7), "project": ""}, 1),
    Case("workflow_nodes", {"workflow": 7, "after": 0, "size": 10, "results": True}, 10),
    Case("tagged_jobs", TAGGED, 1, log=True), Case("workflow_queues", {"workflow": 7}, 6),
    Case("limit_list", {"project": None, "size": 20, "keys": 200, "cap": 200}, 20 * 200),
    Case("limit_busy", {"limit": 1, "after": "", "size": 200, "cap": 200, "most": 20}, 200),
    Case("step_replacements", {"seqs": numbers(DONE, 20)}, 20), Case("member_get", {"seq": HELD}, 1),
    Case("member_inputs", {"seq": HELD + 10_000}, 5), Case("workflow_cancel", {"uid": UID.format(7), "project": ""}, 6),
    Case("workflow_expire", {"size": 5}, 30),
]  # fmt: skip
