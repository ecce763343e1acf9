"""Operations of the APIs, each said once (``endpoint``), and OpenAPI through drf-spectacular when it is installed."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict, TypeVar, cast

from rest_framework import serializers
from rest_framework.schemas.inspectors import ViewInspector

from .. import conf
from ..engine.limits import MAX_SEQ
from .errors import CODES
from .fields import Body, Field, Json

F = TypeVar("F", bound=Callable[..., Any])
Words = str | Callable[[], str]


def filled(value: Any) -> Any:
    """Return a description with every function in it replaced by what it returns now: what a setting decides."""
    if isinstance(value, dict):
        return {name: filled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner) for inner in value]
    return filled(value()) if callable(value) else value


def as_of_3_0(value: Any) -> Any:
    """Return a schema as OpenAPI 3.0 has it: ``nullable`` for the type null, ``anyOf`` for other lists of types."""
    if isinstance(value, list):
        return [as_of_3_0(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    # 3.0 has no `propertyNames`. Examples are data, whatever their keys are called.
    kept = {name: inner for name, inner in value.items() if name != "propertyNames"}
    found = {name: inner if name == "examples" else as_of_3_0(inner) for name, inner in kept.items()}
    if {"type": "null"} in value.get("oneOf", ()):
        first, _ = found.pop("oneOf")
        return {**first, **found, "nullable": True}
    if found.get("type") == "null":
        return {"allOf": [{"enum": [None]}], "nullable": True}  # (an enum of its own would get a name)
    if isinstance(kinds := found.get("type"), list):
        several = [{"type": kind} for kind in found.pop("type") if kind != "null"]
        found = {**several[0], **found} if len(several) == 1 else {"anyOf": several, **found}
        return {**found, "nullable": True} if "null" in kinds else found
    return found


_PLAIN: dict[Any, Json] = {
    Any: {}, str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    dict: {"type": "object"},
}  # fmt: skip


def schema_of(kind: Any, envelope: Any = None) -> Json:
    """Return the JSON schema of a type (texts of ``Annotated`` describe it, dicts add to it), in an ``envelope``."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        found = schema_of(args[0])
        for more in args[1:]:
            found |= more if isinstance(more, dict) else {"description": more}
        return found
    if origin is NotRequired:
        return schema_of(args[0])
    if origin is list:
        return {"type": "array", "items": schema_of(args[0])}
    if origin in (typing.Union, UnionType):
        found = schema_of(args[0])
        return {"oneOf": [found, {"type": "null"}]} if "required" in found else {"type": [found["type"], "null"]}
    if not typing.is_typeddict(kind):
        return dict(_PLAIN[origin or kind])
    fields = typing.get_type_hints(kind, include_extras=True)
    optional = [name for name, hint in fields.items() if typing.get_origin(hint) is NotRequired]
    required = [name for name in fields if name not in optional]
    found = {name: schema_of(hint) for name, hint in fields.items()}
    if envelope is not None:
        around = schema_of(envelope)
        needed, more = around["required"], around["properties"]
        first, last = {name: more[name] for name in needed}, {name: more[name] for name in more if name not in needed}
        found = {name: found[name] for name in required} | first | {name: found[name] for name in optional} | last
        required = [*required, *needed]
    return {"type": "object", **({"required": required} if required else {}), "properties": found}


class Shape(serializers.Serializer):  # type: ignore[type-arg]  # generic for the type checker only
    """A body that is only described: what we answer is built by hand, because serializing costs more than the work."""

    shape: Json = {}


@cache
def shape_of(kind: Any, envelope: Any = None) -> type[Shape]:
    """Return what stands for a ``TypedDict`` in the document, under its name."""
    return type(kind.__name__, (Shape,), {"__doc__": kind.__doc__, "shape": schema_of(kind, envelope)})


class ErrorObject(TypedDict):
    """The error of a refused request."""

    code: Annotated[str, {"pattern": "^[a-z_]+$"}, "Lower snake_case, for programs."]
    message: Annotated[str, "A sentence for people: what is wrong, what to do."]
    detail: NotRequired[Annotated[dict[str, Any], {"properties": {"topic": _PLAIN[str]}}, "`topic` in 404 and 409."]]


