"""``python -m tests.spark.kills``: a lake is filled under faults of many kinds; 1 where it is not as the log."""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import django
from deltalake import DeltaTable

from django_leasequeue.devdb import Server
from django_leasequeue.spark.layout import FORMATS

from . import driver
from .compare import Compared, compare
from .upkeep import Upkeep

BASE = Path(__file__).resolve().parents[3]
OPTIONS = {
    "shared_buffers": "64MB",
    # What a commit does not wait for stays in memory until a reader asks for it: a crash has something to lose.
    "wal_writer_delay": "10s",
}
#: Seconds until a driver that was started has to have a session, and one that reads what is left has to be done.
BEGINNING, END = 900.0, 900.0
#: Seconds that a driver gets to begin a batch before it is killed.
WARM = 30.0
#: The row of the table for kills that met no batch.
IDLE = "killed between two batches, or in silver and gold"


#: What happens: a kill of the driver at any moment, or before, in the middle of or after a commit of a Delta table; a
#: kill of Spark's executor; an immediate stop of PostgreSQL; a disk that is full for a while.
KINDS = ("kill", *driver.PLACES, "executor", "crash", "disk")


class Step(NamedTuple):
    """One fault, in the midst of what, after how many seconds."""

    kind: str
    way: str
    seconds: float
    #: Seconds for which PostgreSQL stays away, or the disk stays full; bytes that are left on it.
    down: float
    left: int
    #: Of a kill around a commit: which one since the driver began.
    commit: int


def plan(seed: int, counts: Mapping[str, int]) -> list[Step]:
    """Return the faults of a seed. One of ten drivers runs the whole pipeline, the others stream into bronze."""
    dice = random.Random(seed)
    steps = []
    for number, kind in enumerate(each for each in KINDS for _ in range(counts.get(each, 0))):
        way = "all" if number % 10 == 9 else "bronze"
        seconds = dice.uniform(0, 20 if way == "all" else 4)
        left, commit = dice.randrange(200_000), dice.randint(1, 30 if way == "all" else 5)
        steps.append(Step(kind, way, seconds, dice.uniform(0.1, 3), left, commit))
    dice.shuffle(steps)
    return steps


