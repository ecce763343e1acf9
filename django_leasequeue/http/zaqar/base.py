"""The base of this API's views: project, client, body and limits of a request, errors with a title, ids and links."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Callable, Container, Mapping
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote, urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from rest_framework.request import Request

from ... import conf, engine
from ...conf.options import ZaqarLimits
from ...engine.queues.queues import QueueInfo
from ...exceptions import NotAQueue, QueueNotFound
from ..access import PROJECTS
from ..errors import ApiError, describe
from ..fields import STORABLE, Json, whole
from ..schema import STATUS, Answer, F, Parameter, Words, describe_operation, schema_of
from ..views import ApiView, json_response

#: Titles of errors by their code; where there is none, the code in words.
_TITLES = {"invalid_request": "Invalid API request", "not_ready": "Service temporarily unavailable"}


class Refused(ApiError):
    """An error of this API's own."""

    def __init__(self, status: int, title: str, description: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(status, "refused", description, headers=headers)
        self.title = title


missing, forbidden = partial(Refused, 404, "Not found"), partial(Refused, 403)


def bad(description: str, title: str = _TITLES["invalid_request"]) -> Refused:
    """Return the refusal of a request that is wrong."""
    return Refused(400, title, description)


def limit_of(name: str) -> Callable[[], int]:
    """Return the function that returns one of this API's limits as it is when it is called."""
    return lambda: int(getattr(conf.settings.API.ZAQAR, name))


class Seconds(NamedTuple):
    """A field of whole seconds in a body, and the names of its limits: what is checked, and what is described."""

    name: str
    low: str
    high: str

    @property
    def schema(self) -> Json:
        return {"type": "integer", "minimum": limit_of(self.low), "maximum": limit_of(self.high)}

    def milliseconds(self, document: dict[str, Any]) -> int:
        """Return what a document says, in milliseconds; it must be there and within bounds."""
        value, low, high = whole(document.get(self.name)), limit_of(self.low)(), limit_of(self.high)()
        if value is None:
            raise bad(f"The field {self.name!r} must be an integer.")
        if not low <= value <= high:
            raise bad(f"The field {self.name!r} must be from {low} to {high}.")
        return value * 1_000


class Error(TypedDict):
    title: str
    description: str


_STATUS = {
    **STATUS,
    403: "The key lacks a scope or may not act for the project, or the message is held, and not by the claim named.",
    404: "It is not there.",
    406: "`Accept` takes no JSON.",
    503: "The database cannot be reached; `Retry-After` says when to come again.",
}
_ALWAYS = (400, 401, 403, 406, 429, 503)

QUEUE = Parameter(
    "queue",
    {"type": "string", "minLength": 1, "maxLength": limit_of("MAX_QUEUE_NAME_BYTES"), "pattern": "^[A-Za-z0-9_-]+$"},
    "The queue's name.",
    where="path",
)
BOOLEAN: Json = {"type": "string", "enum": ["true", "false", "True", "False"]}
MARKER: tuple[Json, Words] = (
    {"type": "string", "maxLength": 64, "pattern": STORABLE},
    "From the next link of the page before.",
)
_LINK: Json = {"rel": {"type": "string", "enum": ["next"]}, "href": {"type": "string"}}
_NEXT: Json = {"type": "object", "properties": _LINK, "required": ["rel", "href"]}
LINKS: Json = {"type": "array", "minItems": 1, "maxItems": 1, "items": _NEXT}


def limit(highest: str) -> tuple[Json, Words]:
    """Return the description of ``limit``, whose highest value is one of the limits of this API."""
    most = limit_of(highest)
    usual = {"default": lambda: min(conf.settings.API.ZAQAR.DEFAULT_PAGE, most())}
    return {"type": "integer", "minimum": 1, "maximum": most, **usual}, "How many at most."


def endpoint(
    name: str,
    summary: str,
    *,
    answers: Mapping[int, Any],
    errors: tuple[int, ...] = (),
    query: Mapping[str, tuple[Json, Words]] = {},
    needs: Container[str] = (),
    client: bool = False,
    **said: Any,
) -> Callable[[F], F]:
    """Say all of one operation (``schema.endpoint``): it ``needs`` names of the query, the ``client`` an id."""
    shapes = {
        status: kind if kind is None or isinstance(kind, dict) else schema_of(kind) for status, kind in answers.items()
    }
    found = {status: Answer(shape, "Done." if shape else "No body.") for status, shape in shapes.items()}
    refused = {*_ALWAYS, *errors, *((411,) if "body" in said else ())}
    found |= {status: Answer(schema_of(Error), _STATUS[status]) for status in sorted(refused)}
    parameters = [
        Parameter("X-Project-Id", {"type": "string", "minLength": 1, "maxLength": 256}, where="header"),
        Parameter("Client-ID", {"type": "string", "format": "uuid"}, where="header", required=client),
        *(Parameter(key, shape, text, required=key in needs) for key, (shape, text) in query.items()),
    ]

    def apply(method: F) -> F:
        more = {"answers": found, "client": client, **said}
        given = [QUEUE, *parameters] if "queue" in signature(method).parameters else parameters
        return describe_operation(f"zaqar_{name}", summary, tag="Zaqar v1", parameters=given, **more)(method)

    return apply


#: The default content type of HTTP clients: never JSON on purpose.
FORM = "application/x-www-form-urlencoded"


class ZaqarView(ApiView):
    """Base of the views: bodies are JSON of any Content-Type but a form's; errors ``{"title", "description"}``."""

    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    subject = "queue"
    client: str | None

    @property
    def limits(self) -> ZaqarLimits:
        return conf.settings.API.ZAQAR

    async def _admit(self, request: Request, topic: str | None) -> None:
        self.format_kwarg = None  # (the framework's negotiation asks: addresses have no suffix that names a format)
        self.perform_content_negotiation(request)
        await super()._admit(request, topic)

    def named_project(self, named: str) -> str:
        if not named or len(named) > 256 or "\x00" in named:
            raise bad("X-Project-Id must be 1 to 256 characters; leave the header out for the project of the key.")
        if named != self.access.project and PROJECTS not in self.access.scopes:
            how = "leave X-Project-Id out, or use a key with the scope projects."
            raise forbidden("Forbidden", f"This key acts for its own project only: {how}")
        return named

    def check_address(self, request: Request, topic: str | None) -> None:
        """Note the client that a request names; check the name of its queue."""
        client: str | None = request.headers.get("Client-ID")
        if client is None and self.handler.client:
            raise bad("The header Client-ID is missing: send a UUID that stays the same for your client.")
        try:
            self.client = None if client is None else str(uuid.UUID(client))
        except ValueError:
            raise bad("The header Client-ID must be a UUID, like 3381af92-2b9e-11e3-b191-71861300734c.") from None
        if topic is None:
            return
        if not 0 < len(topic.encode()) <= self.limits.MAX_QUEUE_NAME_BYTES:
            raise bad(f"The name of a queue must be 1 to {self.limits.MAX_QUEUE_NAME_BYTES} bytes long.")
        if not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in topic):
            raise bad("The name of a queue must be ASCII letters, digits, underscores and hyphens.")

    async def document(self, limit: int) -> Any:
        """Return the JSON of the body, at most ``limit`` characters, of any Content-Type but a form's."""
        request: HttpRequest = self.request._request
        if request.content_type == FORM:
            raise bad(f"The body must be JSON, not a form: send it with another Content-Type than {FORM}.")
        raw = await self.read(limit * 4)
        try:
            text = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            raise bad("The body must be UTF-8.") from None
        if raw is None or text is None or len(text) > limit:
            raise bad(f"The body must be at most {limit} characters; it has more.")
        if not text.strip():
            raise bad("The body is empty; it must be JSON.")
        return await self.parse(raw, lambda data: data)

    async def fields(self, otherwise: str) -> dict[str, Any]:
        """Return the body, which must be an object; ``otherwise`` is said where it is none."""
        document = await self.document(self.limits.MAX_METADATA_SIZE)
        if not isinstance(document, dict):
            raise bad(otherwise)
        return document

    def page(self, highest: int) -> int:
        """Return the query's ``limit``, from 1 to ``highest``."""
        given = self.request.GET.get("limit")
        if given is None:
            return min(self.limits.DEFAULT_PAGE, highest)
        if not given.isascii() or not given.isdigit() or len(given) > 18 or not 1 <= int(given) <= highest:
            raise bad(f"The given limit cannot be below 1, and cannot be greater than {highest}.", "Unsupported limit")
        return int(given)

    def switched_on(self, name: str) -> bool:
        """Return a switch of the query: ``true`` or ``false`` in any case, false if left out."""
        given = self.request.GET.get(name, "false")
        if given.lower() not in ("true", "false"):
            raise bad(f"{name} must be true or false; it is {given!r}.")
        return given.lower() == "true"

    async def queue(self, name: str) -> QueueInfo:
        info = await self.find(name)
        if info is None:
            raise missing(f"There is no queue {name!r} in this project.")
        return info

    async def find(self, name: str) -> QueueInfo | None:
        """Return the queue, or ``None``; a log is no queue of this API."""
        info = await self.runner.run(engine.get(name, project=self.project))
        return info if info is not None and info.type == "queue" else None

    def empty(self, status: int = 204, headers: Mapping[str, str] = {}) -> HttpResponse:
        response = HttpResponse(status=status, headers=dict(headers))
        del response["Content-Type"]
        if status != 204:  # which never has a length
            response["Content-Length"] = "0"
        return response

    def refuse(self, error: Exception, topic: str | None = None) -> HttpResponse:
        if isinstance(error, QueueNotFound | NotAQueue):  # deleted, or another one, since the request looked
            error = missing("There is no such queue in this project.")
        answer = describe(error)
        usual = _TITLES.get(answer.code) or answer.code.replace("_", " ").capitalize()
        title = error.title if isinstance(error, Refused) else usual
        return json_response({"title": title, "description": answer.message}, answer.status, answer.headers)


