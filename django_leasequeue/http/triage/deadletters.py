"""Dead letters for operators: looked at one by one or by cause, and put back into a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, NotRequired, TypedDict

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine import audit
from ...engine.dead import export
from ...engine.dead.action import CONFLICTS, REDRIVE, RETRY, Acted, act
from ...engine.dead.filter import DeadFilter, from_values
from ...engine.dead.search import DeadRow
from ...engine.dead.triage import MAX_GROUP_PAGE, dead_groups, dead_page, dead_rows
from ...engine.limits import MAX_KEPT_NAME_BYTES, MAX_QUEUE_BYTES, seq_of
from ...engine.pool import patiently
from ...engine.queues import presets, routing
from .. import schema
from ..access import READ, WRITE
from ..auth import require
from ..errors import ApiError
from ..fields import OPTIONAL, STORABLE, Body, Json, Text
from ..schema import CURSOR, Parameter, page_size, switch
from ..views import ApiView, T

_PAGE_SIZE, _GROUPS_PAGE = page_size(50), page_size(25, MAX_GROUP_PAGE)
_WITH_PAYLOAD = switch("with_payload", False, "With data, meta and errors.")
_ERRORS = {400: ["invalid_topic"], 404: ["not_found"]}
_SEQ = Parameter("seq", {"type": "integer"}, "The job's number.", where="path")
QUEUE_NAME: Json = {"type": "string", "pattern": "^([A-Za-z0-9_-][A-Za-z0-9._:-]{0,254})?$"}
_QUEUE = Parameter("queue", QUEUE_NAME, "Its queue, where queues are in several databases.")

Moment = Annotated[str, {"format": "date-time"}]
Next = Annotated[str | None, "`cursor` of the next page; null at the end."]


class Envelope(TypedDict):
    """What every answer has beside its own fields."""

    performance: Annotated[dict[str, Any], "What the answer took, in milliseconds."]


endpoint = partial(schema.endpoint, envelope=Envelope, tag="dead letters")


def shown(kind: Any, row: Any, **others: Any) -> dict[str, Any]:
    """Return what a ``TypedDict`` shows of a row: its fields of the same names, times as text, and ``others``."""
    found = {name: others[name] if name in others else getattr(row, name) for name in kind.__annotations__}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


class ReadView(ApiView):
    http_method_names = ["get", "head"]

    @property
    def cursor(self) -> str | None:
        return self.request.GET.get("cursor")

    async def on_django(self, using: str, change: Callable[[str], T]) -> T:
        """Return what a change in the database ``using`` returns, made on Django's connection of a thread."""

        def work() -> T:
            try:
                with patiently(using):
                    return change(using)
            finally:
                # A thread of this request alone opened it under ASGI, where no signal of a request's end may come.
                if not self.runner.threaded and not connections[using].in_atomic_block:
                    connections[using].close()

        return await sync_to_async(work)()


class TriageView(ReadView):
    """Base of the views of jobs and dead letters: ``queue`` in the query says in which database to look."""

    def check_address(self, request: Request, topic: str | None) -> None:
        super().check_address(request, topic)
        if queue := request.GET.get("queue"):
            self.runner = self.runner.on(routing.alias_of(self.project, presets.check_name(queue)))

    def wanted(self) -> DeadFilter:
        """Return the filter of the query: of the key's project, and of the topics that it may see."""
        found = from_values(dict(self.request.GET.lists()))
        require(self.access, frozenset(), found.queue)
        return replace(found, project=self.project, prefixes=self.access.prefixes)

    async def letter(self, seq: str, *, payload: bool) -> DeadRow:
        number = seq_of(seq) or 0
        rows = await self.runner.run(dead_rows([number], payload=payload)) if number else []
        if not rows or rows[0].project != self.project or not self.access.sees(rows[0].queue):
            message = f"There is no dead letter {seq[:80]}: it was retried, discarded, or never was."
            raise ApiError(404, "not_found", message)
        return rows[0]


