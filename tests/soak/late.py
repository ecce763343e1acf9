"""``python -m tests.soak.late SEED``: consumers that ack late where that is accepted, and settle what is not theirs."""

from __future__ import annotations

import logging
import random
import signal
import sys
import threading
import time

import django
from django.db import Error, connection

from django_leasequeue import engine
from django_leasequeue.exceptions import LeaseQueueError

from .evidence import SECOND, monotonic, witness

logger = logging.getLogger("tests.soak.late")

QUEUE, LEASE_MS, CONSUMERS = "late", 1_000, 3
#: Seconds for which a job is held, and how often each comes; and how often something is settled that must not be.
HELD, OFTEN, FORGED = (0.05, 0.7, 1.3, 2.2), (6, 1, 2, 2), 0.4

stop = threading.Event()


class Consumer(threading.Thread):
    """Claims one job after the other."""

    def __init__(self, place: int, seed: int) -> None:
        super().__init__(name=f"late{place}", daemon=True)
        self._dice = random.Random(f"{seed}/late/{place}")

    def run(self) -> None:
        while not stop.is_set():
            try:
                jobs = engine.run(engine.claim(QUEUE, self.name, lease_ms=LEASE_MS, strict=False))
                for job in jobs:
                    self._hold(job)
            except (Error, LeaseQueueError) as error:
                logger.info("%s", " ".join(str(error).split())[:200])
                connection.close()
                jobs = []
            stop.wait(0 if jobs else 0.1)
        connection.close()

    def _hold(self, job: engine.LeasedJob) -> None:
        number, claimed, thread = job.data["job"], monotonic(job.claimed_at), threading.get_native_id()
        lease = (claimed, claimed + LEASE_MS * SECOND // 1_000)
        witness().say("start", number, job.seq, job.deliveries, job.token, *lease, thread, QUEUE)
        how = "raised"
        try:
            time.sleep(self._dice.choices(HELD, OFTEN)[0])
            if self._dice.random() < FORGED:
                self._forge(number, job)
            asked = time.monotonic_ns()
            outcome = "doubt"
            try:
                outcome = engine.run(engine.finish([engine.Ending(job.seq, job.token)], self.name)).outcomes[job.seq]
                how = "done" if outcome == engine.Outcome.OK else "stopped"
            finally:
                witness().say("acked", number, job.token, claimed, asked, str(outcome))
        finally:
            witness().say("end", number, job.token, how, thread)

    def _forge(self, number: int, job: engine.LeasedJob) -> None:
        """Settle a job under a token or a name that is not the holder's."""
        name, operation = self._dice.choice(
            [
                ("ack with another token", engine.finish([engine.Ending(job.seq, job.token + 1)], self.name)),
                ("ack by another node", engine.finish([engine.Ending(job.seq, job.token)], "another")),
                ("nack with another token", engine.release([engine.Release(job.seq, job.token + 1)], self.name)),
                ("extension by another node", engine.extend([job.seq], "another", LEASE_MS, tokens=[job.token])),
            ]
        )
        witness().say("forged", number, name, str(engine.run(operation).outcomes[job.seq]))


def main(seed: int) -> None:
    """Consume until SIGTERM."""
    django.setup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    consumers = [Consumer(place, seed) for place in range(CONSUMERS)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        while consumer.is_alive():
            time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
