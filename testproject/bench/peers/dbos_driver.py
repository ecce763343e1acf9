"""DBOS: ``python dbos_driver.py CONNECTION JOBS THREADS``; with ``work`` behind it, the worker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient

QUEUE = "bench"
_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


@DBOS.step()
def step() -> int:
    """Do nothing."""
    return 0


@DBOS.workflow()
def five_steps(number: int) -> None:
    """Do five steps."""
    for _ in range(5):
        step()


def url(parts: dict[str, Any]) -> str:
    """Return the URL of the database."""
    # psycopg takes a socket's directory from the query only.
    place = {name: str(parts[name]) for name in ("host", "port") if parts.get(name)}
    made = sqlalchemy.URL.create(
        "postgresql+psycopg", parts.get("user"), parts.get("password"), database=parts["dbname"], query=place
    )
    return made.render_as_string(hide_password=False)


def launch(parts: dict[str, Any]) -> None:
    """Start DBOS in this process; it makes its tables."""
    DBOS(config={"name": "bench", "system_database_url": url(parts), "log_level": "ERROR"})
    DBOS.launch()


def work(parts: dict[str, Any], threads: int) -> None:
    """Run workflows until the process is ended."""
    launch(parts)
    # It looks for work at this interval, and takes what its threads may run: at the default, 1 s, they would be idle.
    DBOS.register_queue(QUEUE, worker_concurrency=threads, polling_interval_sec=0.01, on_conflict="always_update")
    threading.Event().wait()


def main(text: str, jobs: int, threads: int) -> None:
    """Enqueue, run, and print the seconds."""
    parts = json.loads(text)
    launch(parts)
    DBOS.register_queue(QUEUE, worker_concurrency=threads)
    DBOS.destroy()
    client = DBOSClient(system_database_url=url(parts))
    for number in range(jobs):
        client.enqueue({"queue_name": QUEUE, "workflow_name": five_steps.__qualname__}, number)
    with psycopg.connect(**parts, autocommit=True) as connection:
        began = time.monotonic()
        with subprocess.Popen([sys.executable, __file__, text, str(jobs), str(threads), "work"]) as worker:
            while connection.execute(_DONE).fetchall()[0][0] < jobs and worker.poll() is None:
                time.sleep(0.05)
            seconds = time.monotonic() - began
            done = connection.execute(_DONE).fetchall()[0][0]
            worker.kill()
    sys.stdout.write(json.dumps({"done": done, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    if sys.argv[4:] == ["work"]:
        work(json.loads(sys.argv[1]), int(sys.argv[3]))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
