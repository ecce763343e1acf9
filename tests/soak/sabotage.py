"""``python -m tests.soak.sabotage``: deliberate faults in a copy of the package; the soak has to catch each."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from .promises import LOST, SLOW
from .rude_watch import LEADERS

BASE = Path(__file__).resolve().parents[2]
PACKAGE = "django_leasequeue"
#: What a run needs of the repository.
COPIED = (
    PACKAGE, "testproject", "tests/__init__.py", "tests/soak", "tests/support", "tests/worker/__init__.py",
    "tests/worker/rude_tasks.py", "manage.py", "pyproject.toml",
)  # fmt: skip
#: Seconds in which each has to be caught; minutes of faults, and seconds for the rest, that fit into it.
LIMIT, MINUTES, DRAIN = 180.0, 0.7, 75.0
BROKEN = re.compile(r"BROKEN: (?P<promise>.+?) \(during: (?P<fault>.+?)\): (?P<evidence>.+)")


class Sabotage(NamedTuple):
    """A fault in our code: texts in files of the package, and what stands in their places, wherever they stand."""

    name: str
    patches: tuple[tuple[str, str, str], ...]
    faults: tuple[str, ...]
    #: Whether it shows in late work; for others that does not count (a slow machine).
    delays: bool = False
    #: What catches it.
    module: str = "tests.soak"
    #: Minutes of faults.
    minutes: float = MINUTES


#: Nothing that harms: what shows by itself shows under this as well.
QUIET = ("snapshot held",)
DEATHS = ("worker killed", "task: exit", "web worker killed")
SILENCE = ("worker hung", "worker refused")
CRASHES = ("postmaster killed", "stopped immediately")

_TOKENS = "c.token = ANY (%(tokens)s::bigint[])"
_HOLDS = ("sql/parts/may_settle.sql", "(c.node = %(node)s::text) IS TRUE AND ", "")
_SEQS = "c.seqs && %(seqs)s::bigint[]"
_ADMIT = "sql/flow/flow_admit.sql"
_ONE, _SOME, _FINISH, _RELEASE = (
    f"sql/leases/{name}.sql" for name in ("finish_one", "finish_some", "finish", "release")
)
_STEPS = "sql/functions/holds.sql"
_WAITS = "ORDER BY m.rank, m.seq\n"


def _sabotage(name: str, faults: tuple[str, ...], *patches: tuple[str, str, str], delays: bool = False) -> Sabotage:
    return Sabotage(name, patches, faults, delays)


def _at_edge(name: str, file: str, old: str, new: str) -> Sabotage:
    return Sabotage(name, ((file, old, new),), LEADERS[:1], module="tests.soak.rude")


def _leading(name: str, trouble: str, file: str, old: str, new: str, minutes: float = MINUTES) -> Sabotage:
    return Sabotage(name, ((file, old, new),), (trouble,), module="tests.soak.rude", minutes=minutes)


_STOPPED, _RAISES, _HANGS = "leader stopped", "duty raises", "duty hangs"
_EDGE, _FORKED = "worker/edge.py", "worker/forked.py"

SABOTAGES = (
    _sabotage("an ack ignores token and node", QUIET,
        _HOLDS, (_ONE, "c.token = %(token)s::bigint AND %(seq)s", "%(seq)s"),
        (_ONE, "c.token = %(token)s::bigint AND", "c.token = claim.token AND"),
        (_SOME, f"WHERE {_TOKENS} AND", f"WHERE {_SEQS} AND"),
        (_SOME, "i.seq = u.seq AND i.claim = claims.token", "i.seq = u.seq"),
        (_FINISH, f"WHERE {_TOKENS} AND", f"WHERE {_SEQS} AND"),
        (_FINISH, "i.i_seq = u.seq AND i.i_claim = claims.token", "i.i_seq = u.seq"),
        (_SOME, _TOKENS, "true"), (_FINISH, _TOKENS, "true")),
    _sabotage("an extension ignores the node", QUIET, _HOLDS),
    _sabotage("a nack ignores the token", QUIET,
        (_RELEASE, f"WHERE {_TOKENS} AND", f"WHERE {_SEQS} AND"), (_RELEASE, _TOKENS, "true"),
        (_RELEASE, "        AND i.i_claim = claims.token\n", "")),
    _sabotage("an extension is three seconds shorter in the database than the worker is told", SILENCE,
        ("sql/leases/extend.sql", "NULL THEN claims.until ELSE", "NULL THEN claims.until - interval '3 s' ELSE")),
    _sabotage("a sweep loses jobs at their first delivery", DEATHS,
        ("sql/leases/sweep.sql", "WHERE returned.state = {READY}\n)", "WHERE returned.delivery > 1\n)")),
    _sabotage("a running job is not told that its lease ends", SILENCE,
        ("worker/held.py", 'control.abort("lease_lost")', "pass")),
    _sabotage("a job is started though its lease is over", ("worker stopped",),
        ("worker/threads.py", "if lease is None or lease.forbids(job, since):", "if False:")),
    _sabotage("a limit has room for two more", QUIET,
        (_ADMIT, "NOT NULL THEN limits.concurrency -", "NOT NULL THEN limits.concurrency + 2 -")),
    _sabotage("a rate gives three times as many starts", ("queue paused",),
        (_ADMIT, "keys.rate + keys.burst - keys.spent", "3 * keys.rate + keys.burst - keys.spent"),
        (_ADMIT, "keys.each)\n            + 1", "keys.each)\n            * 3 + 6")),
    _sabotage("a permit of a rate comes half a second late", QUIET,
        ("sql/flow/turn_take.sql", "AND u.at <= (SELECT {now()})", "AND u.at <= (SELECT {now()} - interval '0.5 s')")),
    _sabotage("a limit takes the newest job first", QUIET,
        (_ADMIT, f"k.id AND m.waits\n                {_WAITS}", "k.id AND m.waits ORDER BY m.rank, m.seq DESC\n"),
        (_ADMIT, f"(%(queues)s::bigint[]) {_WAITS}", "(%(queues)s::bigint[]) ORDER BY m.rank, m.seq DESC\n")),
    _sabotage("a paused queue is claimed from", ("queue paused",),
        *((f"sql/{name}.sql", "q.paused_at IS NULL", "true") for name in ("parts/claimed_queue", "leases/claim_look"))),
    _sabotage("a job starts when the first of its parents has ended", QUIET,
        ("sql/flow/flow_children.sql", "WHERE d.pending = 0 AND", "WHERE")),
    _sabotage("a job gets what its parents returned in another order", QUIET,
        ("sql/flow/member_inputs.sql", "ORDER BY u.n", "ORDER BY u.n DESC")),
    _sabotage("the cancel of a workflow leaves what waits", QUIET,
        ("sql/flow/workflow_cancel.sql", "m.state IN ({member.OPEN}, ", "m.state IN (")),
    _sabotage("workers do not hear of a cancel", QUIET,
        ("sql/leases/leases_taken.sql", "pg_notify({channel.jobs}, 'l' || u.id)", "pg_notify('nobody', '')")),
    _sabotage("a unique key is free while its job waits", QUIET,
        ("sql/parts/unique_holder.sql", "{key.WAITS} ELSE {key.HELD}", "{key.FREE} ELSE {key.FREE}")),
    _sabotage("a key is free again when its job has ended", QUIET,
        ("sql/jobs/key_taken.sql", "* (queue.dedup_until <> 'result_ttl'", "* (true")),
    _sabotage("a caller gets the answer of the job before", QUIET,
        ("queue/request.py", "    seq = receipt.seq\n", "    seq = receipt.seq - 1\n"),
        ("queue/request.py", "ticket.bind(receipt.seq)", "ticket.bind(receipt.seq - 1)"),
        ("queue/request.py", "if receipt.created_at is not None and row.", "if row.created_at is None and row.")),
    _sabotage("a log is read beyond what has committed", QUIET,
        ("sql/parts/sealing.sql", "WHEN durable.mark <= durable.oldest THEN", "WHEN true THEN")),
    _sabotage("a page of a log begins with the last record of the one before", QUIET,
        ("sql/topics/topic_read.sql", "o.seq > %(after)s::bigint", "o.seq >= %(after)s::bigint")),
    _sabotage("the event stream is read beyond transactions that go on", ("transaction held open",),
        ("sql/parts/horizon.sql", "pg_snapshot_xmin(", "pg_snapshot_xmax(")),
    _sabotage("a commit is answered before it is on disk", ("postmaster killed",),
        *((f"sql/jobs/{name}.sql", "(durability <> 'fsync')", "(true)")
          for name in ("enqueue", "enqueue_one", "enqueue_unkeyed", "bulk_uniform"))),
    _sabotage("a step is kept by a worker that has lost the lease", ("worker stopped",),
        (_STEPS, "RETURN EXISTS (", "RETURN true OR EXISTS ("), (_STEPS, "RETURN false;", "RETURN true;")),
    _sabotage("a job is cancelled while its step is being committed", QUIET,
        (_STEPS, "IF in_locks THEN", "IF false THEN")),
    _sabotage("a later delivery does not know of the steps before", QUIET,
        ("worker/steps.py", "if self._job.deliveries <= 1", "if True or self._job.deliveries <= 1")),
    _sabotage("a failed task undoes nothing", QUIET,
        ("worker/undo.py", "if step.undo is None or", "if True or")),
    _sabotage("an atomic step is no transaction", DEATHS,
        ("worker/atomic.py", "with transaction.atomic(using=self.using):", "if True:"),
        ("worker/atomic.py", "if mark != self._mark:", "if False:")),
    _sabotage("a sleep ends before its time", QUIET,
        ("sql/jobs/step_wait.sql", "* 1000)::bigint", "* 500)::bigint"),
        ("sql/jobs/step_wait.sql", "CASE WHEN s.until <=", "CASE WHEN s.until - interval '99 s' <=")),
    _sabotage("a wait does not look whether its event has come", QUIET,
        ("sql/jobs/step_wait.sql", "e.name = %(event)s::text AND", "e.name IS NULL AND")),
    _sabotage("a suspect runs in its worker, among the others", DEATHS,
        ("tasks/handler.py", "entry.isolate or (job.flags & SUSPECT > 0 and can_isolate())", "entry.isolate")),
    _sabotage("a job whose process died is no suspect", DEATHS,
        ("worker/acknowledger.py", "return control is not None and control.process_died", "return False")),
    _sabotage("it is tried once a minute to reach the database again", CRASHES,
        ("engine/outage.py", "LAST_RETRY = 0.1, 1.5", "LAST_RETRY = 60.0, 60.0"), delays=True),
    _at_edge("what a task leaves open reaches the next one", "worker/threads.py",
        "clear_edge(entry, handler)", "entry"),
    _at_edge("a task that left a transaction open is completed", _EDGE,
        "return failed(handler, job, control, error)", "return entry"),
    _at_edge("coroutines share a transaction that one leaves open", _EDGE,
        "                if open_on(wrapper) or spoiled(wrapper):", "                if False:"),
    _at_edge("an exit in a child task ends the loop of all coroutines", "worker/coroutines.py",
        "except (SystemExit, KeyboardInterrupt, RuntimeError) as error", "except ZeroDivisionError as error"),
    _at_edge("forked children keep the worker's signals", _FORKED, "signal.getsignal(number) is ours", "False"),
    _at_edge("a forked child goes on with its parent's jobs", _FORKED, "if not is_child:", "if True:"),
    _at_edge("a connection that a task made read-only is the next one's", _EDGE, "if now != was:", "if False:"),
    _leading("a late leader's writes are not fenced", _STOPPED, "reaper/leader.py",
        'raise NotLeading(f"Term {self.number} of the reapers is over.")', "return"),
    _leading("a silent leader's term is not taken over", _STOPPED, "sql/reaper/reaper_lead.sql",
        " OR (term, beat) = (%(term)s::bigint, %(beat)s::bigint)", ""),
    _leading("all duties wait for one that hangs", _HANGS, "reaper/reaper.py",
        "elif (duty := shift.hangs) is not None:", "elif (duty := None) is not None:"),
    _leading("health says nothing of duties", _RAISES, "worker/worker.py",
        "and (self._reaper is None or self._reaper.report()[0])", "", 1.0),
    _leading("one schedule that cannot be enqueued stops all", _STOPPED, "reaper/recurring.py",
        "            self._fail(duty_run, tick, error)\n            return True", "            raise"),
    _leading("ticks call receivers, which may block", _STOPPED, "reaper/ticks.py",
        "executor.announces = False", "executor.announces = True"),
)  # fmt: skip

#: The code as it is, which has to pass.
CONTROL = Sabotage("none", (), QUIET)


class Verdict(NamedTuple):
    """What became of one: the promise that was found broken ("": none), after how many seconds, and what was said."""

    promise: str
    seconds: float
    text: str


def missing(sabotage: Sabotage) -> list[str]:
    return [
        f"{sabotage.name}: {file} has no such text any more: {old!r}"
        for file, old, _ in sabotage.patches
        if old not in (BASE / PACKAGE / file).read_text()
    ]


def run(sabotage: Sabotage, copy: Path, seed: int) -> Verdict:
    """Run the soak with one fault in the copy; mend the copy again."""
    before = {path: (copy / PACKAGE / path).read_text() for path, _, _ in sabotage.patches}
    for path, old, new in sabotage.patches:
        file = copy / PACKAGE / path
        file.write_text(file.read_text().replace(old, new))
    command = [
        sys.executable,
        "-m",
        sabotage.module,
        f"--seed={seed}",
        f"--minutes={sabotage.minutes}",
        f"--drain={DRAIN}",
    ]
    command += [f"--only={fault}" for fault in sabotage.faults]
    begin = time.monotonic()
    lines, behind = deque[str](maxlen=12), False
    process = subprocess.Popen(
        command, cwd=copy, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    signal.signal(signal.SIGALRM, lambda *_: process.terminate())
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if not (found := BROKEN.search(line)):
                continue
            promise, evidence = found["promise"], found["evidence"]
            # A slow machine has not done all of its work at the end: while jobs are left, none is known to be lost by
            # its missing run. That the tables disagree is no matter of time.
            left = re.match(r"at the end \d+ jobs", evidence) is not None
            behind = behind or left
            if sabotage.delays or not (promise == SLOW or left or (behind and promise == LOST)):
                return Verdict(promise, time.monotonic() - begin, evidence)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.terminate()
        process.communicate()
        for path, text in before.items():
            (copy / PACKAGE / path).write_text(text)
    return Verdict("", time.monotonic() - begin, "\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sabotage", description=__doc__)
    parser.add_argument("words", nargs="*", help="only those that have one of these words in their names")
    parser.add_argument("--seed", type=int, default=1, help="of the soak's runs (default 1)")
    parser.add_argument("--list", action="store_true", help="print their names, and do nothing")
    given = parser.parse_args()
    chosen = [one for one in SABOTAGES if not given.words or any(word in one.name for word in given.words)]
    if gone := [text for sabotage in SABOTAGES for text in missing(sabotage)]:
        print(*gone, sep="\n")
        print("The code has changed: say in SABOTAGES what the fault would be now.")
        return 2
    if given.list:
        print(*(sabotage.name for sabotage in chosen), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    escaped = 0
    with tempfile.TemporaryDirectory(prefix="leasequeue-sabotage-") as directory:
        copy = Path(directory)
        subprocess.run(["cp", "-R", "--parents", *COPIED, directory], cwd=BASE, check=True)
        if not given.words and (broken := run(CONTROL, copy, given.seed)).promise:
            print(f"Without any fault it is broken already: {broken.promise}: {broken.text}")
            return 2
        print("| fault | caught by | after |\n| --- | --- | --- |", flush=True)
        for sabotage in chosen:
            verdict = run(sabotage, copy, given.seed)
            escaped += not verdict.promise
            caught = verdict.promise or "**not caught**"
            print(f"| {sabotage.name} | {caught} | {verdict.seconds:.0f} s |", flush=True)
            print(verdict.text, file=sys.stderr, flush=True)
    print(f"{len(chosen) - escaped} of {len(chosen)} were caught.")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