# Ids of messages, claims and markers reveal nothing: a number is enciphered with a key made of ``SECRET_KEY``, what it
# stands for and the queue; the rest proves that it is ours. So an id tells neither how many there are nor anything of
# another queue, and cannot be guessed. Links are always paths.
_HALF = 0xFFFFFFFF
_PROOF_BYTES = 4


@lru_cache(maxsize=1024)
def _key(secret: str, kind: str, queue_id: int) -> bytes:
    return hashlib.sha256(f"leasequeue.zaqar:{kind}:{queue_id}:{secret}".encode()).digest()


def _round(key: bytes, number: int, half: int) -> int:
    salt = bytes([number]) * 8
    return int.from_bytes(hashlib.blake2s(half.to_bytes(4, "big"), key=key, salt=salt, digest_size=4).digest())


def _encipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in range(4):
        left, right = right, left ^ _round(key, number, right)
    return left << 32 | right


def _decipher(key: bytes, value: int) -> int:
    left, right = value >> 32, value & _HALF
    for number in reversed(range(4)):
        left, right = right ^ _round(key, number, left), left
    return left << 32 | right


def _proof(key: bytes, value: int) -> str:
    return hmac.new(key, value.to_bytes(8, "big"), "sha256").digest()[:_PROOF_BYTES].hex()


