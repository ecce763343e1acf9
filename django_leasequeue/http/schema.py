"""The doors' own descriptions: OpenAPI through drf-spectacular when it is installed, nothing otherwise.

A figure that a setting decides stands in a description as a function without parameters: it is called when the document
is made, so the document says what is enforced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rest_framework import serializers
from rest_framework.schemas.inspectors import ViewInspector

from .. import conf

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]
#: A text, or a function that returns it.
Words = str | Callable[[], str]

_FIELDS: dict[type[Any], Callable[[Any], Json]] = {}


def describe_field(kind: type[T], describe: Callable[[T], Json]) -> None:
    """Say what the JSON schema of a field class is."""
    _FIELDS[kind] = describe


def filled(value: Any) -> Any:
    """Return a description with every function in it replaced by what it returns now."""
    if isinstance(value, dict):
        return {name: filled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner) for inner in value]
    return filled(value()) if callable(value) else value


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
_STATUS: dict[int, Words] = {
    400: "The request is not valid.",
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key lacks a scope, or may not see this topic.",
    404: "There is no such topic.",
    405: "Another method is needed.",
    406: "The answer is an event stream, and `Accept` does not take one.",
    409: "The topic does not allow it.",
    413: lambda: f"The body has more than {conf.settings.API.MAX_BODY_BYTES:,} bytes.",
    415: lambda: f"The body is not JSON, which may be nested {conf.settings.API.MAX_DEPTH} deep.",
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

    class _Schema(AutoSchema):
        def get_operation(self, *args: Any, **kwargs: Any) -> Json | None:
            found: Json | None = filled(super().get_operation(*args, **kwargs))
            return found

    SCHEMA = _Schema()

    class _FieldExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # registers itself
        target_class = serializers.Field
        match_subclasses = True

        @classmethod
        def _matches(cls, target: Any) -> bool:
            return any(kind in _FIELDS for kind in type(target).__mro__)

        def map_serializer_field(self, auto_schema: Any, direction: Any) -> Json:
            describe = next(_FIELDS[kind] for kind in type(self.target).__mro__ if kind in _FIELDS)
            found: Json = filled(describe(self.target))
            return found

    class _ShapeExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
        target_class = Shape
        match_subclasses = True

        def map_serializer(self, auto_schema: Any, direction: Any) -> Json:
            found: Json = filled(self.target.shape)
            return {"description": (type(self.target).__doc__ or "").strip(), **found}

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
        self, name: str, schema: Json, description: Words = "", *, where: str = "query", required: bool = False
    ) -> None:
        self.name, self.schema, self.description, self.where = name, schema, description, where
        self.required = required or where == "path"


def page_size(usual: int, most: int | None = None) -> Parameter:
    """Return the parameter ``page_size``: ``usual`` where it is left out, at most ``most`` (``None``: ``MAX_PAGE``)."""

    def highest() -> int:
        return conf.settings.MAX_PAGE if most is None else most

    schema = {"type": "integer", "minimum": 1, "default": lambda: min(usual, highest())}
    return Parameter("page_size", schema, lambda: f"Cut to {highest():,}.")


class Answer(NamedTuple):
    """One answer of an operation.

    ``shape`` describes its body, ``None`` for none; ``media`` is its media type, ``None`` for those of the view.
    """

    shape: type[Shape] | Json | None
    description: Words
    examples: Mapping[str, Any] = {}
    media: str | None = None


def _as_is(words: Words) -> Any:
    """Return a description for drf-spectacular, which types texts only and passes on what it is given."""
    return words


def describe_operation(
    name: str,
    summary: str,
    *,
    tag: str,
    answers: Mapping[int, Answer],
    description: Words = "",
    body: type[serializers.BaseSerializer[Any]] | Json | None = None,
    parameters: Sequence[Parameter] = (),
    examples: Mapping[str, Any] | None = None,
) -> Callable[[F], F]:
    """Describe one operation of any door for the OpenAPI document.

    Args:
        name: the operation's id.
        summary: one line.
        tag: the group it belongs to.
        answers: by status.
        description: Markdown.
        body: the serializer or the schema of the request's body.
        parameters: of the path, the query and the headers.
        examples: request bodies by title.
    """
    if SCHEMA is None:
        return lambda method: method
    decorate: Callable[[F], F] = extend_schema(
        operation_id=name,
        summary=summary,
        description=_as_is(description),
        tags=[tag],
        request={"application/json": body} if body is not None else None,
        responses={
            (status, answer.media) if answer.media else status: OpenApiResponse(
                answer.shape,
                description=_as_is(answer.description),
                examples=[
                    OpenApiExample(title, value=value, response_only=True) for title, value in answer.examples.items()
                ],
            )
            for status, answer in answers.items()
        },
        parameters=[
            OpenApiParameter(
                parameter.name,
                parameter.schema,
                getattr(OpenApiParameter, parameter.where.upper()),
                required=parameter.required,
                description=_as_is(parameter.description),
            )
            for parameter in parameters
        ],
        examples=[OpenApiExample(title, value=value, request_only=True) for title, value in (examples or {}).items()],
    )

    def apply(method: F) -> F:
        # Whatever schema class the host's REST_FRAMEWORK names: ours builds on drf-spectacular's.
        method.schema = SCHEMA  # type: ignore[attr-defined]  # read by extend_schema
        return decorate(method)

    return apply


def describe(
    name: str,
    summary: str,
    *,
    tag: str,
    description: Words = "",
    body: type[serializers.BaseSerializer[Any]] | None = None,
    answers: Mapping[int, type[Shape] | str],
    errors: Mapping[int, Iterable[str]],
    parameters: Sequence[Parameter] = (),
    examples: Mapping[str, tuple[Any, Any]] | None = None,
) -> Callable[[F], F]:
    """Describe one operation of a door whose errors have codes.

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
    """
    given = examples or {}
    found = {status: _success(shape, given) for status, shape in answers.items()}
    codes: dict[int, tuple[str, ...]] = dict(_ALWAYS)
    for status, words in [*(_WITH_BODY.items() if body is not None else ()), *errors.items()]:
        codes[status] = tuple(dict.fromkeys((*codes.get(status, ()), *words)))
    found |= {status: _failure(status, words) for status, words in sorted(codes.items())}
    return describe_operation(
        name,
        summary,
        tag=tag,
        answers=found,
        description=description,
        body=body,
        parameters=parameters,
        examples={title: request for title, (request, _) in given.items() if request is not None},
    )


def _success(shape: type[Shape] | str, examples: Mapping[str, tuple[Any, Any]]) -> Answer:
    if isinstance(shape, str):
        return Answer({"type": "string"}, shape, media="text/event-stream")
    return Answer(shape, (shape.__doc__ or "").strip(), {title: answer for title, (_, answer) in examples.items()})


def _failure(status: int, codes: Iterable[str]) -> Answer:
    words, means = ", ".join(f"`{code}`" for code in codes), _STATUS[status]
    return Answer(Error, lambda: f"{words}. {filled(means)}", media="application/json")
