"""Compare what the web processes were answered with what became of it: ``python -m shop.judge LEDGER ...``.

It waits until all jobs have ended, prints what is wrong, and how many of each kind were right.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django

#: Seconds without one more ended job, after which those that are left are lost.
STALLED = 60.0
#: What each kind of job has to come to: its task, state and result.
DUE = {
    "single": ("double", "completed", lambda number: 2 * number),
    "many": ("double", "completed", lambda number: 2 * number),
    "slow": ("slow", "completed", lambda number: 2 * number),
    "flaky": ("flaky", "completed", lambda number: 2 * number),
    "doomed": ("doomed", "dead", lambda number: None),
    "refused": ("refused", "failed", lambda number: None),
    "durable": ("durable", "completed", lambda number: number + 3),
    "chord": ("total", "completed", lambda number: 4 * number),
}


def entries(ledgers: list[str]) -> Iterator[list[Any]]:
    for ledger in ledgers:
        # A line that was being written when the ledger was copied has no end.
        for line in Path(ledger).read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def wait(written: list[list[Any]]) -> None:
    """Emit the events that jobs wait for, and wait for their end."""
    from django_leasequeue.models import Job
    from django_leasequeue.tasks import emit

    for kind, number, _ in written:
        if kind == "durable":
            emit(f"event {number}", 1)
    ended, since = -1, time.monotonic()
    while (
        now := Job.objects.filter(state__in=("completed", "failed", "dead", "cancelled")).count()
    ) != Job.objects.count():
        if now > ended:
            ended, since = now, time.monotonic()
        if time.monotonic() > since + STALLED:
            return
        time.sleep(0.5)


def found() -> dict[tuple[str, Any], tuple[str, Any]]:
    """State and result of each job, by its task and its first argument; of a callback by its result."""
    from django_leasequeue.models import Job, JobResult

    results = dict(JobResult.objects.values_list("seq", "result"))
    became = {}
    for seq, task, args, state in Job.objects.values_list("seq", "task", "args", "state").iterator():
        name, result = task.rpartition(".")[2], results.get(seq)
        became[name, result if name == "total" else args[0]] = (state, result)
    return became


def compare(written: list[list[Any]], became: dict[tuple[str, Any], tuple[str, Any]]) -> tuple[Counter[str], list[str]]:
    """Return how many jobs of each kind came to what they should, and what is wrong."""
    right, wrong = Counter[str](), []
    for kind, number, text in written:
        if kind == "error":
            wrong.append(f"a caller saw an error in {number}: {text[-600:]}")
            continue
        task, state, result = DUE[kind]
        due = (state, result(number))
        got = became.get((task, due[1] if kind == "chord" else number))
        if got == due:
            right[kind] += 1
        else:
            wrong.append(f"{kind} {number} ({text}): it should be {due}, and is {got or 'lost'}")
    return right, wrong


def main(ledgers: list[str]) -> int:
    django.setup()
    written = list(entries(ledgers))
    wait(written)
    right, wrong = compare(written, found())
    print(json.dumps({"right": right, "wrong": len(wrong), "first": wrong[:20]}))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
