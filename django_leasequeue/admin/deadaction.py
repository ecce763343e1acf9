"""From a button to a bulk operation: who may, what it would touch, the confirmation, the start."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from .. import engine
from ..engine.dead.action import CONFLICTS, DISCARD, KINDS, REDRIVE, check_action
from ..engine.dead.action import act as act_at_once
from ..engine.dead.bulkoperation import MAX_SELECTION, start_operation
from ..engine.dead.filter import DeadFilter, moment
from ..engine.dead.triage import Preview, preview
from ..engine.queues import routing
from ..exceptions import InvalidOption, LeaseQueueError, OperationActive
from . import audit, filters, pages, reading

#: Above so many jobs a person types what they do.
TYPED = 1_000


class Asked(NamedTuple):
    """What a form asks for."""

    kind: str
    wanted: DeadFilter
    seqs: list[int] | None
    to: str | None
    rate: float | None
    jitter_ms: int
    reason: str
    at: datetime | None
    from_step: str | None

    @property
    def how(self) -> dict[str, Any]:
        return {"to": self.to, "reason": self.reason, "jitter_ms": self.jitter_ms, "from_step": self.from_step}

    def record(self, request: HttpRequest, detail: dict[str, Any], **facts: Any) -> None:
        """Write the line of the audit."""
        project, queue = self.wanted.project or "", self.wanted.queue or ""
        detail = detail | ({"from_step": self.from_step} if self.from_step else {})
        audit.record(request, self.kind, project=project, queue=queue, reason=self.reason, detail=detail, **facts)


def act(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Answer a form: with the confirmation page, or by doing it and going back or to the operation."""
    kind = request.POST.get("action", "")
    if kind not in KINDS:
        messages.error(request, "Choose what to do: retry, redrive or discard.")
        return HttpResponseRedirect(filters.safe_next(request, site))
    pages.require(request, "view_job", f"{kind}_job")
    try:
        asked = _read(request, kind)
    except InvalidOption as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(filters.safe_next(request, site))
    if not request.POST.get("confirmed"):
        return _confirm(request, site, asked, [])
    try:
        check_action(kind, asked.to, asked.reason, asked.from_step)
        routing.check_redrive(asked.wanted.project or "", asked.to, reading.alias())
        rate, jitter_ms = _pace(request)
        asked = asked._replace(rate=rate, jitter_ms=jitter_ms)
        if asked.seqs is not None and len(asked.seqs) == 1:
            return _one(request, site, asked)
        return _start(request, site, asked)
    except OperationActive as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(pages.url(site, "leasequeue_bulkoperation_change", error.operation))
    except LeaseQueueError as error:
        return _confirm(request, site, asked, [str(error)])


def _read(request: HttpRequest, kind: str) -> Asked:
    wanted, error = filters.read(request, request.POST.get("filter", ""))
    if error:
        raise InvalidOption(error)
    seqs: list[int] | None = None
    scope = request.POST.get("scope", "selection")
    if scope == "selection":
        texts = request.POST.getlist("seq")
        if not texts:
            raise InvalidOption("No job is selected: tick some, or choose everything that the filter matches.")
        if len(texts) > MAX_SELECTION or not all(text.isdecimal() and len(text) < 19 for text in texts):
            raise InvalidOption(f"A selection is at most {MAX_SELECTION:,} numbers of jobs.")
        seqs = sorted({int(text) for text in texts})
        wanted = DeadFilter(project=wanted.project, queue=wanted.queue)
    elif scope != "filter":
        raise InvalidOption("Choose the selected jobs, or everything that the filter matches.")
    to = request.POST.get("to", "").strip() or None
    return Asked(
        kind, wanted, seqs, to if kind == REDRIVE else None, None, 0, request.POST.get("reason", "").strip(),
        moment(request.POST.get("at", ""), "at"), request.POST.get("from_step", "").strip() or None,
    )  # fmt: skip


def _pace(request: HttpRequest) -> tuple[float | None, int]:
    texts = [request.POST.get(name, "").strip().replace(",", ".") for name in ("rate", "jitter")]
    try:
        rate, jitter = (float(text) if text else None for text in texts)
    except ValueError as error:
        raise InvalidOption("Rate (jobs a second) and jitter (seconds) are numbers, or empty.") from error
    if jitter is not None and not 0 <= jitter <= 86_400:
        raise InvalidOption("Jitter is 0 to 86,400 seconds.")
    return rate, round((jitter or 0) * 1_000)


