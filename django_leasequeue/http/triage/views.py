"""Views of dead letters, which can be put back into a queue, and of workflows and limits, which are read only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.http import HttpResponse
from rest_framework.request import Request

from ... import conf, engine
from ...engine import NodeRow, WorkflowStatus, audit
from ...engine.cursors import decode_cursor, encode_cursor
from ...engine.dead import export
from ...engine.dead.action import CONFLICTS, REDRIVE, RETRY, Acted, act
from ...engine.dead.filter import DeadFilter, from_values
from ...engine.dead.search import DeadRow
from ...engine.dead.triage import MAX_GROUP_PAGE, dead_groups, dead_page, dead_rows
from ...engine.flow.figures import CAP, MAX_KEYS, MAX_LIMITS, LimitFigures, list_limits, workflow_queues
from ...engine.flow.workflows import MAX_PAGE
from ...engine.limits import seq_of
from ...engine.pool import patiently
from ...engine.queues import presets, routing
from ..access import READ, WRITE
from ..auth import require
from ..errors import ApiError
from ..running import RequestRunner
from ..schema import Parameter, describe, page_size
from ..views import ApiView
from .shapes import FILTER, DeadGroups, DeadLetter, DeadLetterRedriven, DeadLetters, Limits, RedriveBody, Workflow

_TAG = "dead letters"
_READING = {"GET": frozenset({READ})}
_ERRORS = {400: ["invalid_request", "invalid_topic"], 404: ["not_found"]}


_SEQ = Parameter("seq", {"type": "integer"}, "The job's number.", where="path")
_QUEUE = Parameter("queue", {"type": "string"}, "Its queue, where queues are in several databases.")


class ReadView(ApiView):
    """Base of the views that operators read: GET with a cursor."""

    http_method_names = ["get", "head"]
    required_scopes = _READING

    @property
    def cursor(self) -> str | None:
        """The cursor of the query."""
        return self.request.GET.get("cursor") or None


class TriageView(ReadView):
    """Base of the views of dead letters: the filter, bounded by what the key may see.

    Where queues are in several databases the ``queue`` of the query says in which one.
    """

    def check_address(self, request: Request, topic: str | None) -> None:
        super().check_address(request, topic)
        if queue := request.GET.get("queue"):
            alias = routing.alias_of(self.project, presets.check_name(queue))
            self.runner = RequestRunner(alias, threaded=self.runner.threaded)

    def wanted(self) -> DeadFilter:
        """Return the filter of the query: of the key's project, and of the topics that it may see.

        Raises:
            InvalidOption: a value is not allowed.
            ApiError: the key may not see the queue.
        """
        found = from_values(dict(self.request.GET.lists()))
        if found.queue is not None:
            require(self.access, frozenset(), found.queue)
        return replace(found, project=self.project, prefixes=self.access.prefixes)

    async def letter(self, seq: str, *, payload: bool) -> DeadRow:
        """Return one dead letter that the key may see.

        Raises:
            ApiError: there is none of that number, or another tenant or another key's topic holds it.
        """
        number = seq_of(seq) or 0
        rows = await self.run(dead_rows([min(number, 2**63 - 1)], payload=payload)) if number else []
        if not rows or rows[0].project != self.project or not self.access.sees(rows[0].queue):
            raise ApiError(
                404, "not_found", f"There is no dead letter {seq[:80]}: it was retried, discarded, or never was."
            )
        return rows[0]


class DeadLettersView(TriageView):
    """Dead letters one by one."""

    @describe(
        "listDeadLetters",
        "List dead letters",
        tag=_TAG,
        description="The newest death first. A search looks for a bounded time: its page may be short and have a next.",
        answers={200: DeadLetters},
        errors=_ERRORS,
        parameters=[
            *FILTER,
            page_size(50),
            Parameter("with_payload", {"type": "boolean", "default": False}, "With data, meta and errors."),
        ],
    )
    async def get(self, request: Request) -> HttpResponse:
        size = self.number("page_size", 50, 1, conf.settings.MAX_PAGE) or 50
        payload = self.flag("with_payload", False)
        found = await self.run(dead_page(self.wanted(), after=self.cursor, size=size, payload=payload))
        return self.answer(
            {
                "dead_letters": [export.row(row, values=True) for row in found.rows],
                "next_cursor": found.next,
                "looked_at": found.looked_at,
            }
        )


class DeadLetterGroupsView(TriageView):
    """Dead letters by cause."""

    @describe(
        "listDeadLetterGroups",
        "List groups of dead letters",
        tag=_TAG,
        description="A group is a queue and a fingerprint.",
        answers={200: DeadGroups},
        errors=_ERRORS,
        parameters=[*FILTER, page_size(25, MAX_GROUP_PAGE)],
    )
    async def get(self, request: Request) -> HttpResponse:
        size = self.number("page_size", 25, 1, MAX_GROUP_PAGE) or 25
        found = await self.run(dead_groups(self.wanted(), after=self.cursor, size=size))
        groups: list[dict[str, Any]] = [
            {
                **{name: value for name, value in group._asdict().items() if name != "queue_id"},
                "first_at": group.first_at.isoformat(),
                "last_at": group.last_at.isoformat(),
            }
            for group in found.groups
        ]
        return self.answer(
            {
                "groups": groups,
                "next_cursor": found.next,
                "complete": found.complete,
                "bars_from": found.bars_from.isoformat(),
                "bars_to": found.bars_to.isoformat(),
            }
        )


class DeadLetterView(TriageView):
    """One dead letter."""

    @describe(
        "getDeadLetter",
        "Look at one dead letter",
        tag=_TAG,
        description="With its payload, redacted, and the errors of its attempts.",
        answers={200: DeadLetter},
        errors=_ERRORS,
        parameters=[_SEQ, _QUEUE],
    )
    async def get(self, request: Request, seq: str) -> HttpResponse:
        return self.answer({"dead_letter": export.row(await self.letter(seq, payload=True), values=True)})


_CURSOR = Parameter("cursor", {"type": "string"}, "`next_cursor` of the page before.")


class RedriveView(TriageView):
    """One dead letter, put back into a queue."""

    http_method_names = ["post"]
    required_scopes = {"POST": frozenset({READ, WRITE})}

    @describe(
        "redriveDeadLetter",
        "Put a dead letter back into its queue or another one",
        tag=_TAG,
        description="Its deliveries start again at 0. The audit says which key did it.",
        body=RedriveBody,
        answers={200: DeadLetterRedriven},
        errors={**_ERRORS, 409: ["not_redriven"]},
        parameters=[_SEQ, _QUEUE],
    )
    async def post(self, request: Request, seq: str) -> HttpResponse:
        body = await self.body(RedriveBody)
        letter = await self.letter(seq, payload=False)
        to, step = body.get("to"), body.get("from_step")
        require(self.access, frozenset(), to or letter.home or letter.queue)
        acted = await sync_to_async(self._redrive)(letter, to, step)
        if not acted.done:
            reason = CONFLICTS[acted.conflicts[0][1] if acted.conflicts else "gone"]
            raise ApiError(409, "not_redriven", f"The dead letter {letter.seq} was left as it is: {reason}.")
        return self.answer({"seq": letter.seq, "queue": to or letter.home or letter.queue})

    def _redrive(self, letter: DeadRow, to: str | None, step: str | None) -> Acted:
        using = self.runner.using
        routing.check_redrive(self.project, to, using)
        with patiently(using), transaction.atomic(using=using):
            kind = RETRY if to is None else REDRIVE
            acted = engine.run(act(kind, [letter.seq], to=to, from_step=step), using)
            if acted.done:
                audit.write(
                    kind,
                    source="http",
                    username=self.access.who,
                    project=self.project,
                    queue=letter.queue,
                    seqs=[letter.seq],
                    counts={"done": acted.done},
                    detail={"to": to, "from_step": step},
                    using=using,
                )
        # A thread of this request alone opened it under ASGI, where no signal of a request's end may come.
        if not self.runner.threaded and not connections[using].in_atomic_block:
            connections[using].close()
        return acted


class WorkflowView(ReadView):
    """One workflow with its jobs."""

    @describe(
        "getWorkflow",
        "Look at a workflow",
        tag="workflows",
        description=(
            "How many of its jobs have ended, and its jobs, a page at a time in the order of their numbers. A key with"
            " prefixes sees the workflows whose jobs are all in its topics."
        ),
        answers={200: Workflow},
        errors={400: ["invalid_request"], 404: ["not_found"]},
        parameters=[
            Parameter("workflow", {"type": "string", "format": "uuid"}, "The workflow's id.", where="path"),
            page_size(100, MAX_PAGE),
            _CURSOR,
        ],
    )
    async def get(self, request: Request, workflow: str) -> HttpResponse:
        size = self.number("page_size", 100, 1, MAX_PAGE) or 100
        (after,) = decode_cursor(self.cursor, (int,)) or [0]
        found = await self._find(workflow)
        nodes = await self.run(engine.workflow_nodes(found.id, after=after, size=size, results=False))
        return self.answer(
            {
                "workflow": workflow.lower(),
                "name": found.name,
                "state": found.label,
                "total": found.total,
                "open": found.open,
                "completed": found.completed,
                "failed": found.failed,
                "cancelled": found.cancelled,
                "created_at": found.created_at.isoformat(),
                "ended_at": None if found.ended_at is None else found.ended_at.isoformat(),
                "jobs": [_job(node) for node in nodes],
                "next_cursor": encode_cursor(nodes[-1].seq) if len(nodes) == size else None,
            }
        )

    async def _find(self, text: str) -> WorkflowStatus:
        try:
            uid = UUID(text)
        except ValueError:
            found = None
        else:
            found = await self.run(engine.get_workflow(uid, project=self.project))
        # What is in another tenant's or another key's topics is not there for this one.
        if found is not None and self.access.prefixes:
            queues = await self.run(workflow_queues(found.id))
            if not all(queue is not None and self.access.sees(queue) for queue in queues):
                found = None
        if found is None:
            raise ApiError(
                404, "not_found", f"There is no workflow {text[:80]}: it ended more than a day ago, or never was."
            )
        return found


def _job(node: NodeRow) -> dict[str, Any]:
    return {
        "seq": node.seq,
        "key": node.key,
        "label": node.label,
        "task": node.task,
        "queue": node.queue,
        "state": node.state,
        "parents": node.parents or [],
        "error_type": node.error_type,
        "error": node.error,
    }


class LimitsView(ReadView):
    """The limits of a project."""

    @describe(
        "listLimits",
        "List limits",
        tag="limits",
        description="By name, with what waits for them. Limits belong to no topic: not for keys with prefixes.",
        answers={200: Limits},
        errors={400: ["invalid_request"]},
        parameters=[page_size(50, MAX_LIMITS), _CURSOR],
    )
    async def get(self, request: Request) -> HttpResponse:
        if self.access.prefixes:
            raise ApiError(403, "forbidden", "A key with prefixes may not read the limits: ask for one without.")
        size = self.number("page_size", 50, 1, MAX_LIMITS) or 50
        (after,) = decode_cursor(self.cursor, (str,)) or [""]
        found = await self.run(list_limits(project=self.project, after=(self.project, after), size=size))
        return self.answer(
            {
                "limits": [_limit(line) for line in found],
                "next_cursor": encode_cursor(found[-1].name) if len(found) == size else None,
            }
        )


def _limit(line: LimitFigures) -> dict[str, Any]:
    return {
        "name": line.name,
        "concurrency": line.concurrency,
        "rate": line.rate,
        "per_ms": line.per_ms,
        "burst": line.burst,
        "fair": line.fair,
        "pinned": line.pinned,
        "keys": min(line.keys, MAX_KEYS),
        "waiting": min(line.waiting, CAP),
        "taken": min(line.taken, CAP),
        "capped": line.keys > MAX_KEYS or max(line.waiting, line.taken) > CAP,
    }
