"""The life of a lease: claim (alone or dealt with a cohort, ``claim_jitter_ms``), ack, nack, extend."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...conf import process
from ...engine import Ending, LeasedJob, Operation, Outcome, Settled
from ...engine.leases.claim import ClaimOptions, claim_steps
from ...engine.leases.cohort import Claimer, deal_cohort, join, leave, take
from ...engine.leases.finish import result_too_large
from ...engine.leases.settle import load_hands
from ...engine.limits import MAX_BATCH, MAX_DELAY_MS, MAX_LEASE_MS, MAX_SPAN_MS, MAX_TAG_BYTES, MIN_LEASE_MS
from ...engine.payloads import result_limit
from ...engine.topics.topics import TopicLook
from ...enums import JobState
from .. import payload
from ..access import READ, WRITE
from ..errors import logger
from ..fields import OPTIONAL, Body, Integer, NodeName, Text
from ..schema import schema_of
from ..streaming import in_background
from ..views import RequestRunner
from .base import Count, LeasedRecord, OfTopic, Seqs, Time, TopicView, endpoint, leased, milliseconds, note_figures
from .fields import NO_TOKEN, JobSeqs, LeaseIds, Results, one_each

_ERRORS: dict[int, list[str]] = {404: ["topic_not_found"], 409: ["not_a_queue"]}
_BATCH_ERRORS = {400: ["batch_too_large"], **_ERRORS}


class ClaimBody(Body):
    """Who claims, how many, for how long."""

    node = NodeName()
    max = Integer(low=0, most=lambda: MAX_BATCH, default=1, help_text="How many jobs at most.")
    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="Default: the topic's.", **OPTIONAL)
    tag = Text(high=MAX_TAG_BYTES, help_text="Only jobs with this tag.", **OPTIONAL)


class Claimed(OfTopic):
    """The leased jobs, in claim order."""

    claimed: Annotated[list[LeasedRecord], {"maxItems": 1000}]
    count: Annotated[Count, "Fewer than asked: the queue is (nearly) empty."]
    ready: Count


_locks: process.PerLoop[dict[tuple[str, int], asyncio.Lock]] = process.PerLoop(dict)


async def claim_together(
    runner: RequestRunner, project: str, topic: str, found: TopicLook, claimers: Sequence[Claimer]
) -> list[list[LeasedJob]]:
    """Join the cohort of a queue, wait until its window closes, and return what each claimer was dealt."""
    joined = await runner.run(join(found.id, found.claim_jitter_ms, claimers))
    waiters = joined.waiters

    async def give_back() -> None:
        try:
            await runner.run(leave(waiters, project=project))
        except Exception as error:  # noqa: BLE001  (most often the database is gone: its stack says nothing more)
            logger.warning("A cohort could not be left; what it was dealt comes back when its leases end: %s", error)

    try:
        await asyncio.sleep(joined.wait_ms / 1000)
        locks = _locks.get()
        if len(locks) > 10_000:
            locks.clear()
        # One dealer of this process at a time: the others would only hold connections while they wait.
        async with locks.setdefault((runner.using, found.id), asyncio.Lock()):
            dealt = await runner.run(take(waiters))
            missing = [waiter for waiter in waiters if waiter not in dealt]
            if missing:
                own = await runner.run(deal_cohort(topic, found, missing, project=project))
                note_figures(runner.using, project, topic, recount=own.aside > 0)
                dealt = dealt | own.hands
    except BaseException:  # (the client went away: nothing stays leased)
        in_background(give_back())
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


_CLAIM = {
    "Up to 16 jobs": (
        {"node": "api-fra-1", "max": 16, "lease_ms": 30000},
        {
            "topic": "transcode",
            "claimed": [{
                "$seq": 480101, "lease_id": "lease_000000000000002a0000000000075365", "deadline": 1748450039000,
                "$ts": 1748450001000, "$tag": "clip-8800", "deliveries": 1, "data": {"src": "s3://uploads/clip-8800.mov"},
            }],
            "count": 1, "ready": 0, "performance": {"server_total_ms": 1.4, "throttle_wait_ms": 0.0},
        },
    )
}  # fmt: skip


class ClaimView(TopicView):
    @endpoint(
        "claimJobs",
        "Lease jobs to a worker",
        scopes=[READ, WRITE],
        description=(
            "Jobs whose lease expired come first, before any that was never delivered. Fewer than `max`, or none, is "
            "no error: the queue is (nearly) empty."
        ),
        body=ClaimBody,
        answers={200: Claimed},
        errors=_ERRORS,
        examples=_CLAIM,
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        node, size, lease_ms = body["node"], body["max"], body.get("lease_ms")
        # One statement while there are jobs. Only a claim that brings nothing looks why: an empty queue, one whose
        # claims gather in a window, or no queue at all. What is dealt after a window has any tag: a claim of one tag
        # does not wait for it.
        tag, untagged = body.get("tag"), body.get("tag") is None
        aside: list[int] = []
        options: ClaimOptions = {
            "lease_ms": lease_ms, "tag": tag, "aside": aside, "skip_coalesced": untagged, "strict": False
        }  # fmt: skip
        jobs = await self.runner.run(Operation(claim_steps, [topic], node, size, self.project, **options))
        if not jobs:
            found = await self.look(topic, leases=True)
            if found.claim_jitter_ms and untagged:
                claimers = [Claimer(node, size, lease_ms)]
                (jobs,) = await claim_together(self.runner, self.project, topic, found, claimers)
        if not self.access.may_claim(jobs):
            await self.refuse_tasks(jobs, node)
        count = len(jobs)
        figures = await self.figures(
            topic, ready=-count, in_flight=count, recount=any(aside), drained=untagged and count < size
        )
        answer = Claimed(topic=topic, claimed=[leased(job) for job in jobs], count=count, ready=figures.ready)
        return self.answer(answer, performance={"throttle_wait_ms": 0.0})


class SettleBody(Body):
    """Which leases."""

    node = NodeName()
    seqs = JobSeqs(help_text=f"1 to {MAX_BATCH} jobs.")
    lease_ids = LeaseIds(help_text="The claim's tokens, one for each of the seqs, in their order.", **OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        one_each(attrs, "results")  # (an ack's)
        leases = one_each(attrs, "lease_ids")
        if leases is not None:
            # The lease id of another job counts as a stale one: no lease of this job has it.
            pairs = zip(leases, attrs["seqs"], strict=True)
            attrs["tokens"] = [token if seq == asked else NO_TOKEN for (token, seq), asked in pairs]
        return attrs


Skipped = Annotated[Seqs, "What is not held by the node, in the order asked."]


class Acked(OfTopic):
    """How many jobs are done and gone."""

    acked: Count
    skipped: Skipped
    ready: Count
    in_flight: Count


class Nacked(OfTopic):
    """How many jobs were given back."""

    nacked: Count
    skipped: Skipped
    ready: Count
    in_flight: Count


class Extended(OfTopic):
    """The new deadlines."""

    extended: Count
    skipped: Skipped
    deadlines: Annotated[dict[str, Any], {"additionalProperties": schema_of(Time)}, "By seq."]
    cancelled: NotRequired[Annotated[Seqs, "Held, and to be stopped; left out when there is none."]]


class SettleView(TopicView):
    async def settle(self, topic: str, work: Operation[Settled], *, durably: bool = False) -> tuple[Settled, float]:
        """Run a settle operation; where nothing was settled, raise if the topic is missing or a log."""
        settled, fsync_ms = await self.run_durably(topic, work) if durably else (await self.runner.run(work), 0.0)
        if not settled.ok:
            await self.look(topic, leases=True)
        return settled, fsync_ms


class AckBody(SettleBody):
    """The jobs that are done."""

    bulk = True
    results = Results(help_text="What came of the jobs: any JSON for each of the seqs, in their order.", **OPTIONAL)
    result_ttl_ms = Integer(
        high=MAX_SPAN_MS, help_text="How long the results are kept. Default: the job's, or the topic's.", **OPTIONAL
    )

    @classmethod
    def check_large(cls, fields: Mapping[str, Any]) -> None:
        limit = result_limit()
        if any(payload.surely_longer(result, limit) for result in fields.get("results") or ()):
            raise result_too_large(limit)


_NOT_KEPT = (
    "This topic keeps no results: who waits for one gets it, the others are gone. Send result_ttl_ms to keep them."
)


class AckView(SettleView):
    @endpoint(
        "ackJobs",
        "Complete jobs: they are deleted",
        description=(
            "Safe to repeat: what is not held by the node is skipped. `results` and `result_ttl_ms` are extensions."
        ),
        scopes=[WRITE],
        body=AckBody,
        answers={200: Acked},
        errors={**_ERRORS, 400: ["batch_too_large", "record_too_large"]},
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        nothing = [None] * len(body["seqs"])
        ttl_ms, results, tokens = body.get("result_ttl_ms"), body.get("results"), body.get("tokens")
        endings = [
            Ending(seq, token, result=result, result_ttl_ms=ttl_ms)
            for seq, token, result in zip(body["seqs"], tokens or nothing, results or nothing, strict=True)
        ]
        operation = engine.finish(endings, body["node"], project=self.project, queue=topic)
        settled, fsync_ms = await self.settle(topic, operation, durably=True)
        acked, skipped = len(settled.ok), settled.skipped
        if results and ttl_ms is None:
            await self.warn(topic, lambda found: None if found.result_ttl_ms else _NOT_KEPT)
        now = await self.figures(topic, in_flight=-acked, count=-acked)
        answer = Acked(topic=topic, acked=acked, skipped=skipped, ready=now.ready, in_flight=now.in_flight)
        return self.answer(answer, performance={"fsync_ms": fsync_ms})


_READY, _DEAD = JobState.READY.label, JobState.DEAD.label


class NackBody(SettleBody):
    """The jobs to give back."""

    delay_ms = Integer(high=MAX_DELAY_MS, clamp=True, default=0, help_text="Hold them back so long.")


class NackView(SettleView):
    @endpoint(
        "nackJobs",
        "Give jobs back, at once or after a delay",
        description="A delayed job is in no counter until its time has come.",
        scopes=[WRITE],
        body=NackBody,
        answers={200: Nacked},
        errors=_BATCH_ERRORS,
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        seqs, node, tokens, delay_ms = body["seqs"], body["node"], body.get("tokens"), body["delay_ms"]
        operation = engine.nack(seqs, node, delay_ms=delay_ms, tokens=tokens, project=self.project, queue=topic)
        settled, _ = await self.settle(topic, operation)
        nacked, skipped = len(settled.ok), settled.skipped
        where = [settled.released[seq].state for seq in settled.ok]
        now = await self.figures(topic, ready=where.count(_READY), in_flight=-nacked, recount=_DEAD in where)
        answer = Nacked(topic=topic, nacked=nacked, skipped=skipped, ready=now.ready, in_flight=now.in_flight)
        return self.answer(answer)


class ExtendBody(SettleBody):
    """The leases to extend."""

    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="From now on.")


class ExtendView(SettleView):
    @endpoint(
        "extendLeases",
        "Set the deadline of held leases to now + lease_ms",
        description=(
            "Sets, never adds: it may shorten. The heartbeat of long jobs. `cancelled`, an extension, is there when "
            "workflows of some were cancelled: stop these jobs and nack them."
        ),
        scopes=[WRITE],
        body=ExtendBody,
        answers={200: Extended},
        errors=_BATCH_ERRORS,
    )
    async def post(self, request: Request, topic: str) -> HttpResponse:
        body = await self.body()
        seqs, node, tokens = body["seqs"], body["node"], body.get("tokens")
        operation = engine.extend(seqs, node, body["lease_ms"], tokens=tokens, project=self.project, queue=topic)
        settled, _ = await self.settle(topic, operation)
        skipped = [seq for seq in settled.skipped if seq not in settled.deadlines]
        deadlines = {str(seq): milliseconds(at) for seq, at in settled.deadlines.items()}
        answer = Extended(topic=topic, extended=len(deadlines), skipped=skipped, deadlines=deadlines)
        cancelled = [seq for seq, outcome in settled.outcomes.items() if outcome is Outcome.CANCELLED]
        if cancelled:
            answer["cancelled"] = cancelled
        return self.answer(answer)