class Kills:
    """One run: the database, the lake and logs go to a directory, ``rate`` jobs a second come of each producer."""

    def __init__(self, directory: Path, seed: int, rate: float, format: str, upkeep: bool) -> None:
        self.directory = directory
        self.lake = directory / "disk" / "lake"
        self.upkeep = Upkeep(self.lake) if upkeep and format == "delta" else None
        self.counts: Counter[str] = Counter()
        self._seed, self._rate, self._format = seed, rate, format
        self._server = Server(directory / "data", durable=True)
        self._driver: subprocess.Popen[bytes] | None = None
        self._cluster, self._way = False, ""
        self._half: set[Path] = set()
        self._begin = time.monotonic()

    def run(self, steps: list[Step], minutes: float) -> Compared:
        self._server.start()
        disk = self.directory / "disk"
        disk.mkdir()
        mounted = any(step.kind == "disk" for step in steps)
        try:
            if mounted:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", disk], check=True)
            os.environ.update(
                {"DATABASE_URL": self._server.url(), "DJANGO_SETTINGS_MODULE": "tests.spark.kills.settings"}
            )
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BASE), os.environ.get("PYTHONPATH")]))
            self._set_up()
            from .writers import Writers

            with Writers(self.directory, self._seed, self._rate) as writers:
                for number, step in enumerate(steps, 1):
                    if time.monotonic() - self._begin > 60 * minutes:
                        break
                    before = self.counts.copy()
                    self._fault(step)
                    self.counts[f"faults of the kind {step.kind}"] += 1
                    if self.upkeep is not None:
                        with self._held():
                            self.counts["compacted, vacuumed, older versions read"] += self.upkeep.look()
                    told = "; ".join(f"{count} {name}" for name, count in (self.counts - before).items())
                    self._tell(f"{number} of {len(steps)}: {step.kind}, {step.way}: {told}")
                writers.end()
            self._tell("the end: the driver reads what is left")
            self._kill()
            self._once()
            return compare(self.lake, self._server.url(), self.directory)
        finally:
            if self._driver is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._driver.pid, signal.SIGKILL)
            self._server.stop("immediate")
            if mounted:
                subprocess.run(["umount", "--lazy", disk], check=False)

    def _set_up(self) -> None:
        with self._server.connect() as connection:
            connection.autocommit = True
            for name, value in OPTIONS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self._server.stop()
        self._server.start()
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=BASE, check=True)
        django.setup()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Let a driver that lives end its run and wait: a start of Spark is the dearest part of a fault."""
        hold = self.directory / driver.HOLD
        end, held = time.monotonic() + END, 0 if self._driver is None else self._said().count(driver.HOLDS)
        hold.touch()
        while self._driver is not None and self._said().count(driver.HOLDS) == held:
            if self._driver.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the driver does not end its run, see {self._log}")
            time.sleep(0.05)
        yield
        hold.unlink()

    def _once(self) -> None:
        self._start("once")
        if self._driver.wait(END):
            raise RuntimeError(f"a run that nobody killed failed, see {self._log}")
        self._driver = None

    def _fault(self, step: Step) -> None:
        before = self._newest_batch("offsets")
        if step.kind in driver.PLACES:
            self._kill()
            self._start(step.way, place=step.kind, number=step.commit)
            self._driver.wait(END)
            self._driver = None
            self.counts[f"killed around a commit: {self._left_of_commit(step.kind)}"] += 1
            return
        if self._driver is None or step.way != self._way or (step.kind == "executor" and not self._cluster):
            self._kill()
            self._start(step.way, cluster=step.kind == "executor")
        self._wait_for_batch(before, step.way)
        time.sleep(step.seconds)
        faults = {"kill": self._kill_and_count, "crash": self._crash, "executor": self._executor, "disk": self._disk}
        faults[step.kind](step)

    def _wait_for_batch(self, before: int, way: str) -> None:
        end = time.monotonic() + WARM
        while way == "bronze" and self._newest_batch("offsets") == before and time.monotonic() < end:
            time.sleep(0.02)

    def _kill_and_count(self, step: Step) -> None:
        self._kill()
        self.counts[self._met()] += 1

    def _crash(self, step: Step) -> None:
        seen = self._newest()
        self._server.stop("immediate")
        time.sleep(step.down)
        self._server.start()
        self.counts["PostgreSQL crashed"] += 1
        self.counts["events that a crash took back"] += len(seen - self._newest())
        self._wait_for_batch(self._newest_batch("offsets"), step.way)

    def _executor(self, step: Step) -> None:
        """Kill Spark's executor; the driver goes on with another one."""
        found = executors(os.getpgid(self._driver.pid))
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.counts["executors killed"] += len(found)
        self._wait_for_batch(self._newest_batch("offsets"), step.way)

    def _disk(self, step: Step) -> None:
        """Fill the lake's disk but for some bytes; make room again."""
        filler = self.directory / "disk" / "filler"
        with filler.open("wb") as file:
            while (size := shutil.disk_usage(filler.parent).free - step.left) > 0:
                with suppress(OSError):  # the driver has written meanwhile, and there is less room
                    os.posix_fallocate(file.fileno(), 0, size)
                    break
        broke_off = self._broke_off()
        end = time.monotonic() + WARM
        while self._broke_off() == broke_off and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(step.down)
        self.counts["the disk was full"] += 1
        self.counts["runs that a full disk broke off"] += self._broke_off() - broke_off
        filler.unlink()
        self._wait_for_batch(self._newest_batch("offsets"), step.way)

    def _broke_off(self) -> int:
        return sum(line.startswith(driver.BROKE_OFF) for line in self._said())

    def _left_of_commit(self, place: str) -> str:
        """Say what a driver that died left: a log's file that is not finished, or none of it, or all of it."""
        there = {path for path in self.lake.rglob("_delta_log/*") if path.suffix not in {".json", ".parquet"}}
        half = {path for path in there - self._half if path.name != "_last_checkpoint"}
        self._half |= half
        return f"{place}, the log's file half there" if half else f"{place}, no half of a log's file"

    def _start(self, way: str, *, cluster: bool = False, place: str = "", number: int = 0) -> None:
        self._cluster, self._way = cluster, way
        words = [way, self._format, "local-cluster[1,1,1024]" if cluster else "local[1]", place, str(number)]
        command = [sys.executable, "-m", "tests.spark.kills.driver", str(self.lake), *words]
        with self._log.open("wb") as log:
            self._driver = subprocess.Popen(
                command, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        end = time.monotonic() + BEGINNING
        while driver.BEGINS not in self._said():
            if place and self._driver.poll() is not None:
                return
            if self._driver.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the driver does not begin, see {self._log}")
            time.sleep(0.05)

    def _kill(self) -> None:
        if self._driver is not None:
            if self._driver.poll() is not None:
                raise RuntimeError(f"the driver ended by itself, see {self._log}")
            os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()
            self._driver = None
            self.counts["runs that PostgreSQL's crashes broke off"] += sum(
                line.startswith(driver.BROKE_OFF) for line in self._said()
            )

    def _met(self) -> str:
        """Say what the driver was about when it was killed, from what it left."""
        begun, ended = self._newest_batch("offsets"), self._newest_batch("commits")
        bronze = self.lake / "bronze"
        if self._format == "parquet":
            written = _newest(bronze / "events/_spark_metadata")
        elif DeltaTable.is_deltatable(str(bronze / "log")):
            # Upkeep has commits of its own.
            commits = DeltaTable(bronze / "log").history(20)
            written = next((int(each["batch"]) for each in commits if "batch" in each), -1)
        else:
            written = -1
        if begun == ended:
            return IDLE
        return "killed after a batch's files, before its commit" if written == begun else "killed within a batch"

    def _newest_batch(self, what: str) -> int:
        return _newest(self.lake / "_checkpoints/bronze" / what)

    def _newest(self) -> set[Any]:
        with self._server.connect() as connection:
            return set(
                connection.execute(
                    "SELECT id, txid, occurred_at, kind, low, u.seq FROM leasequeue_leaseevent, unnest(seqs) AS u(seq)"
                    " WHERE occurred_at > now() - interval '30 s'"
                ).fetchall()
            )

    def _said(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    @property
    def _log(self) -> Path:
        return self.directory / "driver.log"

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._begin:7.1f}  {text}", flush=True)


def _newest(place: Path) -> int:
    return max((int(path.stem) for path in place.glob("[0-9]*") if path.stem.isdecimal()), default=-1)


def table(counts: Counter[str], found: Compared) -> str:
    rows = [
        *sorted(counts.items()), ("events in the log", found.in_log), ("events in the lake", found.in_lake),
        ("missing", found.missing), ("twice", found.twice), ("not as they are in the log", found.other),
        ("files of killed drivers that count for nothing", found.left), ("jobs in silver", found.jobs),
        ("of them missing, twice or in another state than their events say", found.wrong_jobs),
    ]  # fmt: skip
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {count:,} |" for name, count in rows)])


def executors(group: int) -> list[int]:
    """Return the executors among the processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = os.getpgid(int(path.name)) == group
            if ours and b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of the driver, by SIGKILL (default 50)")
    parser.add_argument("--crashes", type=int, default=10, help="of PostgreSQL, by an immediate stop (default 10)")
    places = f"of the driver {', '.join(driver.PLACES)} a commit of a Delta table, each so many (default 0)"
    parser.add_argument("--commits", type=int, default=0, help=places)
    parser.add_argument("--executors", type=int, default=0, help="of Spark's executor, by SIGKILL (default 0)")
    full = "times that the lake's disk is full; needs the right to mount a tmpfs (default 0)"
    parser.add_argument("--disks", type=int, default=0, help=full)
    parser.add_argument("--no-upkeep", action="store_true", help="no compact, vacuum and time travel after each fault")
    parser.add_argument("--seed", type=int, default=None, help="repeats the plan of another run (default: by chance)")
    parser.add_argument("--minutes", type=float, default=600, help="after which no fault begins (default 600)")
    parser.add_argument("--rate", type=float, default=30, help="jobs a second of each of two producers (default 30)")
    parser.add_argument("--directory", type=Path, default=None, help="where all of it goes, and stays")
    parser.add_argument("--format", choices=FORMATS, default="delta", help="of the lake (default delta)")
    given = parser.parse_args()
    counts = {"kill": given.kills, "crash": given.crashes, "executor": given.executors, "disk": given.disks}
    counts |= dict.fromkeys(driver.PLACES, given.commits)
    if given.commits and given.format != "delta":
        parser.error("--commits: only Delta tables have commits")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    steps = plan(seed, counts)
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as made:
        directory = given.directory or Path(made)
        directory.mkdir(parents=True, exist_ok=True)
        print(f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}; seed {seed}; {directory}", flush=True)
        kills = Kills(directory, seed, given.rate, given.format, not given.no_upkeep)
        begin = time.monotonic()
        found = kills.run(steps, given.minutes)
    print(f"\n{table(kills.counts, found)}\n")
    print(f"Seed {seed}, {(time.monotonic() - begin) / 60:.0f} minutes: {'good' if found.good else 'BROKEN'}.")
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
