"""``python -m tests.soak``: work under faults for some minutes, and the verdict; 1 at the first broken promise."""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import django

from django_leasequeue.devdb import Server
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from . import look, plan, report
from .clock import Clock
from .evidence import DIRECTORY, FAR, HALTED, MAKER, ROLE, Tail, Witness
from .oracle import Oracle
from .server import Disk, SoakServer

BASE = Path(__file__).resolve().parents[2]
QUEUES = f"sure,swift,keyed,{HALTED},{FAR}"
#: Seconds between looks at the evidence, and between lines of progress.
LOOK, PROGRESS = 1.0, 10.0
#: So many jobs may wait before the producers hold on.
BACKLOG = 1_500
#: Seconds for which producers hold on, and on while many jobs have ended meanwhile.
HELD = 30.0
#: Seconds until all jobs have to have ended when nothing more goes wrong; longer while the last of them ended within
#: so many seconds.
DRAIN, STALLED = 180.0, 60.0
#: Seconds after which those are lost that have not ended when no job is left anywhere.
GONE = 15.0
#: Arguments of the workers beside what all have.
WORKERS = {
    "worker1": ("--concurrency", "4"), "worker2": ("--concurrency", "3", "--processes", "2"),
    "worker3": ("--concurrency", "4"), "worker4": ("--concurrency", "4"),
}  # fmt: skip