class DeadLetterRow(TypedDict):
    seq: Annotated[int, "The job's number."]
    project: NotRequired[Annotated[str, "The tenant."]]
    queue: Annotated[str, "The queue or dead-letter topic where it is."]
    state: Annotated[str, "`dead`; in a dead-letter topic `record` or a state of a job."]
    task: NotRequired[Annotated[str | None, "The job's name."]]
    key: NotRequired[Annotated[str | None, "The client's id of the job."]]
    tag: NotRequired[Annotated[str | None, "The job's tag."]]
    deliveries: NotRequired[Annotated[int, "How often it was claimed."]]
    error_type: NotRequired[Annotated[str | None, "Class of the last error."]]
    error: NotRequired[Annotated[str | None, "The last error; in lists its beginning."]]
    fingerprint: NotRequired[Annotated[str | None, "The group of failures."]]
    dead_at: Annotated[Moment, "When it died."]
    created_at: NotRequired[Annotated[Moment, "When it was enqueued."]]
    home: NotRequired[Annotated[str | None, "The queue that it came from, in a dead-letter topic."]]
    source_seq: NotRequired[Annotated[int | None, "Its number there, or of the job that it replaced."]]
    data: NotRequired[Annotated[Any, "The payload, redacted; null without `with_payload=true`."]]
    meta: NotRequired[Annotated[Any, "The producer's metadata, redacted; null without `with_payload=true`."]]
    errors: NotRequired[Annotated[list[dict[str, Any]], "The failed attempts; empty without `with_payload=true`."]]


class DeadLetters(TypedDict):
    """Dead letters, the newest death first."""

    dead_letters: Annotated[list[DeadLetterRow], "The page."]
    next_cursor: Next
    looked_at: Annotated[int, "Dead letters that were looked at for it."]


class DeadGroup(TypedDict):
    """A queue's dead letters of one fingerprint."""

    project: NotRequired[Annotated[str, "The tenant."]]
    queue: Annotated[str, "The queue or dead-letter topic."]
    fingerprint: Annotated[str, "Equal for failures of one cause."]
    dead_letters: Annotated[int, "How many, up to the cap."]
    capped: Annotated[bool, "Whether there are more."]
    first_at: Annotated[Moment, "The first death."]
    last_at: Annotated[Moment, "The last death."]
    bars: NotRequired[Annotated[list[int], "Deaths over the time from `bars_from` to `bars_to`, each clipped at 201."]]
    sample_seq: NotRequired[Annotated[int | None, "Number of the newest."]]
    task: NotRequired[Annotated[str | None, "Its task."]]
    error_type: NotRequired[Annotated[str | None, "Class of its error."]]
    error: NotRequired[Annotated[str | None, "The beginning of its error."]]


class DeadGroups(TypedDict):
    """Groups of dead letters, the newest death first."""

    groups: Annotated[list[DeadGroup], "The page."]
    next_cursor: Next
    complete: Annotated[bool, "False: narrow the filter to see all groups."]
    bars_from: Annotated[Moment, "Where the bars begin."]
    bars_to: Annotated[Moment, "Where they end."]


class DeadLetter(TypedDict):
    """One dead letter with its payload."""

    dead_letter: DeadLetterRow


class RedriveBody(Body):
    """Where a dead letter goes, and from which step it runs."""

    to = Text(
        high=MAX_QUEUE_BYTES,
        pattern=QUEUE_NAME["pattern"],
        help_text="The queue; default: the one that it came from.",
        **OPTIONAL,
    )
    from_step = Text(
        high=MAX_KEPT_NAME_BYTES, help_text="This step and those after it run again; default: none.", **OPTIONAL
    )


class DeadLetterRedriven(TypedDict):
    """The dead letter is a job again."""

    seq: Annotated[int, "The dead letter's number."]
    queue: Annotated[str, "The queue that it is in now."]


_TEXTS = {
    "queue": "Only of this queue or dead-letter topic.",
    "task": "Only of this task.",
    "fingerprint": "Only of this group; `-` for those without one.",
    "tag": "Only with this tag.",
    "since": "Died since then: ISO 8601, or how long ago (`2h`).",
    "until": "Died until then.",
    "deliveries": "`3`, `>=3`, `3..5`.",
    "text": "A part of the error, the task or the key, in any case.",
}
_TEST: Json = {
    "type": "string",
    "maxLength": 500,
    "pattern": r"^(data|meta|tags)(\.[^.=!\s\u0000-\u001f\u007f-\u00a0][^.=!\u0000]*){1,20}!?=[^\u0000]*$",
}
_PAYLOAD: Json = {"type": "array", "items": _TEST, "maxItems": 5}
_TEXT: Json = {"type": "string", "maxLength": 255, "pattern": STORABLE}
#: What a text of the filter looks like, where not every one is good.
_SHAPES: dict[str, Json] = {
    "queue": QUEUE_NAME,
    "since": {"type": "string", "format": "moment"},
    "until": {"type": "string", "format": "moment"},
    "deliveries": {"type": "string", "pattern": "^((>=|<=|>|<|=)?[0-9]{1,9}|[0-9]{1,9}[.][.][0-9]{1,9})?$"},
}
_FILTER = [
    *(Parameter(name, _SHAPES.get(name, _TEXT), description) for name, description in _TEXTS.items()),
    Parameter("payload", _PAYLOAD, "Such as `data.kwargs.customer = 17`."),
    CURSOR,
]


