"""Steps, sleeps and waits of leased jobs for workers in other languages, and the events that jobs wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ...engine import Operation, codec
from ...engine.jobs import steps as job_steps
from ...engine.limits import MAX_KEPT_NAME_BYTES, MAX_SPAN_MS, check_seqs
from ...engine.queues import routing
from ...exceptions import LeaseLost
from ..access import EMIT, READ, WRITE
from ..fields import OPTIONAL, Anything, Body, Integer, Json, NodeName, Text
from ..schema import Parameter
from ..views import ApiView, T
from .base import NODE, Count, OfTopic, TopicView, endpoint
from .fields import LEASE_ID, NO_TOKEN, SEQ, LeaseId, invalid, parse_lease

#: The year 9999.
MAX_TIME_MS = 253_402_300_799_999
_ERRORS: dict[int, list[str]] = {404: ["topic_not_found"], 409: ["not_a_queue", "lease_lost"]}
_SEQ = Parameter("seq", SEQ, "The job.", where="path")
_INDEX = {"type": "integer", "minimum": 0, "default": 0}
_AFTER = Parameter("after", _INDEX, "`next` of the page before.", most=lambda: 2**31 - 1)
#: Names of steps and of events.
_STEP, _EVENT_NAME = r"^[^#\u0000]{1,200}(#[1-9][0-9]{0,4})?$", r"^[^$\u0000][^\u0000]*$"
_EVENT = Parameter(
    "event",
    {"type": "string", "minLength": 1, "maxLength": 512, "pattern": _EVENT_NAME},
    "Its name, not `$...`.",
    where="path",
)
_NAME = Parameter(
    "name",
    {"type": "string", "pattern": _STEP},
    "The step; of a repeated one with its number (`page#2`, in an address `page%232`).",
    where="path",
)


class LeasedJobView(TopicView):
    def lease(self, topic: str, seq: int, node: str, lease_id: tuple[int, int]) -> job_steps.Lease:
        check_seqs([seq])
        token, of = lease_id
        return job_steps.Lease(topic, seq, token if of == seq else NO_TOKEN, node, self.project)

    async def held(self, topic: str, operation: Operation[T]) -> T:
        """Run an operation under a lease; where that is lost, raise if the topic is missing or a log."""
        try:
            return await self.runner.run(operation)
        except LeaseLost:
            await self.look(topic, leases=True)
            raise


_Name = Annotated[str, "Of a repeated step with its number: `page`, `page#2`."]
_Value = Annotated[Any, "What it returned: any JSON."]


class StepValue(TypedDict):
    name: _Name
    value: _Value


class JobSteps(OfTopic):
    """What the steps of a job have returned, in their order."""

    seq: Count
    steps: Annotated[list[StepValue], {"maxItems": 1000}]
    next: NotRequired[Annotated[Count, "There may be more: ask again with `after`."]]


class StepsView(LeasedJobView):
    @endpoint(
        "readSteps",
        "What the steps of a leased job have returned",
        scopes=[READ, WRITE],
        description="Read once at the beginning of a delivery: what is there is not done again.",
        answers={200: JobSteps},
        errors=_ERRORS,
        parameters=[_SEQ, NODE, Parameter("lease_id", LEASE_ID, "As the claim gave it.", required=True), _AFTER],
    )
    async def get(self, request: Request, topic: str, seq: int) -> HttpResponse:
        lease = self.lease(topic, seq, self.node, parse_lease(request.GET.get("lease_id")))
        steps, after = await self.held(topic, job_steps.step_page(lease, self.number(_AFTER)))
        values = [StepValue(name=step.name, value=codec.loads(step.value)) for step in steps]
        found = JobSteps(topic=topic, seq=seq, steps=values)
        if after is not None:
            found["next"] = after
        return self.answer(found)


class LeaseBody(Body):
    node = NodeName()
    lease_id = LeaseId(help_text="As the claim gave it.")


class StepBody(LeaseBody):
    """Body of a request that records a step: what it returned, and the lease under which it ran."""

    bulk = True
    nulls = frozenset({"value"})
    value = Anything(help_text="Any JSON, as large as a result may be; null is a value.")


class StepRecorded(OfTopic):
    """What is kept of the step: the value of the first one who did it."""

    seq: Count
    name: _Name
    value: _Value


class StepView(LeasedJobView):
    @endpoint(
        "recordStep",
        "Keep what a step of a leased job has returned",
        scopes=[WRITE],
        description="Safe to repeat: what was kept first stays, and is answered with 200.",
        body=StepBody,
        answers={200: StepRecorded, 201: StepRecorded},
        errors={**_ERRORS, 400: ["record_too_large"]},
        parameters=[_SEQ, _NAME],
    )
    async def put(self, request: Request, topic: str, seq: int, name: str) -> HttpResponse:
        job_steps.check_step_name(name)
        body = await self.body()
        text = job_steps.step_text(name, body["value"])
        lease = self.lease(topic, seq, body["node"], body["lease_id"])
        kept = await self.held(topic, job_steps.record_step(lease, name, text))
        content = StepRecorded(topic=topic, seq=seq, name=name, value=codec.loads(kept.value))
        return self.answer(content, status=201 if kept.new else 200)


def _one(name: str, kind: str, *needed: str) -> Json:
    """Return the schema of a body that has this one of the three fields, and what it needs."""
    others = {other: {"type": "null"} for other in ("sleep_ms", "until", "event", "timeout_ms") if other != name}
    if name == "event":
        del others["timeout_ms"]
    given = {name: {"type": kind}, **{other: {"type": "string"} for other in needed}}
    return {"required": [name, *needed], "properties": {**given, **others}}


class SuspendBody(LeaseBody):
    """How long a job sleeps, or what it waits for; and its lease."""

    also = {
        "oneOf": [
            _one("sleep_ms", "integer", "name"),
            _one("until", "integer", "name"),
            _one("event", "string"),
        ]
    }
    name = Text(
        high=MAX_KEPT_NAME_BYTES,
        pattern=_STEP,
        help_text="Of the sleep or the wait, as of a step. Default: of its event.",
        **OPTIONAL,
    )
    sleep_ms = Integer(high=MAX_SPAN_MS, help_text="It sleeps so long.", **OPTIONAL)
    until = Integer(high=MAX_TIME_MS, help_text="Or until this time, milliseconds since the epoch.", **OPTIONAL)
    event = Text(
        high=job_steps.MAX_EVENT_NAME, pattern=_EVENT_NAME, help_text="Or it waits for this event.", **OPTIONAL
    )
    timeout_ms = Integer(high=MAX_SPAN_MS, help_text="So long at most. Default: 100 years.", **OPTIONAL)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in ("sleep_ms", "until", "event") if attrs.get(name) is not None]
        if len(given) != 1:
            raise invalid("Say how long the job sleeps, or what it waits for: one of sleep_ms, until and event.")
        if given != ["event"] and attrs.get("timeout_ms") is not None:
            raise invalid("timeout_ms: only a wait for an event has one.")
        if given != ["event"] and attrs.get("name") is None:
            raise invalid("name: a sleep needs one, so that a later delivery knows that it is over.")
        return attrs


class JobSuspended(OfTopic):
    """Whether the job was given back, or goes on."""

    seq: Count
    name: _Name
    suspended: Annotated[bool, "It was given back. Else what it waited for is over: go on."]
    left_ms: NotRequired[Annotated[Count, "Of a suspended one: for so long, at most."]]
    payload: NotRequired[Annotated[Any, "Of an event that has come."]]
    timed_out: NotRequired[Annotated[bool, "Of a wait for an event that is over: whether it did not come."]]


class SuspendView(LeasedJobView):
    @endpoint(
        "suspendJob",
        "Give a leased job back until its time or its event has come",
        scopes=[WRITE],
        description=(
            "The time is kept first: a later delivery that says the same waits for the rest only, and goes on when it "
            "is over. The job holds no lease meanwhile, and the delivery does not count."
        ),
        body=SuspendBody,
        answers={200: JobSuspended},
        errors=_ERRORS,
        parameters=[_SEQ],
    )
    async def post(self, request: Request, topic: str, seq: int) -> HttpResponse:
        body = await self.body()
        event, delay_ms, until = body.get("event"), body.get("sleep_ms"), body.get("until")
        if event is not None:
            job_steps.check_event_name(event)
            delay_ms = body.get("timeout_ms", MAX_SPAN_MS)
        name = body.get("name") or job_steps.event_step(event or "")
        lease = self.lease(topic, seq, body["node"], body["lease_id"])
        ends = None if until is None else datetime.fromtimestamp(until / 1_000, UTC)
        operation = job_steps.suspend_job(lease, name, event=event, delay_ms=delay_ms, until=ends)
        waited = await self.held(topic, operation)
        content = JobSuspended(topic=topic, seq=seq, name=name, suspended=waited.value is None)
        if waited.value is None:
            content["left_ms"] = max(waited.left_ms, 0)
            if event is not None:
                await self.runner.run(job_steps.wake_waiting([seq]))
        elif event is not None:
            found = codec.loads(waited.value)
            came = isinstance(found, dict) and "payload" in found
            content["timed_out"] = not came
            if came:
                content["payload"] = found["payload"]
        return self.answer(content)


class EmitBody(Body):
    """What the event brings to the jobs that wait for it."""

    payload = Anything(required=False, default=None, help_text="Any JSON, as large as a job's payload may be.")
    retention_ms = Integer(low=1, high=MAX_SPAN_MS, default=604_800_000, help_text="So long it is kept.")
    bulk = True
    nulls = frozenset({"payload"})


class EventEmitted(TypedDict):
    """Whether it is the first event of its name."""

    event: str
    first: Annotated[bool, "Else nothing has changed."]


class EventView(ApiView):
    @endpoint(
        "emitEvent",
        "Say that an event has happened: jobs that wait for it go on",
        scopes=[EMIT],
        description=(
            "Jobs of the key's project that wait for it, whatever their topic, and those that will wait for it while "
            "it is kept. The first event of a name stays (201); a later one changes nothing (200)."
        ),
        body=EmitBody,
        answers={200: EventEmitted, 201: EventEmitted},
        errors={400: ["record_too_large"]},
        parameters=[_EVENT],
    )
    async def post(self, request: Request, event: str) -> HttpResponse:
        body = await self.body()
        operation = job_steps.emit(event, body["payload"], project=self.project, retention=body["retention_ms"] / 1_000)
        # In each database: the jobs that wait for it may be anywhere. Safe to repeat where one of them is away.
        first = False
        for alias in routing.aliases():
            first |= await self.runner.on(alias).run(operation)
        return self.answer(EventEmitted(event=event, first=first), status=201 if first else 200)
