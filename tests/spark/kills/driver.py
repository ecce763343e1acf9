"""The driver that is killed: a small Spark without Django that streams the log into bronze, or runs the pipeline."""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError
from psycopg import conninfo
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from django_leasequeue import spark
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.spark import bronze, delta, pipeline
from django_leasequeue.spark.layout import Lake

CONSUMER = "kills"
#: Events of a batch: few, so that kills meet many of them.
BATCH = 200
#: What it prints when it has a session, when a run broke off, and when it does nothing because this file is there.
BEGINS, BROKE_OFF, HOLDS, HOLD = "begins", "broke off: ", "holds", "hold"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Where in a commit of a Delta table the driver dies.
PLACES = ("before", "middle", "after")


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def die_in_commit(place: str, number: int) -> None:
    """Let this driver and its JVM die at so many commits from now: of bronze, silver or gold, in turn as they come."""
    numbers = itertools.count(1)

    def dying(commit: Callable[..., Any]) -> Callable[..., Any]:
        def committed(path: Any, *args: Any, **options: Any) -> Any:
            if next(numbers) < number:
                return commit(path, *args, **options)
            if place == "before":
                die()
            if place == "middle":
                die_at_a_name(Path(path, "_delta_log"))
            answer = commit(path, *args, **options)
            die()
            return answer

        return committed

    delta.commit = dying(delta.commit)
    deltalake.write_deltalake = dying(deltalake.write_deltalake)


def names(path: Path) -> list[str]:
    return os.listdir(path) if path.is_dir() else []  # noqa: PTH208  (as fast as it can be)


def die_at_a_name(path: Path) -> None:
    """Let another process kill this one as soon as there is a new file."""
    known = set(names(path))
    if os.fork() == 0:
        while known.issuperset(names(path)):
            pass
        die()


def main(path: str, way: str, format: str, master: str = "local[1]", place: str = "", number: str = "0") -> None:
    """Stream (``bronze``) or run the pipeline (``all``) until somebody ends this; ``once``: bronze and silver, once.

    ``place`` and ``number`` tell where in which commit of a Delta table it dies.
    """
    source = {name: str(value) for name, value in conninfo.conninfo_to_dict(os.environ["DATABASE_URL"]).items()}
    session = spark.session(
        CONSUMER, master=master, memory="512m", niceness=0,
        conf={
            "spark.sql.shuffle.partitions": "1", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.driver.extraJavaOptions": JAVA, "spark.executor.extraJavaOptions": JAVA,
        },
    )  # fmt: skip
    lake = Lake(session, path, format)
    if place:
        die_in_commit(place, int(number))
    print(BEGINS, flush=True)
    over = False
    while not over:
        try:
            if way == "all":
                pipeline.run(lake, source, consumer=CONSUMER, batch=BATCH)
            else:
                bronze.ingest(lake, source, consumer=CONSUMER, batch=50 * BATCH if way == "once" else BATCH)
            if way == "once":
                pipeline.refine(lake)
                over = True
        except (LeaseQueueError, PySparkException, Py4JError, DeltaError, OSError) as error:
            # PostgreSQL is down, or the disk is full.
            print(f"{BROKE_OFF}{error}".splitlines()[0], flush=True)
            time.sleep(0.2)
        if Path(HOLD).exists():
            print(HOLDS, flush=True)
            while Path(HOLD).exists():
                time.sleep(0.05)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