class DeadLettersView(TriageView):
    @endpoint(
        "listDeadLetters",
        "List dead letters",
        scopes=[READ],
        description="The newest death first. A search looks for a bounded time: its page may be short and have a next.",
        answers={200: DeadLetters},
        errors=_ERRORS,
        parameters=[*_FILTER, _PAGE_SIZE, _WITH_PAYLOAD],
    )
    async def get(self, request: Request) -> HttpResponse:
        size, payload = self.number(_PAGE_SIZE), self.flag(_WITH_PAYLOAD)
        found = await self.runner.run(dead_page(self.wanted(), after=self.cursor, size=size, payload=payload))
        rows = [export.row(row, values=True) for row in found.rows]
        return self.answer(shown(DeadLetters, found, dead_letters=rows, next_cursor=found.next))


class DeadLetterGroupsView(TriageView):
    @endpoint(
        "listDeadLetterGroups",
        "List groups of dead letters",
        scopes=[READ],
        description="A group is a queue and a fingerprint.",
        answers={200: DeadGroups},
        errors=_ERRORS,
        parameters=[*_FILTER, _GROUPS_PAGE],
    )
    async def get(self, request: Request) -> HttpResponse:
        size = self.number(_GROUPS_PAGE)
        found = await self.runner.run(dead_groups(self.wanted(), after=self.cursor, size=size))
        groups = [shown(DeadGroup, group) for group in found.groups]
        return self.answer(shown(DeadGroups, found, groups=groups, next_cursor=found.next))


class DeadLetterView(TriageView):
    @endpoint(
        "getDeadLetter",
        "Look at one dead letter",
        scopes=[READ],
        description="With its payload, redacted, and the errors of its attempts.",
        answers={200: DeadLetter},
        errors=_ERRORS,
        parameters=[_SEQ, _QUEUE],
    )
    async def get(self, request: Request, seq: str) -> HttpResponse:
        return self.answer({"dead_letter": export.row(await self.letter(seq, payload=True), values=True)})


class RedriveView(TriageView):
    http_method_names = ["post"]

    @endpoint(
        "redriveDeadLetter",
        "Put a dead letter back into its queue or another one",
        scopes=[READ, WRITE],
        description="Its deliveries start again at 0. The audit says which key did it.",
        body=RedriveBody,
        answers={200: DeadLetterRedriven},
        errors={**_ERRORS, 409: ["not_redriven"]},
        parameters=[_SEQ, _QUEUE],
    )
    async def post(self, request: Request, seq: str) -> HttpResponse:
        body = await self.body()
        letter = await self.letter(seq, payload=False)
        to, step = body.get("to"), body.get("from_step")
        target = to or letter.home or letter.queue
        require(self.access, frozenset(), target)
        acted = await self.on_django(self.runner.using, partial(self._redrive, letter, to, step))
        if not acted.done:
            reason = CONFLICTS[acted.conflicts[0][1] if acted.conflicts else "gone"]
            raise ApiError(409, "not_redriven", f"The dead letter {letter.seq} was left as it is: {reason}.")
        return self.answer(DeadLetterRedriven(seq=letter.seq, queue=target))

    def _redrive(self, letter: DeadRow, to: str | None, step: str | None, using: str) -> Acted:
        routing.check_redrive(self.project, to, using)
        with transaction.atomic(using=using):
            kind = RETRY if to is None else REDRIVE
            acted = engine.run(act(kind, [letter.seq], to=to, from_step=step), using)
            if acted.done:
                audit.write(
                    kind,
                    audit.Actor("http", username=self.access.who),
                    project=self.project,
                    queue=letter.queue,
                    seqs=[letter.seq],
                    counts={"done": acted.done},
                    detail={"to": to, "from_step": step},
                    using=using,
                )
        return acted
