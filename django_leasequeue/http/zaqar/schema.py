"""How this door describes itself in the OpenAPI document; nothing without the extra ``openapi``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..schema import SCHEMA

try:
    from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
except ImportError:
    DESCRIBES = False
else:
    DESCRIBES = SCHEMA is not None

F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

BOOLEAN: Json = {"type": "string", "enum": ["true", "false", "True", "False"]}

MESSAGE: Json = {
    "type": "object",
    "required": ["href", "ttl", "age", "body"],
    "properties": {
        "href": {"type": "string"},
        "ttl": {"type": "integer", "description": "Seconds that it lives in all."},
        "age": {"type": "integer", "description": "Seconds since it was posted."},
        "body": {"description": "Any JSON."},
    },
}
MESSAGES: Json = {"type": "array", "items": MESSAGE}
LINKS: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1,
    "items": {
        "type": "object",
        "properties": {"rel": {"type": "string", "enum": ["next"]}, "href": {"type": "string"}},
        "required": ["rel", "href"],
    },
}
NEW_MESSAGES: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": 20,
    "items": {
        "type": "object",
        "required": ["ttl", "body"],
        "properties": {"ttl": {"type": "integer", "minimum": 60, "maximum": 1_209_600}, "body": {}},
    },
}
_SECONDS: Json = {"type": "integer", "minimum": 60, "maximum": 43_200}
NEW_CLAIM: Json = {"type": "object", "required": ["ttl", "grace"], "properties": {"ttl": _SECONDS, "grace": _SECONDS}}
RENEWAL: Json = {"type": "object", "required": ["ttl"], "properties": {"ttl": _SECONDS, "grace": _SECONDS}}
CLAIM: Json = {
    "type": "object",
    "required": ["href", "ttl", "age", "messages"],
    "properties": {
        "href": {"type": "string"},
        "ttl": {"type": "integer"},
        "age": {"type": "integer"},
        "messages": MESSAGES,
    },
}
QUEUES: Json = {
    "type": "object",
    "required": ["links", "queues"],
    "properties": {
        "links": LINKS,
        "queues": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "href"],
                "properties": {
                    "name": {"type": "string"},
                    "href": {"type": "string"},
                    "metadata": {"type": "object"},
                },
            },
        },
    },
}
LISTING: Json = {
    "type": "object",
    "required": ["links", "messages"],
    "properties": {"links": LINKS, "messages": MESSAGES},
}
POSTED: Json = {
    "type": "object",
    "required": ["resources", "partial"],
    "properties": {
        "resources": {"type": "array", "items": {"type": "string"}},
        "partial": {"type": "boolean", "enum": [False]},
    },
}
_END: Json = {
    "type": "object",
    "properties": {
        "href": {"type": "string"},
        "age": {"type": "integer"},
        "created": {"type": "string", "format": "date-time"},
    },
}
STATS: Json = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": {
            "type": "object",
            "required": ["free", "claimed", "total"],
            "properties": {
                "free": {"type": "integer"},
                "claimed": {"type": "integer"},
                "total": {"type": "integer"},
                "oldest": _END,
                "newest": _END,
            },
        }
    },
}
DOCUMENT: Json = {"type": "object"}
METADATA: Json = {**DOCUMENT, "propertyNames": {"pattern": "^([^_]|$)"}}
_ERROR: Json = {
    "type": "object",
    "required": ["title", "description"],
    "properties": {"title": {"type": "string"}, "description": {"type": "string"}},
}
_STATUS = {
    400: "The request is not valid.",
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key lacks a scope or may not act for the project, or the message is held, and not by the claim named.",
    404: "It is not there.",
    406: "`Accept` takes no JSON.",
    429: "Too many requests of this key; `Retry-After` says when to come again.",
    503: "The database cannot be reached; `Retry-After` says when to come again.",
}
_ALWAYS = (400, 401, 403, 406, 429, 503)

#: Query parameters: name -> (schema, description).
Query = Mapping[str, tuple[Json, str]]


def limit(highest: int) -> tuple[Json, str]:
    """Return the description of ``limit``."""
    return {"type": "integer", "minimum": 1, "maximum": highest, "default": 10}, "How many at most."


def described(
    name: str,
    summary: str,
    *,
    answers: Mapping[int, Json | None],
    body: Json | None = None,
    errors: tuple[int, ...] = (),
    query: Query | None = None,
    client: bool = False,
) -> Callable[[F], F]:
    """Describe one operation.

    Args:
        name: the operation's id.
        summary: one line.
        answers: the schema of each successful answer, ``None`` for one without a body.
        body: the schema of the request's body.
        errors: statuses beside those that every operation may give.
        query: parameters of the query.
        client: whether ``Client-ID`` must be sent.
    """
    if not DESCRIBES:
        return lambda method: method
    responses: dict[Any, Any] = {
        status: OpenApiResponse(shape, description="Done.") if shape else OpenApiResponse(None, description="No body.")
        for status, shape in answers.items()
    }
    for status in sorted({*_ALWAYS, *errors}):
        responses[status] = OpenApiResponse(_ERROR, description=_STATUS[status])
    headers = [
        OpenApiParameter("X-Project-Id", {"type": "string", "minLength": 1, "maxLength": 256}, OpenApiParameter.HEADER),
        OpenApiParameter("Client-ID", {"type": "string", "format": "uuid"}, OpenApiParameter.HEADER, required=client),
    ]
    extend = extend_schema(
        operation_id=f"zaqar_{name}",
        summary=summary,
        tags=["Zaqar v1"],
        request={"application/json": body} if body is not None else None,
        responses=responses,
        parameters=[
            *headers,
            *(
                OpenApiParameter(key, shape, OpenApiParameter.QUERY, description=text)
                for key, (shape, text) in (query or {}).items()
            ),
        ],
    )

    def apply(method: F) -> F:
        # Whatever schema class the host's REST_FRAMEWORK names: ours builds on drf-spectacular's.
        method.schema = SCHEMA  # type: ignore[attr-defined]  # read by extend_schema
        extended: F = extend(method)
        return extended

    return apply
