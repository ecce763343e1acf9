"""A consumer for tests: ``python -m tests.queue.folding NODE SEED``: coroutines that share one ``BufferedQueue``."""

from __future__ import annotations

import asyncio
import random
import sys

import django

QUEUE, COROUTINES, LEASE_MS = "folded", 12, 1_500
#: What becomes of a leased job: how many of 100.
FATES = {"ack": 70, "nack": 12, "nack later": 8, "extend": 6, "forget": 4}


async def consume(buffered: object, dice: random.Random) -> None:
    from django_leasequeue import BufferedQueue
    from django_leasequeue.exceptions import LeaseLost

    assert isinstance(buffered, BufferedQueue)
    while True:
        jobs = await buffered.aclaim(dice.randint(1, 3), lease_ms=LEASE_MS)
        if not jobs:
            await asyncio.sleep(0.02)
        for job in jobs:
            await asyncio.sleep(dice.choice([0, 0, 0.002, 0.01]))
            (fate,) = dice.choices(list(FATES), list(FATES.values()))
            try:
                if fate.startswith("nack"):
                    await buffered.anack(job, delay_ms=30 if fate == "nack later" else 0)
                elif fate == "forget":  # it expires
                    continue
                elif fate == "extend":
                    await buffered.aack(await buffered.aextend(job, LEASE_MS))
                else:
                    await buffered.aack(job)
            except LeaseLost:
                continue


async def main(node: str, seed: str) -> None:
    from django_leasequeue import BufferedQueue, Queue

    async with BufferedQueue(Queue(QUEUE, node=node)) as buffered:
        await asyncio.gather(*(consume(buffered, random.Random(f"{seed}/{n}")) for n in range(COROUTINES)))


if __name__ == "__main__":
    django.setup()
    asyncio.run(main(*sys.argv[1:]))
