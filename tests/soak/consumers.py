"""The consumers that are no workers of ours: ``tests.soak.consumers late|folded SEED``, or ``stream|claims URL``.

*late*: they ack late where that is accepted, and settle what is not theirs. *folded*: coroutines that share a
``BufferedQueue``. *stream* and *claims*: workers over HTTP with the client that we give to others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time

import django
from django.db import Error, connection

from django_leasequeue import BufferedQueue, Queue, engine
from django_leasequeue.client import Client, ClientJob, Worker
from django_leasequeue.engine import parse_lease_id
from django_leasequeue.exceptions import LeaseQueueError

from .evidence import LEASE_MS, SECOND, lease, monotonic, witness, work_until_told
from .promises import NOTICE

logger = logging.getLogger("tests.soak.consumers")

QUEUE, LATE_MS, CONSUMERS = "late", 1_000, 3
#: Seconds for which a job is held, and how often each comes; and how often something is settled that must not be.
HELD, OFTEN, FORGED = (0.05, 0.7, 1.3, 2.2), (6, 1, 2, 2), 0.4
#: Seconds between looks whether the lease is lost.
LOOK = 0.02
#: The queue of those that share a buffer; the seconds for which each holds a job, and how often it gives one back.
FOLDED, FOLDERS, BRIEF, GIVEN_BACK = "folded", 10, (0.0, 0.002, 0.05), 0.2

stop = threading.Event()


class Consumer(threading.Thread):
    def __init__(self, place: int, seed: int) -> None:
        super().__init__(name=f"late{place}", daemon=True)
        self._dice = random.Random(f"{seed}/late/{place}")

    def run(self) -> None:
        while not stop.is_set():
            try:
                jobs = engine.run(engine.claim(QUEUE, self.name, lease_ms=LATE_MS, strict=False))
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
        ends = claimed + LATE_MS * SECOND // 1_000
        witness().say("start", number, job.seq, job.deliveries, job.token, claimed, ends, thread, QUEUE)
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
        name, operation = self._dice.choice(
            [
                ("ack with another token", engine.finish([engine.Ending(job.seq, job.token + 1)], self.name)),
                ("ack by another node", engine.finish([engine.Ending(job.seq, job.token)], "another")),
                ("nack with another token", engine.release([engine.Release(job.seq, job.token + 1)], self.name)),
                ("extension by another node", engine.extend([job.seq], "another", LATE_MS, tokens=[job.token])),
            ]
        )
        witness().say("forged", number, name, str(engine.run(operation).outcomes[job.seq]))


class Folders(threading.Thread):
    def __init__(self, seed: int) -> None:
        super().__init__(name="folders", daemon=True)
        self._seed = seed

    def run(self) -> None:
        while not stop.is_set():
            try:
                asyncio.run(self._fold())
            except (Error, LeaseQueueError) as error:  # before there was a buffer
                logger.info("%s", " ".join(str(error).split())[:200])
                stop.wait(0.2)

    async def _fold(self) -> None:
        async with BufferedQueue(Queue(FOLDED)) as queue:
            dices = [random.Random(f"{self._seed}/folded/{place}") for place in range(FOLDERS)]
            await asyncio.gather(*(self._consume(queue, dice) for dice in dices))

    async def _consume(self, queue: BufferedQueue, dice: random.Random) -> None:
        while not stop.is_set():
            jobs = []
            try:
                for job in (jobs := await queue.aclaim()):
                    number, thread = job.payload["job"], threading.get_native_id()
                    claimed, ends = lease(job.deadline)
                    if time.monotonic_ns() > ends - NOTICE:
                        continue  # the answer came late
                    witness().say("start", number, job.seq, job.deliveries, job.token, claimed, ends, thread, FOLDED)
                    await asyncio.sleep(dice.choice(BRIEF))
                    back = dice.random() < GIVEN_BACK
                    witness().say("end", number, job.token, "raised" if back else "done", thread)
                    await (queue.anack(job, delay_ms=dice.choice([0, 20])) if back else queue.aack(job))
            except (Error, LeaseQueueError) as error:
                logger.info("%s", " ".join(str(error).split())[:200])
                jobs = []
            if not jobs:
                await asyncio.sleep(0.1)


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


def main(way: str, what: str) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if way in ("late", "folded"):
        django.setup()
        late = [Consumer(place, int(what)) for place in range(CONSUMERS)]
        work_until_told(late if way == "late" else [Folders(int(what))], stop)
        return
    witness()
    with Client(what) as client:
        Worker(client, "web", handle, concurrency=4, lease_ms=LEASE_MS, stream=way == "stream", poll_seconds=0.5).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
