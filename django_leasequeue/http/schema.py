"""How the doors describe themselves: OpenAPI through drf-spectacular when it is installed, nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rest_framework import serializers
from rest_framework.schemas.inspectors import ViewInspector

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

_FIELDS: dict[type[Any], Callable[[Any], Json]] = {}


def describe_field(kind: type[T], describe: Callable[[T], Json]) -> None:
    """Say what the JSON schema of a field class is."""
    _FIELDS[kind] = describe


class Shape(serializers.Serializer):  # type: ignore[type-arg]  # generic for the type checker only
    """A body that is only described: what we answer is built by hand, because serializing costs more than the work."""

    shape: Json = {}


class Error(Shape):
    """Every error's body."""

    shape = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {
                        "type": "string",
                        "pattern": "^[a-z_]+$",
                        "description": "Lower snake_case, for programs.",
                    },
                    "message": {"type": "string", "description": "A sentence for people: what is wrong, what to do."},
                    "detail": {
                        "type": "object",
                        "properties": {"topic": {"type": "string"}},
                        "description": "`topic` in 404 and 409.",
                    },
                },
            }
        },
    }


#: What each status means, as it stands in the description of an operation.
_STATUS = {
    400: "The request is not valid.",
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key lacks a scope, or may not see this topic.",
    404: "There is no such topic.",
    405: "Another method is needed.",
    406: "The answer is an event stream, and `Accept` does not take one.",
    409: "The topic does not allow it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The topic is at its cap and rejects.",
    429: "Too many requests of this key; `Retry-After` says when to come again.",
    500: "An error of the server.",
    503: "The database is not reachable, or this server cannot stream; `Retry-After` says when to come again.",
}
_ALWAYS = {401: ("unauthorized",), 403: ("forbidden",), 429: ("throttled",), 500: ("internal",), 503: ("not_ready",)}
_WITH_BODY = {400: ("invalid_request",), 413: ("payload_too_large",), 415: ("unsupported_media_type",)}

try:
    from drf_spectacular.extensions import (
        OpenApiAuthenticationExtension,
        OpenApiSerializerExtension,
        OpenApiSerializerFieldExtension,
    )
    from drf_spectacular.openapi import AutoSchema
    from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
except ImportError:  # the extra `openapi` is not installed
    SCHEMA: ViewInspector | None = None
else:
    SCHEMA = AutoSchema()

    class _FieldExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # registers itself
        target_class = serializers.Field
        match_subclasses = True

        @classmethod
        def _matches(cls, target: Any) -> bool:
            return any(kind in _FIELDS for kind in type(target).__mro__)

        def map_serializer_field(self, auto_schema: Any, direction: Any) -> Json:
            describe = next(_FIELDS[kind] for kind in type(self.target).__mro__ if kind in _FIELDS)
            return describe(self.target)

    class _ShapeExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
        target_class = Shape
        match_subclasses = True

        def map_serializer(self, auto_schema: Any, direction: Any) -> Json:
            return {"description": (type(self.target).__doc__ or "").strip(), **self.target.shape}

    class _KeyExtension(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
        target_class = "django_leasequeue.http.auth.ApiKeyAuthentication"
        name = "apiKey"

        def get_security_definition(self, auto_schema: Any) -> Json:
            return {
                "type": "http",
                "scheme": "bearer",
                "description": "A key from `manage.py leasequeue_apikey create`.",
            }


class Parameter:
    """A parameter of the path or the query."""

    def __init__(
        self, name: str, schema: Json, description: str = "", *, where: str = "query", required: bool = False
    ) -> None:
        self.name, self.schema, self.description, self.where = name, schema, description, where
        self.required = required or where == "path"


def _errors(codes: Mapping[int, Iterable[str]], *, body: bool) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = dict(_ALWAYS)
    for status, words in [*(_WITH_BODY.items() if body else ()), *codes.items()]:
        found[status] = tuple(dict.fromkeys((*found.get(status, ()), *words)))
    return found


def describe(
    name: str,
    summary: str,
    *,
    tag: str,
    description: str = "",
    body: type[serializers.BaseSerializer[Any]] | None = None,
    answers: Mapping[int, type[Shape] | str],
    errors: Mapping[int, Iterable[str]],
    parameters: Sequence[Parameter] = (),
    examples: Mapping[str, tuple[Any, Any]] | None = None,
    stream: bool = False,
) -> Callable[[F], F]:
    """Describe one operation for the OpenAPI document.

    Args:
        name: the operation's id.
        summary: one line.
        tag: the group it belongs to.
        description: Markdown.
        body: the serializer of the request's body.
        answers: the shape of each successful answer, by status; a sentence instead of a shape for an event stream.
        errors: codes by status, beside those that every operation may give.
        parameters: of the path and the query.
        examples: by title, the request's body and the answer's.
        stream: the answer is an event stream.
    """
    if SCHEMA is None:
        return lambda method: method
    media = "text/event-stream" if stream else "application/json"
    responses: dict[Any, Any] = {}
    for status, shape in answers.items():
        if isinstance(shape, str):
            responses[status, media] = OpenApiResponse({"type": "string"}, description=shape)
        else:
            text = (shape.__doc__ or "").strip()
            responses[status, media] = OpenApiResponse(
                shape,
                description=text,
                examples=[
                    OpenApiExample(title, value=answer, response_only=True)
                    for title, (_, answer) in (examples or {}).items()
                ],
            )
    for status, codes in sorted(_errors(errors, body=body is not None).items()):
        words = ", ".join(f"`{code}`" for code in codes)
        responses[status, "application/json"] = OpenApiResponse(Error, description=f"{words}. {_STATUS[status]}")
    decorate: Callable[[F], F] = extend_schema(
        operation_id=name,
        summary=summary,
        description=description,
        tags=[tag],
        request={"application/json": body} if body is not None else None,
        responses=responses,
        parameters=[
            OpenApiParameter(
                parameter.name,
                parameter.schema,
                getattr(OpenApiParameter, parameter.where.upper()),
                required=parameter.required,
                description=parameter.description,
            )
            for parameter in parameters
        ],
        examples=[
            OpenApiExample(title, value=request, request_only=True)
            for title, (request, _) in (examples or {}).items()
            if request is not None
        ],
    )

    def apply(method: F) -> F:
        # Whatever schema class the host's REST_FRAMEWORK names: ours builds on drf-spectacular's.
        method.schema = SCHEMA  # type: ignore[attr-defined]  # read by extend_schema
        return decorate(method)

    return apply
