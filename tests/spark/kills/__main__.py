"""``python -m tests.spark.kills``: a lake is filled under kills and crashes; 1 where it is not as the log."""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import django
from deltalake import DeltaTable

from django_leasequeue.devdb import Server
from django_leasequeue.spark.layout import FORMATS

from . import driver
from .compare import Compared, compare

BASE = Path(__file__).resolve().parents[3]
OPTIONS = {
    "shared_buffers": "64MB",
    # What a commit does not wait for stays in memory until a reader asks for it: a crash has something to lose.
    "wal_writer_delay": "10s",
}
#: Seconds until a driver that was started has to have a session, and one that reads what is left has to be done.
BEGINNING, END = 240.0, 900.0
#: Seconds that a driver gets to begin a batch before it is killed.
WARM = 30.0
#: The row of the table for kills that met no batch.
IDLE = "killed between two batches, or in silver and gold"


class Step(NamedTuple):
    """One fault: what ends, in the midst of what, after how many seconds."""

    crash: bool
    way: str
    seconds: float
    #: Of a crash: how long PostgreSQL stays away.
    down: float


def plan(seed: int, kills: int, crashes: int) -> list[Step]:
    """Return the faults of a seed. One of six drivers runs the whole pipeline, the others stream into bronze."""
    dice = random.Random(seed)
    steps = []
    for number in range(kills + crashes):
        way = "all" if number % 6 == 5 else "bronze"
        seconds = dice.uniform(0, 20 if way == "all" else 4)
        steps.append(Step(number >= kills, way, seconds, dice.uniform(0.1, 3)))
    dice.shuffle(steps)
    return steps


class Kills:
    """One run: the database, the lake and logs go to a directory, ``rate`` jobs a second come of each producer."""

    def __init__(self, directory: Path, seed: int, rate: float, format: str) -> None:
        self.directory = directory
        self.lake = directory / "lake"
        self.counts: Counter[str] = Counter()
        self._seed, self._rate, self._format = seed, rate, format
        self._server = Server(directory / "data", durable=True)
        self._driver: subprocess.Popen[bytes] | None = None
        self._begin = time.monotonic()

    def run(self, steps: list[Step]) -> Compared:
        self._server.start()
        try:
            os.environ.update(
                {"DATABASE_URL": self._server.url(), "DJANGO_SETTINGS_MODULE": "tests.spark.kills.settings"}
            )
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BASE), os.environ.get("PYTHONPATH")]))
            self._set_up()
            from .writers import Writers

            with Writers(self.directory, self._seed, self._rate) as writers:
                for number, step in enumerate(steps, 1):
                    self._fault(step)
                    self._tell(f"{number} of {len(steps)}: {'crash' if step.crash else 'kill'}, {step.way}")
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

    def _set_up(self) -> None:
        with self._server.connect() as connection:
            connection.autocommit = True
            for name, value in OPTIONS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self._server.stop()
        self._server.start()
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=BASE, check=True)
        django.setup()

    def _once(self) -> None:
        self._start("once")
        if self._driver.wait(END):
            raise RuntimeError(f"a run that nobody killed failed, see {self._log}")
        self._driver = None

    def _fault(self, step: Step) -> None:
        before = self._newest_batch("offsets")
        if self._driver is None:
            self._start(step.way)
        end = time.monotonic() + WARM
        while step.way == "bronze" and self._newest_batch("offsets") == before and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(step.seconds)
        if not step.crash:
            self._kill()
            self.counts[self._met()] += 1
            return
        seen = self._newest()
        self._server.stop("immediate")
        time.sleep(step.down)
        self._server.start()
        self.counts["PostgreSQL crashed"] += 1
        self.counts["events that a crash took back"] += len(seen - self._newest())

    def _start(self, way: str) -> None:
        command = [sys.executable, "-m", "tests.spark.kills.driver", str(self.lake), way, self._format]
        with self._log.open("wb") as log:
            self._driver = subprocess.Popen(
                command, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        end = time.monotonic() + BEGINNING
        while driver.BEGINS not in self._said():
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
            written = int(DeltaTable(bronze / "log").history(1)[0]["batch"])
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of the driver, by SIGKILL (default 50)")
    parser.add_argument("--crashes", type=int, default=10, help="of PostgreSQL, by an immediate stop (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the plan of another run (default: by chance)")
    parser.add_argument("--rate", type=float, default=30, help="jobs a second of each of two producers (default 30)")
    parser.add_argument("--directory", type=Path, default=None, help="where all of it goes, and stays")
    parser.add_argument("--format", choices=FORMATS, default="delta", help="of the lake (default delta)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    steps = plan(seed, given.kills, given.crashes)
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as made:
        directory = given.directory or Path(made)
        directory.mkdir(parents=True, exist_ok=True)
        print(f"{given.kills} kills, {given.crashes} crashes, seed {seed}; in {directory}", flush=True)
        kills = Kills(directory, seed, given.rate, given.format)
        begin = time.monotonic()
        found = kills.run(steps)
    print(f"\n{table(kills.counts, found)}\n")
    print(f"Seed {seed}, {(time.monotonic() - begin) / 60:.0f} minutes: {'good' if found.good else 'BROKEN'}.")
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