class Soak:
    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self.given, self.directory, self.machine = given, directory, report.Machine()
        self._tail = Tail(directory)
        self._witness = Witness(directory, MAKER)
        self._said_at, self._told = 0.0, 0
        #: Since when producers are held (monotonic), how many jobs waited then, and how many wait in vain.
        self._held_at, self._held, self._stuck = 0.0, 0, 0
        self._begin, self._stopped = time.monotonic(), False
        #: Faults that this machine does not allow, and why.
        self.without: dict[str, str] = {}

    def run(self) -> bool:
        """Do all of it; return whether every promise was kept."""
        disk = Disk(self.directory / "disk")
        clock = Clock(self.directory)
        if clock.why_not:
            self.without |= dict.fromkeys(["clock forward", "clock back"], clock.why_not)
        self._server = SoakServer(disk, clock)
        self._far = Server(self.directory / FAR)
        os.environ |= {"DATABASE_URL": self._server.url, "SOAK_FAR_URL": self._far.url(), ROLE: MAKER}
        os.environ |= {"DJANGO_SETTINGS_MODULE": "tests.soak.settings", DIRECTORY: str(self.directory)}
        from .readers import READERS
        from .settings import LEASEQUEUE
        from .tasks import TABLE

        queues: dict[str, dict[str, Any]] = LEASEQUEUE["QUEUES"]  # type: ignore[assignment]
        self._oracle = Oracle(
            # The event stream that is read is the first server's.
            forgetful=[name for name, options in queues.items() if name == FAR or not options.get("leases_durable")],
            sure=[name for name, options in queues.items() if options.get("durability", "fsync") == "fsync"],
            readers=READERS,
            workers=WORKERS,
        )
        self.machine.watch(self._oracle.incidents.crowded)
        with ExitStack() as stack:
            stack.enter_context(disk)
            if disk.why_not:
                self.without["disk full"] = disk.why_not
            stack.enter_context(self._server)
            django.setup()
            self._far.start()
            stack.callback(self._far.stop, "immediate")
            for alias in ("default", FAR):
                migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--database", alias]
                subprocess.run(migrate, cwd=BASE, check=True)
            with self._server.connect() as connection:
                connection.execute(TABLE)
            with self._far.connect() as far:
                # Numbers that the first server never gives: what is kept of both tells them apart.
                far.execute(f"ALTER SEQUENCE leasequeue_job_seq_seq RESTART WITH {10**12}")
            self._recruit(stack, clock)
            tracks = plan.plan(self.given.seed, self.given.minutes, self.without, self.given.only)
            self._print_plan(tracks)
            self._soak(tracks)
            broken = bool(self._oracle.broken) and not self.given.keep_going
            whole = not broken and not self._stopped and self._drain()
        self._hear()
        self._oracle.finish(time.monotonic_ns(), whole)
        return self._report()

    def _recruit(self, stack: ExitStack, clock: Clock) -> None:
        from .crew import Crew
        from .faults import Faults, Healer

        scratch = self.directory / "scratch"
        scratch.mkdir(mode=0o700)
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(BASE), os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
            # Journals of the workers: what they find there of others is of this run.
            "TMPDIR": str(scratch),
        }
        port = free_port()
        door = Proxy("127.0.0.1", port)
        self._proxies = {role: Proxy(self._server.socket) for role in plan.BEHIND_PROXY} | {"web1": door}
        for proxy in self._proxies.values():
            stack.enter_context(proxy)
        self._crew = crew = Crew(self.directory, environment, self._witness)
        stack.callback(crew.close)
        url = f"http://127.0.0.1:{port}/v0"
        crew.add("http", "-m", "uvicorn", "testproject.asgi:application", "--port", str(port), "--log-level", "warning")
        for role, arguments in WORKERS.items():
            command = ["manage.py", "runworker", "--queues", QUEUES, "--drain-timeout", "5", "--node", role]
            command += ["--handler", "tests.soak.tasks.TellingHandler", *arguments]
            through = {}
            if where := self._proxies.get(role):
                through["DATABASE_URL"] = f"postgresql://postgres@{where.host}:{where.port}/leasequeue"
            crew.add(role, *command, **through)
        eventually(lambda: _listens(port), "that the HTTP server listens")
        crew.add("web1", "-m", "tests.soak.consumers", "stream", f"http://{door.host}:{door.port}/v0")
        crew.add("web2", "-m", "tests.soak.consumers", "claims", url)
        crew.add("readers", "-m", "tests.soak.readers", url)
        crew.add("late", "-m", "tests.soak.consumers", "late", str(self.given.seed))
        crew.add("producers", "-m", "tests.soak.producers", str(self.given.seed), url)
        crew.add(plan.FOLDED, "-m", "tests.soak.consumers", "folded", str(self.given.seed))
        self._healer = Healer(self._server.connect, self._witness, self.given.seed)
        self._healer.start()
        self._faults = Faults(self._server, self._far, clock, crew, self._proxies, self._witness, self._tell)

    def _print_plan(self, tracks: list[list[plan.Step]]) -> None:
        steps, given = plan.in_time(tracks), self.given
        what = f"{given.minutes:g} minutes, {len(steps)} faults; evidence in {self.directory}"
        missing = (f"{name}: not on this machine: {why}" for name, why in self.without.items())
        print(f"Plan of seed {given.seed}, {what}", *steps, *missing, sep="\n  ")

    def _soak(self, tracks: list[list[plan.Step]]) -> None:
        end = time.monotonic() + 60
        while not self._oracle.counts["done"]:
            if time.monotonic() > end:
                raise RuntimeError(f"no job was done within a minute: see the logs in {self.directory}")
            time.sleep(LOOK / 2)
            self._hear()
        self._begin = begin = time.monotonic()
        threads = [threading.Thread(target=self._faults.run, args=(steps, begin)) for steps in tracks]
        for thread in threads:
            thread.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "_stopped", True))
        try:
            # A track that is late goes on to the end of its plan.
            while time.monotonic() < begin + self.given.minutes * 60 or any(thread.is_alive() for thread in threads):
                time.sleep(LOOK)
                if self._turn() or self._stopped:
                    break
        finally:
            self._faults.over.set()
            for thread in threads:
                thread.join()

    def _turn(self) -> bool:
        self._hear()
        self._stuck = min(self._stuck, self._oracle.waiting)
        hold, waiting, now = self.directory / "hold", self._oracle.waiting, time.monotonic()
        if hold.exists():
            self._oracle.held_until = time.monotonic_ns()
            # What a lossy failover took waits for ever: what gets hardly less in a while is counted off.
            if now > self._held_at + HELD:
                self._stuck = waiting if waiting > 0.9 * self._held else self._stuck
                self._held_at, self._held = now, waiting
            if waiting <= self._stuck + BACKLOG / 2:
                hold.unlink()
        elif waiting > self._stuck + BACKLOG:
            self._held_at, self._held = now, waiting
            hold.touch()
        self._oracle.judge(time.monotonic_ns())
        self._progress()
        for broken in self._oracle.broken[self._told :]:
            self._tell(f"BROKEN: {broken}")
        self._told = len(self._oracle.broken)
        return bool(self._oracle.broken) and not self.given.keep_going

    def _hear(self) -> None:
        for entry in (entries := self._tail.look()):
            if entry[0] == "hello" and entry[4] != os.getpid():
                self._crew.watch(entry[4])
        self._oracle.hear(entries)

    def _drain(self) -> bool:
        """Let everything come to its end: no more faults, no more jobs; then look at what is there."""
        from .readers import TOPICS

        self._tell("the end: no more faults, no more jobs; all that is there has to come to its end")
        self._server.wait()
        self._crew.dismiss("producers")
        begun = moved_at = there_at = time.monotonic()
        fewest = self._oracle.waiting
        drain = self.given.drain
        with self._server.connect() as connection, self._far.connect() as far:
            # Longer while fewer and fewer wait: a rate limit gives what has gathered in its own time.
            while (now := time.monotonic()) < begun + drain or moved_at + STALLED > now < begun + 5 * drain:
                time.sleep(LOOK)
                if self._turn() or self._stopped:
                    return False
                if self._oracle.waiting < fewest:
                    fewest, moved_at = self._oracle.waiting, now
                if look.jobs_left(connection) or look.jobs_left(far) or self._oracle.ledgers.behind():
                    there_at = now
                elif now > max(there_at, moved_at) + GONE or not (self._oracle.waiting or look.left(connection)):
                    break
            else:
                still = f"{self._oracle.waiting} jobs still waited after {now - begun:.0f} s"
                self._faults.trouble.append(f"{still}, and count as lost: the end may need more time (--drain)")
            self._healer.over.set()
            self._healer.join()
            if not self._crew.dismiss(*WORKERS, "late", plan.FOLDED, "web1", "web2", "http"):
                self._faults.trouble.append("a process did not end when it was asked to, with nothing to do")
            # The readers read what the last of them wrote.
            time.sleep(3)
            self._crew.dismiss("readers")
            look.look(connection, self._witness, TOPICS)
            look.check(far, self._witness)
        return True

    def _progress(self) -> None:
        if time.monotonic() - self._said_at < PROGRESS:
            return
        self._said_at = time.monotonic()
        counts = self._oracle.counts
        self._tell(
            f"{counts['committed']} committed, {self._oracle.waiting} wait, {counts['runs']} runs,"
            f" {counts['told']} told, {self._oracle.ledgers.read_records} records read, load {self.machine.look():.1f}"
        )

    def _tell(self, text: str) -> None:
        # One write: the tracks of faults tell as well.
        sys.stdout.write(f"{time.monotonic() - self._begin:7.1f}  {text}\n")
        sys.stdout.flush()

    def _report(self) -> bool:
        only, trouble, broken = self.given.only, self._faults.trouble, self._oracle.broken
        names = [fault.name for track in plan.GAPS for fault in track if not only or fault.name in only]
        print(f"\n{report.table(self._oracle, names, self.without)}\n")
        print(f"{self.given.minutes:g} minutes, seed {self.given.seed}: {report.counts(self._oracle)}.")
        wrong = (*(f"TROUBLE: {text}" for text in trouble), *(f"BROKEN: {one}" for one in broken[:30]))
        print(f"The machine: {self.machine}.", *wrong, sep="\n")
        if self._stopped:
            print("Stopped before its end: that nothing was lost is not known.")
        return not (broken or trouble or self._stopped)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults are made (default 5)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the faults of another run (default: by chance)")
    parser.add_argument("--directory", type=Path, default=None, help="where evidence and logs go, and stay")
    parser.add_argument("--keep-going", action="store_true", help="go on to the end when a promise is broken")
    parser.add_argument("--plan", action="store_true", help="print the plan, and do nothing")
    parser.add_argument(
        "--only", action="append", metavar="FAULT",
        help="choose from these faults (default: from all; in less than"
        f" {plan.WORLD_MINUTES:g} minutes without failovers, steps of the clock, cancelled statements, paused queues)",
    )  # fmt: skip
    drain = "seconds for what is left at the end, longer while it gets less (default 180)"
    parser.add_argument("--drain", type=float, default=DRAIN, help=drain)
    given = parser.parse_args()
    if unknown := set(given.only or ()) - {fault.name for track in plan.GAPS for fault in track}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; --plan --minutes 10 shows them")
    given.seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    if given.plan:
        print(*plan.in_time(plan.plan(given.seed, given.minutes, only=given.only)), sep="\n")
        return 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="leasequeue-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        parser.error(f"{directory} is not empty: evidence of another run would be judged with this one's.")
    directory.chmod(0o711)
    # Whatever ends it: the disk, PostgreSQL and all processes go as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = Soak(given, directory).run()
    if good and given.directory is None:
        shutil.rmtree(directory)
    else:
        print(f"Evidence and logs are in {directory}.")
    again = f'make soak ARGS="--minutes {given.minutes:g} --seed {given.seed}"'
    print("Every promise was kept." if good else f"BROKEN. The same faults again: {again}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