def encode_id(kind: str, queue_id: int, number: int) -> str:
    """Return a number's opaque form for a kind (``message``, ``claim``, ``marker``): 24 hex digits."""
    key = _key(settings.SECRET_KEY, kind, queue_id)
    value = _encipher(key, number)
    return f"{value:016x}{_proof(key, value)}"


def decode_id(kind: str, queue_id: int, text: str) -> int | None:
    """Return the number behind an opaque form, ``None`` if it is not one of ours (``SECRET_KEY_FALLBACKS`` count)."""
    if len(text) != 2 * (8 + _PROOF_BYTES) or not (text.isascii() and text.isalnum()):
        return None
    try:
        value = int.from_bytes(bytes.fromhex(text[:16]))
    except ValueError:
        return None
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        key = _key(secret, kind, queue_id)
        if hmac.compare_digest(_proof(key, value), text[16:].lower()):
            return _decipher(key, value)
    return None


def queue_path(name: str) -> str:
    """Return the path of a queue."""
    return reverse("leasequeue-zaqar:queue", args=[name])


def message_path(name: str, queue_id: int, seq: int, claim: int | None = None) -> str:
    """Return the path of a message, with its claim if it is held by the caller."""
    path = f"{queue_path(name)}/messages/{encode_id('message', queue_id, seq)}"
    return path if claim is None else f"{path}?claim_id={encode_id('claim', queue_id, claim)}"


def claim_path(name: str, queue_id: int, claim: int) -> str:
    """Return the path of a claim."""
    return f"{queue_path(name)}/claims/{encode_id('claim', queue_id, claim)}"


def next_link(path: str, query: dict[str, str], marker: str) -> list[dict[str, str]]:
    """Return the one ``next`` link of a list: the query as it was, the marker moved on."""
    return [{"rel": "next", "href": f"{quote(path)}?{urlencode({**query, 'marker': marker})}"}]
