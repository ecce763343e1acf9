"""What the answers look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from ...engine.limits import MAX_KEPT_NAME_BYTES, MAX_QUEUE_BYTES
from ..fields import Body, Text
from ..schema import Parameter, Shape

_OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True}

_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": ["string", "null"]}
_NEXT = {"type": ["string", "null"], "description": "`cursor` of the next page; null at the end."}

_DEAD_LETTER: dict[str, Any] = {
    "type": "object",
    "required": ["seq", "queue", "state", "dead_at"],
    "properties": {
        "seq": {"type": "integer", "description": "The job's number."},
        "project": {"type": "string", "description": "The tenant."},
        "queue": {"type": "string", "description": "The queue or dead-letter topic where it is."},
        "state": {"type": "string", "description": "`dead`; in a dead-letter topic `record` or a state of a job."},
        "task": {**_TEXT, "description": "The job's name."},
        "key": {**_TEXT, "description": "The client's id of the job."},
        "tag": {**_TEXT, "description": "The job's tag."},
        "deliveries": {"type": "integer", "description": "How often it was claimed."},
        "error_type": {**_TEXT, "description": "Class of the last error."},
        "error": {**_TEXT, "description": "The last error; in lists its beginning."},
        "fingerprint": {**_TEXT, "description": "The group of failures."},
        "dead_at": {**_TIME, "description": "When it died."},
        "created_at": {**_TIME, "description": "When it was enqueued."},
        "home": {**_TEXT, "description": "The queue that it came from, in a dead-letter topic."},
        "source_seq": {"type": ["integer", "null"], "description": "Its number there, or of the job that it replaced."},
        "data": {"description": "The payload, redacted; null without `with_payload=true`."},
        "meta": {"description": "The producer's metadata, redacted; null without `with_payload=true`."},
        "errors": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The failed attempts; empty without `with_payload=true`.",
        },
    },
}

_GROUP: dict[str, Any] = {
    "type": "object",
    "required": ["queue", "fingerprint", "dead_letters", "capped", "first_at", "last_at"],
    "properties": {
        "project": {"type": "string", "description": "The tenant."},
        "queue": {"type": "string", "description": "The queue or dead-letter topic."},
        "fingerprint": {"type": "string", "description": "Equal for failures of one cause."},
        "dead_letters": {"type": "integer", "description": "How many, up to the cap."},
        "capped": {"type": "boolean", "description": "Whether there are more."},
        "first_at": {**_TIME, "description": "The first death."},
        "last_at": {**_TIME, "description": "The last death."},
        "bars": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Deaths over the time from `bars_from` to `bars_to`, each clipped at 201.",
        },
        "sample_seq": {"type": ["integer", "null"], "description": "Number of the newest."},
        "task": {**_TEXT, "description": "Its task."},
        "error_type": {**_TEXT, "description": "Class of its error."},
        "error": {**_TEXT, "description": "The beginning of its error."},
    },
}

_JOB: dict[str, Any] = {
    "type": "object",
    "required": ["seq", "key", "label", "task", "queue", "state", "parents", "error_type", "error"],
    "properties": {
        "seq": {"type": "integer", "description": "The job's number."},
        "key": {**_TEXT, "description": "The client's id of the job; of a task the id of its result."},
        "label": {"type": "string", "description": "What it is called in the workflow; empty if nothing."},
        "task": {**_TEXT, "description": "The job's name."},
        "queue": {**_TEXT, "description": "The topic that it is in."},
        "state": {
            "type": "string",
            "description": "`waiting` (for others or for a limit), `delayed` (until its next attempt), `ready`,"
            " `running`, `completed`, `failed`, `cancelled`.",
        },
        "parents": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Numbers of the jobs it comes after.",
        },
        "error_type": {**_TEXT, "description": "Class of its last error."},
        "error": {**_TEXT, "description": "The beginning of its last error."},
    },
}
_COUNT = {"type": "integer"}
_VALUE = {"type": ["integer", "null"]}

_LIMIT: dict[str, Any] = {
    "type": "object",
    "required": [
        *("name", "concurrency", "rate", "per_ms", "burst", "fair", "pinned", "keys", "waiting", "taken", "capped")
    ],
    "properties": {
        "name": {"type": "string", "description": "The limit's name."},
        "concurrency": {**_VALUE, "description": "Jobs of a key at once; null: no limit."},
        "rate": {**_VALUE, "description": "Jobs of a key that start in `per_ms`; null: no limit."},
        "per_ms": {**_VALUE, "description": "The time of `rate`, in milliseconds."},
        "burst": {**_COUNT, "description": "How many more may start at once."},
        "fair": {"type": "boolean", "description": "Whether its keys take turns."},
        "pinned": {"type": "boolean", "description": "Whether an operator has set it: the code's values wait."},
        "keys": {**_COUNT, "description": "How many keys it has, up to 1,000."},
        "waiting": {**_COUNT, "description": "Jobs that wait for one of these keys, up to 1,000."},
        "taken": {**_COUNT, "description": "Slots of these keys that ready and running jobs have, up to 1,000."},
        "capped": {"type": "boolean", "description": "Whether one of the three is more."},
    },
}


def _answer(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [*fields, "performance"],
        "properties": {
            **fields,
            "performance": {"type": "object", "description": "What the answer took, in milliseconds."},
        },
    }


class DeadLetters(Shape):
    """Dead letters, the newest death first."""

    shape = _answer(
        dead_letters={"type": "array", "items": _DEAD_LETTER, "description": "The page."},
        next_cursor=_NEXT,
        looked_at={"type": "integer", "description": "Dead letters that were looked at for it."},
    )


class DeadLetter(Shape):
    """One dead letter with its payload."""

    shape = _answer(dead_letter=_DEAD_LETTER)


class RedriveBody(Body):
    """Where a dead letter goes, and from which step it runs."""

    to = Text(high=MAX_QUEUE_BYTES, help_text="The queue; default: the one that it came from.", **_OPTIONAL)
    from_step = Text(
        high=MAX_KEPT_NAME_BYTES, help_text="This step and those after it run again; default: none.", **_OPTIONAL
    )


class DeadLetterRedriven(Shape):
    """The dead letter is a job again."""

    shape = _answer(
        seq={"type": "integer", "description": "The dead letter's number."},
        queue={"type": "string", "description": "The queue that it is in now."},
    )


class DeadGroups(Shape):
    """Groups of dead letters, the newest death first."""

    shape = _answer(
        groups={"type": "array", "items": _GROUP, "description": "The page."},
        next_cursor=_NEXT,
        complete={"type": "boolean", "description": "False: narrow the filter to see all groups."},
        bars_from={**_TIME, "description": "Where the bars begin."},
        bars_to={**_TIME, "description": "Where they end."},
    )


class Workflow(Shape):
    """A workflow and a page of its jobs."""

    shape = _answer(
        workflow={"type": "string", "format": "uuid", "description": "The workflow's id."},
        name={"type": "string", "description": "Its name; empty if it has none."},
        state={"type": "string", "description": "`running`, `completed`, `failed`, `cancelled`."},
        total={**_COUNT, "description": "How many jobs it has."},
        open={**_COUNT, "description": "Those that have not ended."},
        completed={**_COUNT, "description": "Those that completed."},
        failed={**_COUNT, "description": "Those that failed for good."},
        cancelled={**_COUNT, "description": "Those that will not start, or were taken out."},
        created_at={**_TIME, "description": "When it was enqueued."},
        ended_at={"type": ["string", "null"], "format": "date-time", "description": "When its last job ended."},
        jobs={"type": "array", "items": _JOB, "description": "The page."},
        next_cursor=_NEXT,
    )


class Limits(Shape):
    """Limits by name."""

    shape = _answer(limits={"type": "array", "items": _LIMIT, "description": "The page."}, next_cursor=_NEXT)


def _parameter(name: str, description: str) -> Parameter:
    return Parameter(name, {"type": "string"}, description)


FILTER = [
    _parameter("queue", "Only of this queue or dead-letter topic."),
    _parameter("task", "Only of this task."),
    _parameter("fingerprint", "Only of this group; `-` for those without one."),
    _parameter("tag", "Only with this tag."),
    _parameter("since", "Died since then: ISO 8601, or how long ago (`2h`)."),
    _parameter("until", "Died until then."),
    _parameter("deliveries", "`3`, `>=3`, `3..5`."),
    _parameter("text", "A part of the error, the task or the key, in any case."),
    Parameter(
        "payload", {"type": "array", "items": {"type": "string"}, "maxItems": 5}, "Such as `data.kwargs.customer = 17`."
    ),
    _parameter("cursor", "`next_cursor` of the page before."),
]
