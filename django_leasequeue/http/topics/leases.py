"""The life of a lease: claim (alone or dealt with a cohort, ``claim_jitter_ms``), ack, nack, extend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...conf import process
from ...engine import Ending, LeasedJob, Operation, Outcome, Settled
from ...engine.leases.claim import claim_steps, load_hands
from ...engine.leases.cohort import Claimer, deal_cohort, join, leave, take
from ...engine.topics.topics import TopicLook
from ..access import READ, WRITE
from ..running import RequestRunner
from ..schema import describe
from ..streaming import in_background
from . import answers
from .base import TopicView
from .serializers import AckBody, ClaimBody, ExtendBody, NackBody
from .shapes import TOPIC, Acked, Claimed, Extended, Nacked

_TAG = "leases"
_ERRORS: dict[int, list[str]] = {404: ["topic_not_found"], 409: ["not_a_queue"]}
_BATCH_ERRORS: dict[int, list[str]] = {400: ["batch_too_large"], **_ERRORS}


class ClaimView(TopicView):
    """Lease jobs."""

    required_scopes = {"POST": frozenset({READ, WRITE})}

    @describe(
        "claimJobs",
        "Lease jobs to a worker",
        tag=_TAG,
        description=(
            "Jobs whose lease expired come first, before any that was never delivered. Fewer than `max`, or none, is "
            "no error: the queue is (nearly) empty."
        ),
        body=ClaimBody,
        answers={200: Claimed},
        errors=_ERRORS,
        parameters=[TOPIC],
        examples={
            "Up to 16 jobs": (
                {"node": "api-fra-1", "max": 16, "lease_ms": 30000},
                {
                    "topic": "transcode",
                    "claimed": [
                        {
                            "$seq": 480101,
                            "lease_id": "lease_000000000000002a0000000000075365",
                            "deadline": 1748450039000,
                            "$ts": 1748450001000,
                            "$tag": "clip-8800",
                            "deliveries": 1,
                            "data": {"src": "s3://uploads/clip-8800.mov"},
                        }
                    ],
                    "count": 1,
                    "ready": 0,
                    "performance": {"server_total_ms": 1.4, "throttle_wait_ms": 0.0},
                },
            )
        },
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body(ClaimBody)
        node, size, lease_ms = body["node"], body["max"], body.get("lease_ms")
        # One statement while there are jobs. Only a claim that brings nothing looks why: an empty queue, one whose
        # claims gather in a window, or no queue at all. What is dealt after a window has any tag: a claim of one tag
        # does not wait for it.
        tag = body.get("tag")
        jobs = await self.run(
            claim_steps(
                topic,
                node,
                size,
                project=self.project,
                lease_ms=lease_ms,
                tag=tag,
                skip_coalesced=tag is None,
                strict=False,
            )
        )
        if not jobs:
            found = await self.look(topic, leases=True)
            if found.claim_jitter_ms and tag is None:
                claimers = [Claimer(node, size, lease_ms)]
                (jobs,) = await claim_together(self.runner, self.project, topic, found, claimers)
        figures = await self.figures(
            topic, ready=-len(jobs), in_flight=len(jobs), drained=tag is None and len(jobs) < size
        )
        return self.answer(
            {
                "topic": topic,
                "claimed": [answers.leased(job) for job in jobs],
                "count": len(jobs),
                "ready": figures.ready,
            },
            performance={"throttle_wait_ms": 0.0},
        )


class SettleView(TopicView):
    """What ack, nack and extend share."""

    required_scopes = {"POST": frozenset({WRITE})}

    async def settle(
        self, topic: str, operation: Operation[Settled], *, durably: bool = False
    ) -> tuple[Settled, float]:
        """Run a settle operation; where nothing was settled, say so if the topic is not there or is a log.

        Raises:
            QueueNotFound, NotAQueue.
        """
        if durably:
            settled, fsync_ms = await self.run_durably(topic, operation)
        else:
            settled, fsync_ms = await self.run(operation), 0.0
        if not settled.ok:
            await self.look(topic, leases=True)
        return settled, fsync_ms


def _skipped(settled: Settled, asked: Sequence[int]) -> list[int]:
    """The seqs that were not settled, in the order asked, once each."""
    done = set(settled.ok)
    return [seq for seq in dict.fromkeys(asked) if seq not in done]


class AckView(SettleView):
    """Complete jobs."""

    @describe(
        "ackJobs",
        "Complete jobs: they are deleted",
        tag=_TAG,
        description=(
            "Safe to repeat: what is not held by the node is skipped. `results` and `result_ttl_ms` are extensions."
        ),
        body=AckBody,
        answers={200: Acked},
        errors={**_ERRORS, 400: ["batch_too_large", "record_too_large"]},
        parameters=[TOPIC],
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body(AckBody)
        nothing = [None] * len(body["seqs"])
        ttl_ms, results, tokens = body.get("result_ttl_ms"), body.get("results"), body.get("tokens")
        endings = [
            Ending(seq, token, result=result, result_ttl_ms=ttl_ms)
            for seq, token, result in zip(body["seqs"], tokens or nothing, results or nothing, strict=True)
        ]
        operation = engine.finish(endings, body["node"], project=self.project, queue=topic)
        settled, fsync_ms = await self.settle(topic, operation, durably=True)
        acked = len(settled.ok)
        if results and ttl_ms is None:
            await self.warn(topic, _kept)
        figures = await self.figures(topic, in_flight=-acked, count=-acked)
        return self.answer(
            {
                "topic": topic,
                "acked": acked,
                "skipped": _skipped(settled, body["seqs"]),
                "ready": figures.ready,
                "in_flight": figures.in_flight,
            },
            performance={"fsync_ms": fsync_ms},
        )


def _kept(found: TopicLook) -> str | None:
    """Say that a topic keeps no results, ``None`` if it does."""
    if found.result_ttl_ms:
        return None
    return (
        "This topic keeps no results: who waits for one gets it, the others are gone. Send result_ttl_ms to keep them."
    )


class NackView(SettleView):
    """Give jobs back."""

    @describe(
        "nackJobs",
        "Give jobs back, at once or after a delay",
        tag=_TAG,
        description="A delayed job is in no counter until its time has come.",
        body=NackBody,
        answers={200: Nacked},
        errors=_BATCH_ERRORS,
        parameters=[TOPIC],
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body(NackBody)
        operation = engine.nack(
            body["seqs"],
            body["node"],
            delay_ms=body["delay_ms"],
            tokens=body.get("tokens"),
            project=self.project,
            queue=topic,
        )
        settled, _ = await self.settle(topic, operation)
        nacked = len(settled.ok)
        figures = await self.figures(topic, ready=0 if body["delay_ms"] else nacked, in_flight=-nacked)
        return self.answer(
            {
                "topic": topic,
                "nacked": nacked,
                "skipped": _skipped(settled, body["seqs"]),
                "ready": figures.ready,
                "in_flight": figures.in_flight,
            }
        )


class ExtendView(SettleView):
    """Set new deadlines."""

    @describe(
        "extendLeases",
        "Set the deadline of held leases to now + lease_ms",
        tag=_TAG,
        description=(
            "Sets, never adds: it may shorten. The heartbeat of long jobs. `cancelled`, an extension, is there when "
            "workflows of some were cancelled: stop these jobs and nack them."
        ),
        body=ExtendBody,
        answers={200: Extended},
        errors=_BATCH_ERRORS,
        parameters=[TOPIC],
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body(ExtendBody)
        operation = engine.extend(
            body["seqs"], body["node"], body["lease_ms"], tokens=body.get("tokens"), project=self.project, queue=topic
        )
        settled, _ = await self.settle(topic, operation)
        answer: dict[str, Any] = {
            "topic": topic,
            "extended": len(settled.deadlines),
            "skipped": [seq for seq in settled.skipped if seq not in settled.deadlines],
            "deadlines": {str(seq): answers.milliseconds(at) for seq, at in settled.deadlines.items()},
        }
        cancelled = [seq for seq, outcome in settled.outcomes.items() if outcome is Outcome.CANCELLED]
        if cancelled:
            answer["cancelled"] = cancelled
        return self.answer(answer)


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