class Error(TypedDict):
    """Every error's body."""

    error: ErrorObject


#: What each status means, as it stands in the description of an operation.
STATUS: dict[int, Words] = {
    400: "The request is not valid.",
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key lacks a scope, or may not see this topic.",
    404: "There is no such topic.",
    405: "Another method is needed.",
    406: "The answer is an event stream, and `Accept` does not take one.",
    409: "The topic does not allow it.",
    411: "A chunked body, under WSGI.",
    413: lambda: f"The body has more than {conf.settings.API.MAX_BODY_BYTES:,} bytes.",
    415: lambda: f"The body is not JSON, which may be nested {conf.settings.API.MAX_DEPTH} deep.",
    422: "The topic is at its cap and rejects.",
    429: "Too many requests of this key; `Retry-After` says when to come again.",
    500: "An error of the server.",
    503: "The database is not reachable, or this server cannot stream; `Retry-After` says when to come again.",
}
_ALWAYS, _WITH_BODY = (400, 401, 403, 429, 500), (411, 413, 415)

try:
    from drf_spectacular.extensions import (
        OpenApiAuthenticationExtension,
        OpenApiSerializerExtension,
        OpenApiSerializerFieldExtension,
    )
    from drf_spectacular.openapi import AutoSchema
    from drf_spectacular.settings import spectacular_settings
    from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
except ImportError:  # the extra `openapi` is not installed
    SCHEMA: ViewInspector | None = None
