"""What the answers look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from ..schema import Parameter, Shape

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


class DeadGroups(Shape):
    """Groups of dead letters, the newest death first."""

    shape = _answer(
        groups={"type": "array", "items": _GROUP, "description": "The page."},
        next_cursor=_NEXT,
        complete={"type": "boolean", "description": "False: narrow the filter to see all groups."},
        bars_from={**_TIME, "description": "Where the bars begin."},
        bars_to={**_TIME, "description": "Where they end."},
    )


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
