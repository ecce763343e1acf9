"""``python -m tests.soak.rude``: tasks that leave things behind, bad schedules, receivers that block, duties that fail.

Leaders are stopped and killed. No innocent may fail, ticks come, somebody leads, and health pages tell the truth.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import django

from django_leasequeue.devdb.server import Server
from tests.support.ports import free_port

from .promises import INNOCENT, LEFT_BEHIND, LOST
from .rude_app import FOLDER
from .rude_watch import DUTIES, LEADERS, Page, Watch, leads

BASE = Path(__file__).resolve().parents[2]
#: Those that may lead, and be killed: they run no task. They begin first, so that one of them leads.
LEADING = (("runworker", "--queues", "idle", "--concurrency", "1"), ("runreaper",))
#: The workers: one keeps its connections, the other consists of processes.
WORKERS = (
    ("runworker", "--concurrency", "4", "--async-concurrency", "8"),
    ("runworker", "--concurrency", "4", "--processes", "2"),
)
#: Seconds between two rounds, until a worker has ended, and until the first leads.
ROUND, ENDING, STARTING = 0.25, 40.0, 60.0
#: Innocent jobs of a round.
INNOCENT_JOBS = 6
OPEN = ("block", "generator", "closed", "begin", "failed", "copy", "autocommit")
MODES = ("read_only", "isolation", "session")


class Program:
    """One of the programs: its process, and its health page if it has one."""

    def __init__(self, name: str, arguments: tuple[str, ...], folder: Path, *, expendable: bool) -> None:
        self.name, self.expendable = name, expendable
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "manage.py", *arguments]
        self._environment = {**os.environ, FOLDER: str(folder)}
        self.port = free_port() if arguments[0] == "runworker" else 0
        if self.port:
            self._command += ["--drain-timeout", "5", "--health-port", str(self.port)]
        if name == "worker0":
            self._environment["RUDE_MAX_AGE"] = "1"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=BASE, env=self._environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """End it, and what its tasks have started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Rude:
    """One run: its workers, what was enqueued, and its verdict."""

    def __init__(self, directory: Path, seed: int) -> None:
        from tests.worker import rude_tasks as tasks

        self._tasks, self._directory, self._dice = tasks, directory, random.Random(seed)
        self._innocent: list[Any] = []
        #: Results, and what is right of them.
        self._rude: list[tuple[str, Any, Callable[[Any], bool]]] = []
        self._programs: list[Program] = []

    def start(self, stack: ExitStack) -> None:
        for arguments, name, expendable in (
            *((each, f"leading{number}", True) for number, each in enumerate(LEADING)),
            *((each, f"worker{number}", False) for number, each in enumerate(WORKERS)),
        ):
            program = Program(name, arguments, self._directory, expendable=expendable)
            self._programs.append(program)
            stack.callback(program.kill)
            # The first leads: it has a health page.
            end = time.monotonic() + STARTING
            while len(self._programs) == 1 and not leads(program.port) and time.monotonic() < end:
                time.sleep(ROUND)

    def pages(self) -> list[Page]:
        return [Page(each.name, each.port, each.process.pid) for each in self._programs if each.port]

    def kill(self, session: int) -> bool:
        """Kill a program that runs no task, and start it again; return whether it is one."""
        for program in self._programs:
            if program.process.pid == session and program.expendable:
                program.kill()
                program.start()
                return True
        return False

    def work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(INNOCENT_JOBS):
                task = self._dice.choice((self._tasks.write, self._tasks.write, self._tasks.awrite))
                self._innocent.append(task.enqueue(f"innocent {len(self._innocent)}"))
            self._be_rude()
            time.sleep(ROUND)

    def _be_rude(self) -> None:
        tasks, dice = self._tasks, self._dice
        folder, how = str(self._directory), dice.choice(OPEN)
        number = len(self._rude)
        raiser = dice.choice(("gather", "group"))
        name, result, right = dice.choice([
            lambda: ("left open", tasks.leave.enqueue(how), _failed_by("TransactionLeftOpen")),
            lambda: ("left open in a coroutine", tasks.aleave.enqueue(how), _failed_by("TransactionLeftOpen")),
            lambda: ("raised in a loop", tasks.raise_in_loop.enqueue(), _failed_by("ValueError")),
            lambda: ("left in an atomic task", tasks.leave_in_atomic.enqueue(), _failed_by("TransactionLeftOpen")),
            lambda: ("a wrapper", tasks.leave.enqueue("wrapper"), _returned(None)),
            lambda: ("left read-only", tasks.leave.enqueue(dice.choice(MODES)), _returned(None)),
            lambda: ("across parts", tasks.across.enqueue(f"across {number}", 0.3, fails=True), _returned(None)),
            lambda: ("closes generators", tasks.close_of_others.enqueue(f"closes {number}"), _returned(None)),
            lambda: ("exits", tasks.exit_in_child.enqueue(raiser, 3), _failed_by("SystemExit")),
            lambda: ("forks", tasks.fork.enqueue("returns", folder), _returned(0)),
            lambda: ("forks and exits", tasks.fork.enqueue("exits", folder), _returned(7)),
            lambda: ("terminates", tasks.terminate.enqueue(), _returned(-signal.SIGTERM)),
            lambda: ("interrupts", tasks.interrupt.enqueue(), _returned(-signal.SIGINT)),
            lambda: ("a pool", tasks.pool.enqueue(), _failed_by("TimeoutError")),
            lambda: ("a thread", tasks.leave_thread.enqueue("thread", 600), _returned(None)),
            lambda: ("is blocked by receivers", tasks.blocked.enqueue(), _returned(None)),
            lambda: ("enqueues into a receiver that blocks", tasks.enqueue_blocked.enqueue(), _returned(None)),
            lambda: ("disturbs", tasks.disturb.enqueue(
                dice.choice(("directory", "files", "language", "umask", "locale"))), _returned(None)),
        ])()  # fmt: skip
        self._rude.append((name, result, right))

    def drain(self, seconds: float) -> None:
        """Wait for the last ends, while no worker breaks."""
        end, waiting = time.monotonic() + seconds, [*self._innocent, *(result for _, result, _ in self._rude)]
        while waiting and time.monotonic() < end and all(each.process.poll() is None for each in self._programs):
            for result in waiting:
                result.refresh()
            waiting = [result for result in waiting if not result.is_finished]
            time.sleep(ROUND)

    def stop(self) -> list[str]:
        """Ask the programs to end; return what is wrong with how they do."""
        wrong = []
        for program in self._programs:
            program.process.terminate()
            try:
                code: int | None = program.process.wait(ENDING)
            except subprocess.TimeoutExpired:
                code = None
            log = program.log.read_text(errors="replace")
            broke = log.count("Part of the worker broke") + log.count("ended and restarts")
            if code != 0 or broke:
                wrong.append(f"{program.name} ended with {code}, and {broke} parts or processes of it broke")
        return wrong

    def verdict(self) -> list[tuple[str, str]]:
        """Return each broken promise with its evidence."""
        from django.contrib.auth.models import Group

        from django_leasequeue.models import Job, JobStatus

        broken = []
        written = set(Group.objects.values_list("name", flat=True))
        for number, result in enumerate(self._innocent):
            result.refresh()
            if result.is_finished and result.errors:
                broken.append((INNOCENT, f"innocent {number}: {result.errors[0].traceback.strip().splitlines()[-1:]}"))
            elif not result.is_finished or f"innocent {number}" not in written:
                broken.append((LOST, f"innocent {number} is {result.status}, and its row may not be there"))
        for name, result, right in self._rude:
            result.refresh()
            if not right(result):
                errors = [error.exception_class_path for error in result.errors]
                broken.append((LEFT_BEHIND, f"{name!r} is {result.status}, with {errors}"))
        failed = Job.objects.filter(task=self._tasks.tick.module_path, state__in=(JobStatus.FAILED, JobStatus.DEAD))
        broken += [(INNOCENT, f"the tick {job.seq} is {job.state}") for job in failed]
        if others := [name for name in written if not name.startswith(("innocent", "closes", "tick"))]:
            broken.append((LEFT_BEHIND, f"there are rows that were rolled back: {others[:5]}"))
        return broken

    def report(self) -> str:
        kinds = Counter(name for name, *_ in self._rude)
        return f"{len(self._innocent)} innocent jobs beside {sum(kinds.values())} rude ones: {dict(kinds)}"