def phrase(kind: str, found: Preview) -> str | None:
    """Return what a person has to type before so much is done; ``None`` where no typing is needed."""
    if found.matches <= TYPED and not found.capped:
        return None
    return f"{kind} {found.matches}{' or more' if found.capped else ''}"


def _confirm(request: HttpRequest, site: AdminSite, asked: Asked, errors: list[str]) -> HttpResponse:
    found = reading.run(preview(asked.wanted, seqs=asked.seqs))
    frozen = asked.wanted.frozen(found.at)
    lines = []
    if asked.kind == REDRIVE:
        lines = reading.run(engine.list_queues(project=asked.wanted.project or "", size=filters.MAX_NAMES))
    typed = ("to", "rate", "jitter", "reason", "from_step", "typed")
    context: dict[str, Any] = {
        "asked": asked,
        "found": found,
        "count": f"{found.matches:,}{' or more' if found.capped else ''}",
        "one": asked.seqs is not None and len(asked.seqs) == 1,
        "words": frozen.words() if asked.seqs is None else [],
        "filter_query": asked.wanted.query(),
        "at": found.at.isoformat(),
        "phrase": phrase(asked.kind, found),
        "targets": [line.name for line in lines if line.type == "queue"],
        "values": {name: request.POST.get(name, "") for name in typed},
        "needs_reason": asked.kind == DISCARD,
        "errors": errors,
        "next": filters.safe_next(request, site),
        "act_url": pages.url(site, "leasequeue_deadletters_act"),
        "samples": [
            {**row._asdict(), "url": pages.url_or_none(site, "leasequeue_job_change", row.seq)} for row in found.samples
        ],
    }
    return pages.page(
        request,
        site,
        "deadletters/confirm.html",
        context,
        title=f"{asked.kind.capitalize()} dead letters",
        crumbs=[pages.Crumb("Dead letters", pages.url(site, "leasequeue_deadletters"))],
        status=400 if errors else 200,
    )


def _one(request: HttpRequest, site: AdminSite, asked: Asked) -> HttpResponse:
    """Act on one job at once."""
    assert asked.seqs is not None
    (seq,) = asked.seqs
    with transaction.atomic(using=reading.alias()):
        done = reading.run(act_at_once(asked.kind, [seq], until=asked.at, **asked.how))
        if not done.conflicts:
            asked.record(request, {"to": asked.to} if asked.to else {}, seqs=[seq], counts={"done": done.done})
    if done.conflicts:
        messages.error(request, f"Job {seq} was left alone: {CONFLICTS[done.conflicts[0][1]]}.")
    else:
        words = {"retry": "is ready again", "redrive": f"is in the queue {asked.to}", "discard": "is discarded"}
        messages.success(request, f"Job {seq} {words[asked.kind]}.")
    return HttpResponseRedirect(filters.safe_next(request, site))


def _start(request: HttpRequest, site: AdminSite, asked: Asked) -> HttpResponse:
    """Start a bulk operation over what the confirmation page showed."""
    if asked.at is None:
        raise InvalidOption("The time of the confirmation page is missing: look at it again.")
    found = reading.run(preview(asked.wanted.frozen(asked.at), seqs=asked.seqs))
    if not found.matches and not found.capped:
        raise InvalidOption("Nothing matches any more.")
    if phrase(asked.kind, found) is not None:
        # What they were shown counts, as long as it was for as many: some may have gone since then.
        typed = " ".join(request.POST.get("typed", "").split()).lower()
        shown = request.POST.get("phrase", "")
        if not shown.startswith(asked.kind) or typed != shown:
            raise InvalidOption("Type the words exactly as they are shown: this is for many jobs.")
    start = start_operation(
        asked.kind,
        asked.wanted.frozen(asked.at),
        frozen_at=asked.at,
        seqs=asked.seqs,
        rate=asked.rate,
        **asked.how,
        user_id=str(request.user.pk),
        username=request.user.get_username(),
        expected=found.matches,
        expected_capped=found.capped,
    )
    with transaction.atomic(using=reading.alias()):
        number = reading.run(start)
        asked.record(
            request,
            {"to": asked.to, "rate": asked.rate, "jitter_ms": asked.jitter_ms},
            seqs=asked.seqs or (),
            filters="" if asked.seqs is not None else asked.wanted.frozen(asked.at).query(),
            counts={"expected": found.matches, **({"capped": True} if found.capped else {})},
            operation=number,
        )
    messages.success(request, f"Operation {number} is started.")
    address = pages.url(site, "leasequeue_bulkoperation_change", number)
    return HttpResponseRedirect(filters.with_query(address, next=filters.safe_next(request, site)))
