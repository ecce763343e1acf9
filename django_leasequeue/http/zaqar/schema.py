"""How this door describes itself in the OpenAPI document; nothing without the extra ``openapi``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ... import conf
from ...conf.options import ZaqarLimits
from ..schema import Answer, F, Json, Parameter, Words, describe_operation


def _limits() -> ZaqarLimits:
    return conf.settings.API.ZAQAR


def limit_of(name: str) -> Callable[[], int]:
    """Return the function that returns one of this door's limits as it is when it is called."""
    return lambda: int(getattr(_limits(), name))


class Seconds(NamedTuple):
    """A field of whole seconds in a body, and the names of its limits: what is checked, and what is described."""

    name: str
    low: str
    high: str

    @property
    def schema(self) -> Json:
        """Its JSON schema."""
        return {"type": "integer", "minimum": limit_of(self.low), "maximum": limit_of(self.high)}

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest value now."""
        return limit_of(self.low)(), limit_of(self.high)()


MESSAGE_TTL = Seconds("ttl", "MIN_MESSAGE_TTL", "MAX_MESSAGE_TTL")
CLAIM_TTL = Seconds("ttl", "MIN_CLAIM_TTL", "MAX_CLAIM_TTL")
CLAIM_GRACE = Seconds("grace", "MIN_CLAIM_GRACE", "MAX_CLAIM_GRACE")

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
    "maxItems": limit_of("MAX_MESSAGES_PER_PAGE"),
    "items": {
        "type": "object",
        "required": ["ttl", "body"],
        "properties": {"ttl": MESSAGE_TTL.schema, "body": {}},
    },
}
_CLAIM: Json = {"ttl": CLAIM_TTL.schema, "grace": CLAIM_GRACE.schema}
NEW_CLAIM: Json = {"type": "object", "required": ["ttl", "grace"], "properties": _CLAIM}
RENEWAL: Json = {"type": "object", "required": ["ttl"], "properties": _CLAIM}
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
Query = Mapping[str, tuple[Json, Words]]

#: The parameter ``ids``.
IDS: tuple[Json, Words] = (
    {"type": "string"},
    lambda: f"Comma-separated or repeated, at most {limit_of('MAX_MESSAGES_PER_PAGE')():,}.",
)


def limit(highest: str) -> tuple[Json, Words]:
    """Return the description of ``limit``, whose highest value is one of the limits of this door."""
    most = limit_of(highest)
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": lambda: min(_limits().DEFAULT_PAGE, most())}
    return schema, "How many at most."


def described(
    name: str,
    summary: str,
    *,
    answers: Mapping[int, Json | None],
    description: Words = "",
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
        description: what else there is to say.
        body: the schema of the request's body.
        errors: statuses beside those that every operation may give.
        query: parameters of the query.
        client: whether ``Client-ID`` must be sent.
    """
    return describe_operation(
        f"zaqar_{name}",
        summary,
        tag="Zaqar v1",
        description=description,
        body=body,
        answers={
            **{status: Answer(shape, "Done." if shape else "No body.") for status, shape in answers.items()},
            **{status: Answer(_ERROR, _STATUS[status]) for status in sorted({*_ALWAYS, *errors})},
        },
        parameters=[
            Parameter("X-Project-Id", {"type": "string", "minLength": 1, "maxLength": 256}, where="header"),
            Parameter("Client-ID", {"type": "string", "format": "uuid"}, where="header", required=client),
            *(Parameter(key, shape, text) for key, (shape, text) in (query or {}).items()),
        ],
    )