else:

    def _described(value: Any) -> Any:
        """Return a description, filled, in the version of OpenAPI that the host's document has."""
        found = filled(value)
        return as_of_3_0(found) if spectacular_settings.OAS_VERSION.startswith("3.0") else found

    class _Schema(AutoSchema):
        def get_operation(self, *args: Any, **kwargs: Any) -> Json | None:
            found: Json | None = _described(super().get_operation(*args, **kwargs))
            body = getattr(getattr(self.view, self.method.lower(), None), "body", None)
            # (it knows of fields alone that none may be missing)
            if found and (isinstance(body, dict) or getattr(body, "also", None)):
                found["requestBody"]["required"] = True
            return found

    SCHEMA = _Schema()

    class _FieldExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # registers itself
        target_class = Field
        match_subclasses = True

        def map_serializer_field(self, auto_schema: Any, direction: Any) -> Json:
            found: Json = _described(self.target.schema)
            return found

    class _BodyExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
        target_class = Body
        match_subclasses = True

        def map_serializer(self, auto_schema: Any, direction: Any) -> Json:
            found: Json = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
            return {**found, **_described(self.target.also)}

    class _ShapeExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
        target_class = Shape
        match_subclasses = True

        def map_serializer(self, auto_schema: Any, direction: Any) -> Json:
            found: Json = _described(self.target.shape)
            return {"description": (type(self.target).__doc__ or "").strip(), **found}

    class _KeyExtension(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
        target_class = "django_leasequeue.http.auth.ApiKeyAuthentication"
        name = "apiKey"

        def get_security_definition(self, auto_schema: Any) -> Json:
            description = "A key from `manage.py leasequeue_apikey create`."
            return {"type": "http", "scheme": "bearer", "description": description}


class Parameter(NamedTuple):
    """A parameter of the path, the query or the headers."""

    name: str
    schema: Json
    description: Words = ""
    where: str = "query"
    required: bool = False
    #: The highest value of an integer: what is more is cut.
    most: Callable[[], int] = lambda: MAX_SEQ


def page_size(usual: int, most: int | None = None) -> Parameter:
    """Return the parameter ``page_size``: ``usual`` where it is left out, at most ``most`` (``None``: ``MAX_PAGE``)."""

    def highest() -> int:
        return conf.settings.MAX_PAGE if most is None else most

    schema = {"type": "integer", "minimum": 1, "default": lambda: min(usual, highest())}
    return Parameter("page_size", schema, lambda: f"Cut to {highest():,}.", most=highest)


def switch(name: str, default: bool, description: str) -> Parameter:
    """Return a switch of the query."""
    return Parameter(name, {"type": "boolean", "default": default}, description)


CURSOR = Parameter(
    "cursor", {"type": "string", "format": "cursor"}, "`next_cursor` of the page before; empty: the first page."
)


class Answer(NamedTuple):
    """One answer of an operation."""

    #: Of its body; ``None``: it has none.
    shape: type[Shape] | Json | None
    description: Words
    examples: Mapping[str, Any] = {}
    #: ``None``: those of the view.
    media: str | None = None


def describe_operation(
    name: str,
    summary: str,
    *,
    tag: str,
    answers: Mapping[int, Answer],
    scopes: Iterable[str] = (),
    adds: bool = False,
    client: bool = False,
    description: Words = "",
    body: type[serializers.BaseSerializer[Any]] | Json | None = None,
    parameters: Sequence[Parameter] = (),
    examples: Mapping[str, Any] = {},
) -> Callable[[F], F]:
    """Say what a handler needs, and whether it ``adds`` jobs (to a moving topic's new database), and describe it."""

    def response(answer: Answer) -> Any:
        shown = [OpenApiExample(title, value=value, response_only=True) for title, value in answer.examples.items()]
        return OpenApiResponse(answer.shape, description=cast(Any, answer.description), examples=shown)

    def parameter(of: Parameter) -> Any:
        where, required = getattr(OpenApiParameter, of.where.upper()), of.required or of.where == "path"
        return OpenApiParameter(of.name, of.schema, where, required=required, description=cast(Any, of.description))

    def apply(method: F) -> F:
        if SCHEMA is not None:
            # Not the schema class that the host's REST_FRAMEWORK names: ours builds on drf-spectacular's.
            method.schema = SCHEMA  # type: ignore[attr-defined]  # read by extend_schema
            said: Any = {"operation_id": name, "summary": summary, "description": description, "tags": [tag]}
            method = extend_schema(
                **said,
                request={"application/json": body} if body is not None else None,
                responses={(at, it.media) if it.media else at: response(it) for at, it in answers.items()},
                parameters=[parameter(of) for of in parameters],
                examples=[OpenApiExample(title, value=value, request_only=True) for title, value in examples.items()],
            )(method)
        # Read by ``ApiView``.
        noted: Any = method
        noted.scopes, noted.adds, noted.body, noted.client = frozenset(scopes), adds, body, client
        return method

    return apply


def endpoint(
    name: str,
    summary: str,
    *,
    envelope: Any,
    answers: Mapping[int, Any],
    errors: Mapping[int, Iterable[str]] = {},
    body: type[serializers.BaseSerializer[Any]] | None = None,
    examples: Mapping[str, tuple[Any, Any]] = {},
    **said: Any,
) -> Callable[[F], F]:
    """Say all of one operation of an API: the view checks its scopes, and the OpenAPI document is made of it.

    ``answers`` by status are ``TypedDict``s, or a sentence about an event stream; ``errors`` are codes beside those of
    every operation; ``examples`` by title are the request's body and the answer's.
    """
    found = {}
    for status, kind in answers.items():
        if isinstance(kind, str):
            found[status] = Answer({"type": "string"}, kind, media="text/event-stream")
            continue
        shown = {title: answer for title, (_, answer) in examples.items()}
        found[status] = Answer(shape_of(kind, envelope), (kind.__doc__ or "").strip(), shown)
    usual = _ALWAYS if body is None else (*_ALWAYS, *_WITH_BODY)
    codes: dict[int, tuple[str, ...]] = {**{status: (CODES[status],) for status in usual}, 503: ("not_ready",)}
    for status, words in errors.items():
        codes[status] = tuple(dict.fromkeys((*codes.get(status, ()), *words)))
    found |= {status: _failure(status, words) for status, words in sorted(codes.items())}
    requests = {title: request for title, (request, _) in examples.items() if request is not None}
    return describe_operation(name, summary, answers=found, body=body, examples=requests, **said)


_ERROR = shape_of(Error)


def _failure(status: int, codes: Iterable[str]) -> Answer:
    words, means = ", ".join(f"`{code}`" for code in codes), STATUS[status]
    return Answer(_ERROR, lambda: f"{words}. {filled(means)}", media="application/json")
