"""The audit of what people do in the pages: our line, and one of Django's own log."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.http import HttpRequest

from ..engine.audit import Actor, write
from ..models import OperatorAction


def actor(request: HttpRequest) -> Actor:
    """Return the user of a request, as the audit names them."""
    return Actor("admin", str(request.user.pk), request.user.get_username())


def record(request: HttpRequest, action: str, *, obj: models.Model | None = None, **facts: Any) -> OperatorAction:
    """Write what the user of a request did: a line of the audit, and one of Django's own log.

    Args:
        request: of a page of the admin.
        action: a word for what was done.
        obj: what it was done to, for Django's log; the line of the audit stands for it where there is none.
        **facts: the other arguments of ``write``.
    """
    line = write(action, **actor(request)._asdict(), **facts)
    assert request.user.pk is not None, "pages of the admin let nobody in who is not signed in"
    about = obj if obj is not None else line
    words = [action]
    if line.seqs:
        words.append(f"jobs {', '.join(map(str, line.seqs[:10]))}{', …' if len(line.seqs) > 10 else ''}")
    elif line.queue:
        words.append(f"queue {line.queue}")
    words += [f"{name} {value}" for name, value in line.counts.items()]
    if line.reason:
        words.append(f"reason: {line.reason[:200]}")
    LogEntry.objects.create(
        user_id=request.user.pk,
        content_type_id=ContentType.objects.get_for_model(about, for_concrete_model=False).pk,
        object_id=str(about.pk),
        object_repr=str(about)[:200],
        action_flag=CHANGE,
        change_message="; ".join(words),
    )
    return line
