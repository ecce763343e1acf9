"""Edit and retry: other arguments or data for one dead letter, shown as a difference before it is done."""

from __future__ import annotations

import difflib
import json
from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from .. import conf
from ..engine import codec
from ..engine.dead.action import CONFLICTS, MAX_REASON, edit_and_retry
from ..engine.dead.filter import moment
from ..engine.dead.redaction import HIDDEN, readable, redact
from ..engine.dead.search import DeadRow
from ..engine.dead.triage import dead_rows
from ..engine.limits import MAX_SEQ
from ..exceptions import InvalidOption, LeaseQueueError
from ..http.payload import too_deep
from ..tasks.arguments import check_arguments
from ..tasks.exceptions import TaskNotFound
from ..tasks.lookup import find_task
from . import audit, pages, reading


def pretty(value: Any) -> str:
    """Return JSON as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def difference(before: Any, after: Any) -> list[str]:
    """Return the lines that differ between two JSON values and three around each, with ``+``, ``-`` or a space."""
    found = difflib.unified_diff(pretty(before).splitlines(), pretty(after).splitlines(), lineterm="", n=3)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def restore(edited: Any, shown: Any, real: Any) -> Any:
    """Return an edited value with the ``real`` values where a person left hidden ones as they were ``shown``."""
    if edited == shown:
        return real
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(real, dict):
        return {
            name: restore(value, shown[name], real[name]) if name in shown and name in real else value
            for name, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and isinstance(real, list):
        return _restore_list(edited, shown, real)
    return edited


def _restore_list(edited: list[Any], shown: list[Any], real: list[Any]) -> list[Any]:
    """Return a list with the real values of the elements that can be told apart; the others stay hidden.

    Its elements may have moved: each that is as it was shown has its own value again, if as many of it are there as
    were. One that is changed is told by its unchanged neighbours.
    """
    before, after = ([json.dumps(value, sort_keys=True) for value in values] for values in (shown, edited))
    made = list(edited)
    for text in set(before) & set(after):
        places = [place for place, other in enumerate(after) if other == text]
        values = [value for other, value in zip(before, real, strict=False) if other == text]
        if len(places) == len(values):
            for place, value in zip(places, values, strict=True):
                made[place] = value
    for sign, old, old_end, new, new_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if sign == "replace" and old_end - old == new_end - new == 1 and old < len(real) and after[new] not in before:
            made[new] = restore(edited[new], shown[old], real[old])
    return made


class _NotJson(InvalidOption):
    """A text that is not JSON; ``line`` shows the place of the error, and ``at`` is its offset."""

    def __init__(self, error: ValueError, text: str) -> None:
        super().__init__(_("This is not JSON: {error}.").format(error=error))
        self.at: int | None = getattr(error, "pos", None)
        self.line = ""
        if isinstance(error, json.JSONDecodeError):
            before, after = text[: error.pos], text[error.pos :]
            start, end = before.rpartition("\n")[2][-60:], after.partition("\n")[0][:60]
            self.line = f"{error.lineno}: {start}{end}\n{' ' * (len(str(error.lineno)) + 2 + len(start))}^"


def check_data(text: str, dead_letter: DeadRow, real: Any, shown: Any) -> Any:
    """Return the data that a person typed, with hidden values put back."""
    try:
        edited = codec.loads(text)
    except ValueError as error:
        raise _NotJson(error, text) from error
    limit = conf.settings.API.MAX_DEPTH
    if too_deep(edited, limit):
        raise InvalidOption(_("This is nested more than {limit} deep: flatten it.").format(limit=limit))
    made = restore(edited, shown, real)
    if HIDDEN in codec.dumps(made) and HIDDEN not in (dead_letter.data_json or ""):
        words = _("Leave {hidden} where it is, or put a value in its place: a hidden value cannot be moved.")
        raise InvalidOption(words.format(hidden=HIDDEN))
    if dead_letter.name and isinstance(real, dict) and real and set(real) <= {"args", "kwargs"}:
        args, kwargs = (made.get("args", []), made.get("kwargs", {})) if isinstance(made, dict) else (None, None)
        if not (isinstance(args, list) and isinstance(kwargs, dict) and set(made) <= {"args", "kwargs"}):
            raise InvalidOption(
                _('The data of a task is {"args": [...], "kwargs": {...}}: nothing else can be edited.')
            )
        with suppress(TaskNotFound):  # it may be declared elsewhere
            task = find_task(dead_letter.name)
            try:
                check_arguments(task, args, kwargs)
            except TypeError as error:
                raise InvalidOption(str(error)) from error
    return made


def edit(admin: pages.ModelAdmin[Any], request: HttpRequest, seq: int) -> HttpResponse:
    """Show the data of a dead letter to be edited, the difference, and retry it (POST with ``confirmed``)."""
    rows = reading.run(dead_rows([seq], payload=True)) if seq <= MAX_SEQ else []
    if not rows:
        raise Http404(f"Job {seq} is no dead letter.")
    dead_letter = rows[0]
    stored = dead_letter.data_json
    real = plain = None if stored is None else readable(stored)
    with suppress(ValueError):  # Python cannot read all that PostgreSQL does
        real = None if stored is None else codec.loads(stored)
    shown = redact(plain, kind="data", queue=dead_letter.queue, task=dead_letter.name)
    text = pretty(shown)
    error: LeaseQueueError | None = None
    lines: list[str] = []
    reason = request.POST.get("reason", "").replace("\x00", "").strip()[:MAX_REASON]
    if request.method == "POST":
        text = request.POST.get("data", "").replace("\r\n", "\n")
        try:
            made = check_data(text, dead_letter, real, shown)
            lines = difference(shown, redact(made, kind="data", queue=dead_letter.queue, task=dead_letter.name))
            if request.POST.get("confirmed"):
                return _retry(admin, request, dead_letter, made, lines, reason)
        except LeaseQueueError as problem:
            error = problem
    context = {
        "dead_letter": dead_letter,
        "job_url": admin.job_url(seq),
        "text": text,
        "error": error,
        "lines": lines,
        "checked": request.method == "POST" and not error,
        "dead_at": dead_letter.dead_at.isoformat(),
        "reason": reason,
        "next": admin.back(request),
    }
    title, status = _("Edit and retry job {job}").format(job=seq), 400 if error else 200
    crumbs = [(_("Dead letters"), "leasequeue_deadletters")]
    return admin.page(request, "deadletters/edit.html", context, title=title, crumbs=crumbs, status=status)


def _retry(
    admin: pages.ModelAdmin[Any], request: HttpRequest, dead_letter: DeadRow, made: Any, lines: list[str], reason: str
) -> HttpResponse:
    dead_at, project = moment(request.POST.get("dead_at", ""), "dead_at") or dead_letter.dead_at, dead_letter.project
    edited = edit_and_retry(dead_letter.queue, dead_letter.seq, data=made, dead_at=dead_at, project=project)
    with transaction.atomic(using=reading.alias()):
        done = reading.run(edited)
        if done.seq is None:
            raise InvalidOption(_("Nothing was done: {why}.").format(why=_(CONFLICTS[done.conflict or "gone"])))
        detail = {"from": dead_letter.seq, "to": done.seq, "difference": lines[:200]}
        about: dict[str, Any] = {"project": project, "queue": dead_letter.queue, "seqs": [dead_letter.seq, done.seq]}
        audit.record(request, "edit", **about, counts={"done": 1}, reason=reason, detail=detail)
    words = _("Job {job} goes on as job {new_job} with other data.")
    messages.success(request, words.format(job=dead_letter.seq, new_job=done.seq))
    return HttpResponseRedirect(admin.job_url(done.seq) or admin.back(request))
