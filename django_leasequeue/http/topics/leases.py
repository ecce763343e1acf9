"""The life of a lease: claim (alone or dealt with a cohort, ``claim_jitter_ms``), ack, nack, extend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine import Ending, Operation, Outcome, Settled
from ...engine.leases.claim import claim_steps
from ...engine.leases.cohort import Claimer
from ...engine.leases.settle import result_too_large
from ...engine.limits import MAX_BATCH, MAX_DELAY_MS, MAX_LEASE_MS, MAX_SPAN_MS, MAX_TAG_BYTES, MIN_LEASE_MS
from ...engine.payloads import result_limit
from ...engine.topics.topics import TopicLook
from .. import payload
from ..access import READ, WRITE
from ..fields import OPTIONAL, Body, Integer, NodeName, Text
from ..schema import schema_of
from .base import Count, LeasedRecord, Seqs, Time, TopicView, endpoint, leased, milliseconds
from .fields import NO_TOKEN, JobSeqs, LeaseIds, Results, one_each
from .waiting import claim_together

_ERRORS: dict[int, list[str]] = {404: ["topic_not_found"], 409: ["not_a_queue"]}
_BATCH_ERRORS: dict[int, list[str]] = {400: ["batch_too_large"], **_ERRORS}


class ClaimBody(Body):
    """Who claims, how many, for how long."""

    node = NodeName()
    max = Integer(low=0, most=lambda: MAX_BATCH, default=1, help_text="How many jobs at most.")
    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="Default: the topic's.", **OPTIONAL)
    tag = Text(high=MAX_TAG_BYTES, help_text="Only jobs with this tag.", **OPTIONAL)


class Claimed(TypedDict):
    """The leased jobs, in claim order."""

    topic: str
    claimed: Annotated[list[LeasedRecord], {"maxItems": 1000}]
    count: Annotated[Count, "Fewer than asked: the queue is (nearly) empty."]
    ready: Count


class ClaimView(TopicView):
    """Lease jobs."""

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
        body = await self.body()
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
            Claimed(topic=topic, claimed=[leased(job) for job in jobs], count=len(jobs), ready=figures.ready),
            performance={"throttle_wait_ms": 0.0},
        )


class SettleBody(Body):
    """Which leases."""

    node = NodeName()
    seqs = JobSeqs(help_text=f"1 to {MAX_BATCH} jobs.")
    lease_ids = LeaseIds(help_text="The claim's tokens, one for each of the seqs, in their order.", **OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        leases = one_each(attrs, "lease_ids")
        if leases is not None:
            # The lease id of another job counts as a stale one: no lease of this job has it.
            attrs["tokens"] = [
                token if seq == asked else NO_TOKEN for (token, seq), asked in zip(leases, attrs["seqs"], strict=True)
            ]
        return attrs


Skipped = Annotated[Seqs, "What is not held by the node, in the order asked."]


class Acked(TypedDict):
    """How many jobs are done and gone."""

    topic: str
    acked: Count
    skipped: Skipped
    ready: Count
    in_flight: Count


class Nacked(TypedDict):
    """How many jobs were given back."""

    topic: str
    nacked: Count
    skipped: Skipped
    ready: Count
    in_flight: Count


class Extended(TypedDict):
    """The new deadlines."""

    topic: str
    extended: Count
    skipped: Skipped
    deadlines: Annotated[dict[str, Any], {"additionalProperties": schema_of(Time)}, "By seq."]
    cancelled: NotRequired[Annotated[Seqs, "Held, and to be stopped; left out when there is none."]]


class SettleView(TopicView):
    """What ack, nack and extend share."""

    async def settle(
        self, topic: str, operation: Operation[Settled], *, durably: bool = False
    ) -> tuple[Settled, float]:
        """Run a settle operation; where nothing was settled, raise if the topic is missing or a log."""
        settled, fsync_ms = await self.run_durably(topic, operation) if durably else (await self.run(operation), 0.0)
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

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        one_each(attrs, "results")
        return super().validate(attrs)


class AckView(SettleView):
    """Complete jobs."""

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
        acked = len(settled.ok)
        if results and ttl_ms is None:
            await self.warn(topic, _kept)
        figures = await self.figures(topic, in_flight=-acked, count=-acked)
        return self.answer(
            Acked(topic=topic, acked=acked, skipped=settled.skipped, ready=figures.ready, in_flight=figures.in_flight),
            performance={"fsync_ms": fsync_ms},
        )


def _kept(found: TopicLook) -> str | None:
    """Say that a topic keeps no results, ``None`` if it does."""
    if found.result_ttl_ms:
        return None
    return (
        "This topic keeps no results: who waits for one gets it, the others are gone. Send result_ttl_ms to keep them."
    )


class NackBody(SettleBody):
    """The jobs to give back."""

    delay_ms = Integer(high=MAX_DELAY_MS, clamp=True, default=0, help_text="Hold them back so long.")


class NackView(SettleView):
    """Give jobs back."""

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
            Nacked(
                topic=topic, nacked=nacked, skipped=settled.skipped, ready=figures.ready, in_flight=figures.in_flight
            )
        )


class ExtendBody(SettleBody):
    """The leases to extend."""

    lease_ms = Integer(low=MIN_LEASE_MS, high=MAX_LEASE_MS, clamp=True, help_text="From now on.")


class ExtendView(SettleView):
    """Set new deadlines."""

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
        operation = engine.extend(
            body["seqs"], body["node"], body["lease_ms"], tokens=body.get("tokens"), project=self.project, queue=topic
        )
        settled, _ = await self.settle(topic, operation)
        answer: Extended = {
            "topic": topic,
            "extended": len(settled.deadlines),
            "skipped": [seq for seq in settled.skipped if seq not in settled.deadlines],
            "deadlines": {str(seq): milliseconds(at) for seq, at in settled.deadlines.items()},
        }
        cancelled = [seq for seq, outcome in settled.outcomes.items() if outcome is Outcome.CANCELLED]
        if cancelled:
            answer["cancelled"] = cancelled
        return self.answer(answer)
