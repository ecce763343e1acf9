"""Steps, sleeps and waits of leased jobs for workers in other languages, and the events that jobs wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ...engine import Operation, codec
from ...engine.jobs.events import check_event_name, emit
from ...engine.jobs.remotesteps import Lease, check_step_name, record_step, step_page, suspend_job
from ...engine.jobs.steps import event_step, step_text, wake_waiting
from ...engine.limits import MAX_NODE_BYTES, MAX_SEQ, MAX_SPAN_MS, check_seqs
from ...engine.queues import routing
from ...exceptions import LeaseLost
from ..access import EMIT, READ, WRITE
from ..errors import ApiError
from ..fields import storable
from ..running import RequestRunner
from ..schema import Parameter, describe
from ..views import ApiView, T
from .base import TopicView
from .fields import LEASE_ID, NO_TOKEN, parse_lease
from .serializers import EmitBody, StepBody, SuspendBody
from .shapes import TOPIC, EventEmitted, JobSteps, JobSuspended, StepRecorded

_TAG = "steps"
_ERRORS: dict[int, list[str]] = {404: ["topic_not_found"], 409: ["not_a_queue", "lease_lost"]}
_SEQ = Parameter("seq", {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}, "The job.", where="path")
_NAME = Parameter(
    "name",
    {"type": "string", "pattern": "^[^#]{1,200}(#[1-9][0-9]{0,4})?$"},
    "The step; of a repeated one with its number (`page#2`, in an address `page%232`).",
    where="path",
)


class LeasedJobView(TopicView):
    """What is asked about one job under its lease."""

    def lease(self, topic: str, seq: int, node: str, lease_id: tuple[int, int]) -> Lease:
        check_seqs([seq])
        token, of = lease_id
        return Lease(topic, seq, token if of == seq else NO_TOKEN, node, self.project)

    async def held(self, topic: str, operation: Operation[T]) -> T:
        """Run an operation under a lease; where that is lost, say so if the topic is not there or is a log.

        Raises:
            LeaseLost, QueueNotFound, NotAQueue.
        """
        try:
            return await self.run(operation)
        except LeaseLost:
            await self.look(topic, leases=True)
            raise


class StepsView(LeasedJobView):
    """What a job has done."""

    required_scopes = {"GET": frozenset({READ, WRITE})}

    @describe(
        "readSteps",
        "What the steps of a leased job have returned",
        tag=_TAG,
        description="Read once at the beginning of a delivery: what is there is not done again.",
        answers={200: JobSteps},
        errors={**_ERRORS, 400: ["invalid_request"]},
        parameters=[
            TOPIC,
            _SEQ,
            Parameter(
                "node", {"type": "string", "minLength": 1, "maxLength": 128}, "The worker's name.", required=True
            ),
            Parameter("lease_id", LEASE_ID, "As the claim gave it.", required=True),
            Parameter("after", {"type": "integer", "minimum": 0, "default": 0}, "`next` of the page before."),
        ],
    )
    async def get(self, request: Request, topic: str, seq: int) -> HttpResponse:
        node = request.GET.get("node", "")
        if not 0 < storable(node) <= MAX_NODE_BYTES:
            raise ApiError(400, "invalid_request", f"node must be the worker's name, 1 to {MAX_NODE_BYTES} bytes.")
        lease = self.lease(topic, seq, node, parse_lease(request.GET.get("lease_id")))
        steps, after = await self.held(topic, step_page(lease, self.number("after", 0, 0, 2**31 - 1) or 0))
        found = [{"name": step.name, "value": codec.loads(step.value)} for step in steps]
        return self.answer({"topic": topic, "seq": seq, "steps": found, **({} if after is None else {"next": after})})


class StepView(LeasedJobView):
    """One step of a job."""

    required_scopes = {"PUT": frozenset({WRITE})}

    @describe(
        "recordStep",
        "Keep what a step of a leased job has returned",
        tag=_TAG,
        description="Safe to repeat: what was kept first stays, and is answered with 200.",
        body=StepBody,
        answers={200: StepRecorded, 201: StepRecorded},
        errors={**_ERRORS, 400: ["record_too_large"]},
        parameters=[TOPIC, _SEQ, _NAME],
    )
    async def put(self, request: Request, topic: str, seq: int, name: str) -> HttpResponse:
        check_step_name(name)
        body = await self.body(StepBody)
        text = step_text(name, body["value"])
        kept = await self.held(topic, record_step(self.lease(topic, seq, body["node"], body["lease_id"]), name, text))
        content = {"topic": topic, "seq": seq, "name": name, "value": codec.loads(kept.value)}
        return self.answer(content, status=201 if kept.new else 200)


class SuspendView(LeasedJobView):
    """Sleep, or wait for an event."""

    required_scopes = {"POST": frozenset({WRITE})}

    @describe(
        "suspendJob",
        "Give a leased job back until its time or its event has come",
        tag=_TAG,
        description=(
            "The time is kept first: a later delivery that says the same waits for the rest only, and goes on when it "
            "is over. The job holds no lease meanwhile, and the delivery does not count."
        ),
        body=SuspendBody,
        answers={200: JobSuspended},
        errors=_ERRORS,
        parameters=[TOPIC, _SEQ],
    )
    async def post(self, request: Request, topic: str, seq: int) -> HttpResponse:
        body = await self.body(SuspendBody)
        event, delay_ms, until = body.get("event"), body.get("sleep_ms"), body.get("until")
        if event is not None:
            check_event_name(event)
            delay_ms = body.get("timeout_ms", MAX_SPAN_MS)
        name = body.get("name") or event_step(event or "")
        waited = await self.held(
            topic,
            suspend_job(
                self.lease(topic, seq, body["node"], body["lease_id"]),
                name,
                event=event,
                delay_ms=delay_ms,
                until=None if until is None else datetime.fromtimestamp(until / 1_000, UTC),
            ),
        )
        content: dict[str, Any] = {"topic": topic, "seq": seq, "name": name, "suspended": waited.value is None}
        if waited.value is None:
            content["left_ms"] = max(waited.left_ms, 0)
            if event is not None:
                await self.run(wake_waiting([seq]))
        elif event is not None:
            found = codec.loads(waited.value)
            came = isinstance(found, dict) and "payload" in found
            content |= {"timed_out": not came, **({"payload": found["payload"]} if came else {})}
        return self.answer(content)


class EventView(ApiView):
    """Events that jobs wait for."""

    required_scopes = {"POST": frozenset({EMIT})}

    @describe(
        "emitEvent",
        "Say that an event has happened: jobs that wait for it go on",
        tag=_TAG,
        description=(
            "Jobs of the key's project that wait for it, whatever their topic, and those that will wait for it while "
            "it is kept. The first event of a name stays (201); a later one changes nothing (200)."
        ),
        body=EmitBody,
        answers={200: EventEmitted, 201: EventEmitted},
        errors={400: ["record_too_large"]},
        parameters=[
            Parameter(
                "event", {"type": "string", "minLength": 1, "maxLength": 512}, "Its name, not `$...`.", where="path"
            )
        ],
    )
    async def post(self, request: Request, event: str) -> HttpResponse:
        body = await self.body(EmitBody)
        operation = emit(event, body["payload"], project=self.project, retention=body["retention_ms"] / 1_000)
        # In each database: the jobs that wait for it may be anywhere. Safe to repeat where one of them is away.
        first = False
        for alias in routing.aliases():
            first |= await RequestRunner(alias, threaded=self.runner.threaded).run(operation)
        return self.answer({"event": event, "first": first}, status=201 if first else 200)
