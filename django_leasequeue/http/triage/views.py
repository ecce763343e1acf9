"""Views of dead letters: read only, with the keys and scopes of the other doors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from ... import conf
from ...engine.dead import export
from ...engine.dead.filter import DeadFilter, from_values
from ...engine.dead.triage import MAX_GROUP_PAGE, dead_groups, dead_page, dead_rows
from ...engine.limits import seq_of
from ..access import READ
from ..auth import require
from ..errors import ApiError
from ..schema import Parameter, describe, page_size
from ..views import ApiView
from .shapes import FILTER, DeadGroups, DeadLetter, DeadLetters

_TAG = "dead letters"
_READING = {"GET": frozenset({READ})}
_ERRORS = {400: ["invalid_request", "invalid_topic"], 404: ["not_found"]}


class ReadView(ApiView):
    """Base of the views that operators read: GET with a cursor."""

    http_method_names = ["get", "head"]
    required_scopes = _READING

    @property
    def cursor(self) -> str | None:
        """The cursor of the query."""
        return self.request.GET.get("cursor") or None


class TriageView(ReadView):
    """Base of the views of dead letters: the filter, bounded by what the key may see."""

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
        parameters=[Parameter("seq", {"type": "integer"}, "The job's number.", where="path")],
    )
    async def get(self, request: Request, seq: str) -> HttpResponse:
        number = seq_of(seq) or 0
        rows = await self.run(dead_rows([min(number, 2**63 - 1)], payload=True)) if number else []
        # What another tenant or another key's topic holds is not there for this one.
        if not rows or rows[0].project != self.project or not self.access.sees(rows[0].queue):
            raise ApiError(
                404, "not_found", f"There is no dead letter {seq[:80]}: it was retried, discarded, or never was."
            )
        return self.answer({"dead_letter": export.row(rows[0], values=True)})
