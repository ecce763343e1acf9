"""Waiting for one's cohort (``claim_jitter_ms``), and being dealt to with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ...conf import process
from ...engine import LeasedJob
from ...engine.leases.claim import load_hands
from ...engine.leases.cohort import Claimer, deal_cohort, join, leave, take
from ...engine.topics.topics import TopicLook
from ..running import RequestRunner
from ..streaming import in_background

logger = logging.getLogger("django_leasequeue.http")

_locks: process.PerLoop[dict[tuple[str, int], asyncio.Lock]] = process.PerLoop(dict)


def _lock(using: str, queue_id: int) -> asyncio.Lock:
    """One dealer of this process at a time: the others would only hold connections while they wait."""
    locks = _locks.get()
    if len(locks) > 10_000:
        locks.clear()
    return locks.setdefault((using, queue_id), asyncio.Lock())


async def claim_together(
    runner: RequestRunner, project: str, topic: str, found: TopicLook, claimers: Sequence[Claimer]
) -> list[list[LeasedJob]]:
    """Join the cohort of a queue, wait until its window closes, and return what each claimer was dealt.

    Cancelled meanwhile (the client went away), nothing stays leased.
    """
    joined = await runner.run(join(found.id, found.claim_jitter_ms, claimers))
    waiters = joined.waiters
    try:
        await asyncio.sleep(joined.wait_ms / 1000)
        async with _lock(runner.using, found.id):
            dealt = await runner.run(take(waiters))
            missing = [waiter for waiter in waiters if waiter not in dealt]
            if missing:
                rest = await runner.run(deal_cohort(topic, found, missing, project=project))
                dealt = {**dealt, **rest}
    except BaseException:
        in_background(_leave(runner, waiters, project))
        raise
    hands = [dealt.get(waiter, []) for waiter in waiters]
    return await load_large(runner, project, claimers, hands)


async def load_large(
    runner: RequestRunner, project: str, claimers: Sequence[Claimer], hands: list[list[LeasedJob]]
) -> list[list[LeasedJob]]:
    """Return what claimers were dealt with the payloads that stand in a storage."""
    if all(job.is_loaded for jobs in hands for job in jobs):
        return hands
    return await runner.run(load_hands(hands, [claimer.node for claimer in claimers], project=project))


async def _leave(runner: RequestRunner, waiters: Sequence[int], project: str) -> None:
    try:
        await runner.run(leave(waiters, project=project))
    except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
        reason = " ".join(str(error).split())
        logger.warning("A cohort could not be left; what it was dealt comes back when its leases end: %s", reason)
