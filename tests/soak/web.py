"""The workers over HTTP: ``python -m tests.soak.web URL stream|claims``, with the client that we give to others."""

from __future__ import annotations

import logging
import sys
import threading
import time

from django_leasequeue.client import Client, ClientJob, Worker
from django_leasequeue.engine import parse_lease_id

from .evidence import LEASE_MS, lease, witness

#: Seconds between looks whether the lease is lost.
LOOK = 0.02


def handle(job: ClientJob) -> None:
    """Run one job; say what it sees. When it is told that its lease is lost it stops, or (stubborn) goes on."""
    number, seconds, stubborn = job.data["job"], job.data["seconds"], job.data["stubborn"]
    claim, _ = parse_lease_id(job.lease_id)
    claimed, deadline = lease(job.deadline)
    thread = threading.get_native_id()
    witness().say("start", number, job.seq, job.deliveries, claim, claimed, deadline, thread, "web")
    how = "done"
    end = time.monotonic() + seconds
    told = False
    while time.monotonic() < end and how == "done":
        time.sleep(min(LOOK, seconds))
        if job.lost and not told:
            told = True
            witness().say("told", number, claim, "lost")
            how = "done" if stubborn else "stopped"
    witness().say("end", number, claim, how, thread)


def main(url: str, way: str) -> None:
    """Work until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    witness()
    with Client(url) as client:
        Worker(client, "web", handle, concurrency=4, lease_ms=LEASE_MS, stream=way == "stream", poll_seconds=0.5).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
