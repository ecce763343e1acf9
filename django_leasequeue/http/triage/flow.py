"""Views of workflows and limits: read only, with the keys and scopes of the other doors."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine import NodeRow, WorkflowStatus
from ...engine.cursors import decode_cursor, encode_cursor
from ...engine.flow.figures import CAP, MAX_KEYS, MAX_LIMITS, LimitFigures, list_limits, workflow_queues
from ...engine.flow.workflows import MAX_PAGE
from ..errors import ApiError
from ..schema import Parameter, describe, page_size
from .shapes import Limits, Workflow
from .views import ReadView

_CURSOR = Parameter("cursor", {"type": "string"}, "`next_cursor` of the page before.")


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