def _failed_by(name: str) -> Callable[[Any], bool]:
    return lambda result: bool(result.errors) and result.errors[-1].exception_class_path.endswith(f".{name}")


def _returned(value: Any) -> Callable[[Any], bool]:
    return lambda result: result.status == "SUCCESSFUL" and not result.errors and result.return_value == value


def make_bad_schedules() -> None:
    """Make recurring tasks that cannot be enqueued; the settings declare those that can."""
    from django_leasequeue.models import RecurringTask

    for name, schedule, task in (
        ("exits", "every 5 seconds", "tests.soak.rude_app.exits.task"),
        ("gone", "every 5 seconds", "tests.worker.rude_tasks.gone"),
        ("unreadable", "every now and then", "tests.worker.rude_tasks.tick"),
    ):
        RecurringTask.objects.bulk_create([RecurringTask(name=name, schedule=schedule, task=task)])  # unchecked


def main() -> int:
    """Run it; print each broken promise, and return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.rude", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of work (default 1)")
    parser.add_argument("--drain", type=float, default=60.0, help="seconds for the rest of it (default 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", choices=(*LEADERS, *DUTIES), help="of the leader's troubles (default: all)"
    )
    parser.add_argument("--directory", type=Path, default=None, help="where logs go, and stay")
    given = parser.parse_args()
    broken: list[tuple[str, str]] = []

    def tell(promise: str, evidence: str) -> None:
        broken.append((promise, evidence))
        print(f"BROKEN: {promise} (during: rude tasks): {evidence}", flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        directory = given.directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leasequeue-rude-")))
        directory.mkdir(exist_ok=True)
        server = Server(directory / "data")
        os.environ |= {"DATABASE_URL": server.url(), "DJANGO_SETTINGS_MODULE": "tests.soak.rude_app.settings"}
        server.start()
        stack.callback(server.stop, "immediate")
        django.setup()
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=BASE, check=True)
        make_bad_schedules()
        rude = Rude(directory, given.seed)
        watch = Watch(server.connect, directory, rude.pages, rude.kill, tell, given.only or ())
        rude.start(stack)
        watch.start()
        rude.work(given.minutes * 60)
        rude.drain(given.drain)
        watch.stop()
        for promise, evidence in [(LEFT_BEHIND, wrong) for wrong in rude.stop()] + rude.verdict():
            tell(promise, evidence)
        print(rude.report(), f"The watch: {watch.counts}.", sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
